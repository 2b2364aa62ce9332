"""Tile kernels of attention and of its gradient for vector units.

Tiles of scores have keys as rows and queries as columns, so each query is a lane: maxima and sums need no reduction
across lanes, keys and values are read as scalars, and only each tile of queries is transposed, once. The last, shorter
tile of keys has code of its own, so that only missing queries are masked.
"""

from __future__ import annotations

from ..ir.dtype import bool_, float64
from ..runtime.device import device
from .attention_shapes import AttentionOp, keep_threshold
from .random import KEY_STEPS, MULTIPLIERS, ROUNDS
from .tile_code import TileCode, Tiles, fill_template, tile_code

FORWARD = """
@tg.kernel
def attention(PARAMETERS):
    program = tl.program_id(0).to(tl.int64)
    head = program // TILES
    first = program % TILES * LANES
    i = first + tl.arange(0, LANES)
    e = tl.arange(0, WIDTH)
    f = tl.arange(0, FEATURES)
    keys = key + head // GROUP * (KEYS * WIDTH)
    values = value + head // GROUP * (KEYS * FEATURES)
    queries = tl.load(query + (head * (QUERIES * WIDTH) + i[:, None] * WIDTH + e[None, :])ROWS)WIDE
    turned = tl.trans(queries * SCALE)
    SEED
    most = tl.full((LANES,), -float("inf"), DTYPE)
    total = tl.zeros((LANES,), DTYPE)
    mean = tl.zeros((FEATURES, LANES), DTYPE)
    LOOP
    reached = tl.where(total == 0.0, 1.0, total)
    mean = mean * (1.0 / reached)[None, :]
    upright = tl.trans(mean)
    tl.store(out + (head * (QUERIES * FEATURES) + i[:, None] * FEATURES + f[None, :]), uprightSTORED)
    level = tl.where(total == 0.0, float("inf"), most + tl.log(reached))
    tl.store(out + (BEHIND + head * QUERIES + i), levelLANE)
"""

FORWARD_STEP = """
SCORES
higher@ = tl.maximum(most, tl.max(scores@, axis=0))
shift@ = tl.where(higher@ == -float("inf"), 0.0, higher@)
powers@ = tl.exp(scores@ - shift@[None, :])
fade@ = tl.exp(most - shift@)
most = higher@
total = total * fade@ + tl.sum(powers@, axis=0)
mean = mean * fade@[None, :]
FACTOR
mean = tl.dot(tl.load(values + (j@[None, :] * FEATURES + f[:, None]))WIDE, powers@TIMES, mean)
"""

BACKWARD = """
@tg.kernel
def attention_gradient(PARAMETERS):
    program = tl.program_id(0).to(tl.int64)
    chunk = program % CHUNKS
    pair = program // CHUNKS
    begin = chunk * SPAN
    end = tl.minimum(begin + SPAN, KEYS)
    lane = tl.arange(0, LANES)
    e = tl.arange(0, WIDTH)
    f = tl.arange(0, FEATURES)
    keys = key + pair * (KEYS * WIDTH)
    values = value + pair * (KEYS * FEATURES)
    to_keys = out + (BEHIND_QUERIES + pair * (KEYS * WIDTH))
    to_values = out + (BEHIND_KEYS + pair * (KEYS * FEATURES))
    for row in range(begin, end):
        tl.store(to_keys + (row * WIDTH + e), tl.zeros((WIDTH,), DTYPE))
        tl.store(to_values + (row * FEATURES + f), tl.zeros((FEATURES,), DTYPE))
    SEED
    for member in range((0).to(tl.int64), GROUP):
        head = pair * GROUP + member
        for first in range((0).to(tl.int64), QUERIES, LANES):
            i = first + lane
            queries = query + (head * (QUERIES * WIDTH) + i[:, None] * WIDTH + e[None, :])
            arriving = upstream + (head * (QUERIES * FEATURES) + i[:, None] * FEATURES + f[None, :])
            turned = tl.trans(tl.load(queriesROWS)WIDE * SCALE)
            upward = tl.trans(tl.load(arrivingROWS)WIDE)
            height = tl.load(level + (head * QUERIES + i)LEVELS)
            share = tl.load(delta + (head * QUERIES + i)SHARES)
            slope = tl.zeros((WIDTH, LANES), DTYPE)
            LOOP
            leaving = (chunk * HEADS + head) * (QUERIES * WIDTH) + i[:, None] * WIDTH + e[None, :]
            upright = tl.trans(slope)
            tl.store(out + leaving, uprightSTORED)
"""

BACKWARD_STEP = """
SCORES
scores@ = tl.exp(scores@ - height[None, :])
flow@ = tl.dot(tl.load(values + (j@[:, None] * FEATURES + f[None, :]))WIDE, upward)
FACTOR
flow@ = scores@ * (flow@TIMES - share[None, :]) * SCALE
to_value@ = to_values + (j@[:, None] * FEATURES + f[None, :])
tl.store(to_value@, tl.dot(scores@TIMES, tl.load(arrivingROWS)WIDE, tl.load(to_value@)))
to_key@ = to_keys + (j@[:, None] * WIDTH + e[None, :])
tl.store(to_key@, tl.dot(flow@, tl.load(queriesROWS)WIDE, tl.load(to_key@)))
slope = tl.dot(tl.load(keys + (j@[None, :] * WIDTH + e[:, None]))WIDE, flow@, slope)
"""

SCORES = """
j@ = start@ + tl.arange(0, COUNT)
scores@ = tl.dot(tl.load(keys + (j@[:, None] * WIDTH + e[None, :]))WIDE, turned)
MASKED
"""

CAUSAL = """
behind@ = (start@ - first).to(tl.int32) + tl.arange(0, COUNT)
scores@ = tl.where(behind@[:, None] <= tl.arange(0, LANES)[None, :], scores@, -float("inf"))
"""
"""Causal mask as a comparison of narrow integers, of which a vector holds twice as many."""
BOOLEAN = 'scores@ = tl.where(tl.load(ADDRESS), scores@, -float("inf"))\n'
ADDED = "scores@ = scores@ + tl.load(ADDRESS).to(DTYPE)\n"

SEED = """
seed = tl.load(state)
drawn = tl.load(state + 1)
"""


def forward(op: AttentionOp) -> TileCode:
    """Generate the forward kernel: one instance for each tile of queries of a head."""
    n, m, queries, keys, width, features = op.sizes
    lanes = _lanes(op)
    tiles = -(-queries // lanes)
    words = _words(op) | {"TILES": tiles, "BEHIND": n * queries * features}
    loop = _loop(op, FORWARD_STEP, "(0).to(tl.int64)", str(keys), lanes)
    text = fill_template(FORWARD, {"LOOP": loop, "SEED": SEED if op.state else ""}, words)
    return tile_code(text, op.given(), op.type, (Tiles(n * tiles, 1),))


def backward(op: AttentionOp, chunks: int, span: int) -> TileCode:
    """Generate the gradient kernel: one instance for each chunk of keys of a head, looping over all queries that share
    it.
    """
    n, m, queries, keys, width, _ = op.sizes
    behind = chunks * n * queries * width
    words = _words(op) | {"CHUNKS": chunks, "SPAN": span, "HEADS": n}
    words |= {"BEHIND_QUERIES": behind, "BEHIND_KEYS": behind + m * keys * width}
    loop = _loop(op, BACKWARD_STEP, "begin", "end", _lanes(op))
    text = fill_template(BACKWARD, {"LOOP": loop, "SEED": SEED if op.state else ""}, words)
    return tile_code(text, op.given(), op.type, (Tiles(m * chunks, 1),))


def _lanes(op: AttentionOp) -> int:
    return -(-op.tile_length(op.sizes.queries, 16) // 16) * 16


def _words(op: AttentionOp) -> dict[str, object]:
    """Return the substitutions for placeholders in a kernel's text."""
    n, m, queries, keys, width, features = op.sizes
    partial = queries % _lanes(op) != 0
    exists = f"i < {queries}"
    return {
        "GROUP": n // m,
        "QUERIES": queries,
        "KEYS": keys,
        "WIDTH": width,
        "FEATURES": features,
        "LANES": _lanes(op),
        "SCALE": repr(op.scale),
        "DTYPE": "tl.float64" if op.wide is float64 else "tl.float32",
        "WIDE": "" if op.query.dtype is op.wide else ".to(tl.float32)",
        "ROWS": f", mask=({exists})[:, None], other=0.0" if partial else "",
        "STORED": f", mask=({exists})[:, None]" if partial else "",
        "LEVELS": f', mask={exists}, other=float("inf")' if partial else "",
        "SHARES": f", mask={exists}, other=0.0" if partial else "",
        "LANE": f", mask={exists}" if partial else "",
    }


def _loop(op: AttentionOp, step: str, begin: str, end: str, lanes: int) -> str:
    """Generate a loop over whole tiles of keys and a step for the rest.

    A causal loop begins with tiles whose keys precede all queries, and which need no mask.
    """
    keys = op.sizes.keys
    length = op.tile_length(keys, 8)
    whole = keys // length * length
    stop = str(whole) if end == str(keys) else f"tl.minimum({end}, {whole})"
    text = ""
    if op.causal:
        stop = f"tl.minimum({stop}, first + {lanes})"
        if op.sizes.queries > lanes and not device(op.query.device).target.masks_are_cheap:
            clear = f"tl.minimum({stop}, (first + 1) // {length} * {length})"
            text = f"for start_c in range({begin}, {clear}, {length}):\n" + _indented(
                _step(op, step, length, "_c", False)
            )
            begin = f"tl.maximum({begin}, {clear})"
    text += f"for start_a in range({begin}, {stop}, {length}):\n" + _indented(_step(op, step, length, "_a"))
    if whole < keys:
        here = [f"({end} == {keys})"] if end != str(keys) else []
        here += [f"(first + {lanes} > {whole})"] if op.causal else []
        rest = f"start_b = ({whole}).to(tl.int64)\n" + _step(op, step, keys - whole, "_b")
        text += f"if {' & '.join(here)}:\n" + _indented(rest) if here else rest
    return text


def _step(op: AttentionOp, step: str, count: int, suffix: str, hidden: bool = True) -> str:
    """Generate the step for a tile of keys; `hidden` says whether some keys may follow a query."""
    masked = ""
    if op.mask:
        masked = (BOOLEAN if op.mask[0].dtype is bool_ else ADDED).replace("ADDRESS", _mask_address(op, count))
    if op.causal and hidden:
        masked += CAUSAL
    scores = fill_template(SCORES, {"MASKED": masked}, {})
    lines = {"SCORES": scores, "FACTOR": _dropped(op) if op.state else ""}
    times = " * factor@" if op.state else ""
    return fill_template(step, lines, {"TIMES": times, "COUNT": count}).replace("@", suffix)


def _mask_address(op: AttentionOp, count: int) -> str:
    batch, heads, keys, queries = op.mask[0].shape
    place = [f"head // {op.heads}", f"head % {op.heads}", "j@[:, None]", "i[None, :]"]
    extents = (batch, heads, keys, queries)
    terms, stride = [], 1
    for at, extent in reversed(list(zip(place, extents, strict=True))):
        if extent != 1:
            terms.append(f"{at} * {stride}")
        stride = stride * int(extent)  # type: ignore[arg-type]
    offset = " + ".join(reversed(terms)) or "head * 0"
    shape = (count if keys != 1 else 1, _lanes(op) if queries != 1 else 1)
    partial = f", mask=(i < {queries})[None, :]" if queries != 1 and op.sizes.queries % _lanes(op) else ""
    return f"mask + tl.broadcast_to({offset}, ({shape[0]}, {shape[1]})){partial}"


def _dropped(op: AttentionOp) -> str:
    """Generate the dropout factors, drawn as in `random.Philox`: the first word for each pair."""
    _, _, queries, keys, _, _ = op.sizes
    lines = [f"counter@ = drawn + (head * {queries} + i)[None, :] * {keys} + j@[:, None]"]
    lines += ["a0@ = counter@.to(tl.uint32)", "b0@ = (counter@ >> 32).to(tl.uint32)"]
    lines += ["c0@ = a0@ ^ a0@", "d0@ = c0@", "k0@ = seed.to(tl.uint32)", "m0@ = (seed >> 32).to(tl.uint32)"]
    first, second = MULTIPLIERS
    for n in range(ROUNDS):
        k = n + 1
        lines += [
            f"a{k}@ = tl.umulhi(c{n}@, {second}) ^ b{n}@ ^ k{n}@",
            f"b{k}@ = c{n}@ * {second}",
            f"c{k}@ = tl.umulhi(a{n}@, {first}) ^ d{n}@ ^ m{n}@",
            f"d{k}@ = a{n}@ * {first}",
            f"k{k}@ = k{n}@ + {KEY_STEPS[0]}",
            f"m{k}@ = m{n}@ + {KEY_STEPS[1]}",
        ]
    dtype = "tl.float64" if op.wide is float64 else "tl.float32"
    kept = f"(a{ROUNDS}@ >> 8) < {keep_threshold(op.p)}"
    # assigned twice, which keeps it a variable: inlined it would be drawn twice
    lines += [f"factor@ = tl.full((COUNT, {_lanes(op)}), {1 / (1 - op.p)!r}, {dtype})"]
    return "\n".join([*lines, f"factor@ = tl.where({kept}, factor@, 0.0)"])


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines() if line.strip())
