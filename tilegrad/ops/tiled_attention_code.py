"""Tile kernels of attention and of its gradient for matrix units with accumulators in registers.

Rows of a tile of scores are the queries of an instance (keys in the kernel of their gradient), columns the axis of its
loop: so maxima and sums of a row stay within few lanes, and weights are a left operand without a transpose. Weights are
rounded to the dtype of the values before the product. Exponentials are powers of 2.
"""

from __future__ import annotations

import math

from ..ir.dtype import bfloat16
from .attention_shapes import AttentionOp
from .tile_code import TileCode, Tiles, fill_template, tile_code

LOG2E = 1 / math.log(2)

FORWARD = """
@tg.kernel
def tiled_attention(PARAMETERS):
    program = tl.program_id(0)
    head = (program // TILES).to(tl.int64)
    first = (TILES - 1 - program % TILES) * ROWS
    i = first + tl.arange(0, ROWS)
    t = tl.arange(0, COLUMNS)
    e = tl.arange(0, WIDTH)
    f = tl.arange(0, FEATURES)
    keys = key + head // GROUP * (KEYS * WIDTH)
    values = value + head // GROUP * (KEYS * FEATURES)
    queries = tl.load(query + ((head * QUERIES + i)[:, None] * WIDTH + e[None, :]))
    most = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mean = tl.zeros((ROWS, FEATURES), tl.float32)
    LOOPS
    mean = mean * (1.0 / total)[:, None]
    tl.store(out + ((head * QUERIES + i)[:, None] * FEATURES + f[None, :]), mean.to(LOW))
    KEPT
"""

LEVELS = """
level = (most * SCALE + tl.log(total)) * SHARE
upper = level.to(LOW)
rest = level - upper.to(tl.float32)
middle = rest.to(LOW)
lower = (rest - middle.to(tl.float32)).to(LOW)
tl.store(out + (BEHIND + head * QUERIES + i), upper)
tl.store(out + (BEHIND + COUNT + head * QUERIES + i), middle)
tl.store(out + (BEHIND + 2 * COUNT + head * QUERIES + i), lower)
"""

FORWARD_STEP = """
key@ = tl.load(keys + ((start@ + t)[:, None] * WIDTH + e[None, :]))
value@ = tl.load(values + ((start@ + t)[:, None] * FEATURES + f[None, :]))
scores@ = tl.dot(queries, tl.trans(key@))
MASKED
higher@ = tl.maximum(most, tl.max(scores@, axis=1))
shift@ = higher@ * BINARY
powers@ = tl.exp2(tl.fma(scores@, BINARY, -shift@[:, None]))
fade@ = tl.exp2(tl.fma(most, BINARY, -shift@))
most = higher@
total = total * fade@ + tl.sum(powers@, axis=1)
mean = mean * fade@[:, None]
mean = tl.dot(powers@.to(LOW), value@, mean)
"""

QUERY_GRADIENT = """
@tg.kernel
def attention_query_gradient(PARAMETERS):
    program = tl.program_id(0)
    head = (program // TILES).to(tl.int64)
    first = (TILES - 1 - program % TILES) * ROWS
    i = first + tl.arange(0, ROWS)
    t = tl.arange(0, COLUMNS)
    e = tl.arange(0, WIDTH)
    f = tl.arange(0, FEATURES)
    keys = key + head // GROUP * (KEYS * WIDTH)
    values = value + head // GROUP * (KEYS * FEATURES)
    queries = tl.load(query + ((head * QUERIES + i)[:, None] * WIDTH + e[None, :]))
    arriving = tl.load(upstream + ((head * QUERIES + i)[:, None] * FEATURES + f[None, :]))
    height = tl.load(level + (head * QUERIES + i)) * LOG2E
    share = tl.load(delta + (head * QUERIES + i))
    slope = tl.zeros((ROWS, WIDTH), tl.float32)
    LOOPS
    tl.store(out + ((head * QUERIES + i)[:, None] * WIDTH + e[None, :]), (slope * SCALE).to(LOW))
"""

QUERY_STEP = """
key@ = tl.load(keys + ((start@ + t)[:, None] * WIDTH + e[None, :]))
value@ = tl.load(values + ((start@ + t)[:, None] * FEATURES + f[None, :]))
scores@ = tl.dot(queries, tl.trans(key@))
flow@ = tl.dot(arriving, tl.trans(value@))
MASKED
powers@ = tl.exp2(tl.fma(scores@, BINARY, -height[:, None]))
slopes@ = powers@ * (flow@ - share[:, None])
slope = tl.dot(slopes@.to(LOW), key@, slope)
"""

KEY_GRADIENT = """
@tg.kernel
def attention_key_gradient(PARAMETERS):
    program = tl.program_id(0)
    pair = (program // TILES).to(tl.int64)
    first = program % TILES * ROWS
    j = first + tl.arange(0, ROWS)
    t = tl.arange(0, COLUMNS)
    e = tl.arange(0, WIDTH)
    f = tl.arange(0, FEATURES)
    queries = query + pair * (GROUP * QUERIES * WIDTH)
    arriving = upstream + pair * (GROUP * QUERIES * FEATURES)
    levels = level + pair * (GROUP * QUERIES)
    deltas = delta + pair * (GROUP * QUERIES)
    keys = tl.load(key + ((pair * KEYS + j)[:, None] * WIDTH + e[None, :]))
    values = tl.load(value + ((pair * KEYS + j)[:, None] * FEATURES + f[None, :]))
    to_keys = tl.zeros((ROWS, WIDTH), tl.float32)
    to_values = tl.zeros((ROWS, FEATURES), tl.float32)
    LOOPS
    tl.store(out + ((pair * KEYS + j)[:, None] * WIDTH + e[None, :]), (to_keys * SCALE).to(LOW))
    tl.store(out + (BEHIND + (pair * KEYS + j)[:, None] * FEATURES + f[None, :]), to_values.to(LOW))
"""

KEY_STEP = """
query@ = tl.load(queries + ((start@ + t)[:, None] * WIDTH + e[None, :]))
upstream@ = tl.load(arriving + ((start@ + t)[:, None] * FEATURES + f[None, :]))
height@ = tl.load(levels + (start@ + t)) * LOG2E
share@ = tl.load(deltas + (start@ + t))
scores@ = tl.dot(keys, tl.trans(query@))
flow@ = tl.dot(values, tl.trans(upstream@))
MASKED
powers@ = tl.exp2(tl.fma(scores@, BINARY, -height@[None, :]))
slopes@ = powers@ * (flow@ - share@[None, :])
to_values = tl.dot(powers@.to(LOW), upstream@, to_values)
to_keys = tl.dot(slopes@.to(LOW), query@, to_keys)
"""

BY_QUERY = 'scores@ = tl.where((start@ + t)[None, :] <= i[:, None], scores@, -float("inf"))\n'
BY_KEY = 'scores@ = tl.where(j[:, None] <= ((start@ + t) % QUERIES)[None, :], scores@, -float("inf"))\n'


def level_scale(op: AttentionOp) -> float:
    """Return the factor by which log-sum-exps are scaled to fit into three numbers of half precision."""
    return 1.0 if op.query.dtype is bfloat16 else 2.0**-10


def forward(op: AttentionOp, levels: bool) -> TileCode:
    """Generate the forward kernel: one instance for each tile of queries of a head."""
    return _along_keys(op, FORWARD, FORWARD_STEP, op.sizes.width, LEVELS if levels else "")


def query_gradient(op: AttentionOp) -> TileCode:
    """Generate the kernel of query gradients: one instance for each tile of queries of a head."""
    return _along_keys(op, QUERY_GRADIENT, QUERY_STEP, 64)


def _along_keys(op: AttentionOp, text: str, step: str, most: int, kept: str = "") -> TileCode:
    n, _, queries, keys, _, _ = op.sizes
    rows, columns = _side(queries, 128), _side(keys, most)
    loops = [("0", str(keys), "")]
    if op.causal:
        whole = f"tl.minimum((first + 1) // {columns} * {columns}, {keys})"
        loops = [("0", whole, ""), (whole, f"tl.minimum(first + {rows}, {keys})", BY_QUERY)]
    return _made(op, text, step, loops, (n * (queries // rows), queries // rows, rows, columns), kept)


def key_gradient(op: AttentionOp) -> TileCode:
    """Generate the kernel of key and value gradients, one instance for each tile of keys."""
    n, m, queries, keys, _, _ = op.sizes
    rows, columns = _side(keys, 128), _side(queries, 64)
    total = n // m * queries
    loops = [("0", str(total), BY_KEY if op.causal else "")]
    if op.causal and n == m:
        begin = f"tl.minimum(first // {columns} * {columns}, {queries})"
        middle = f"tl.minimum((first + {rows - 1 + columns - 1}) // {columns} * {columns}, {queries})"
        loops = [(begin, middle, BY_KEY), (middle, str(queries), "")]
    return _made(op, KEY_GRADIENT, KEY_STEP, loops, (m * (keys // rows), keys // rows, rows, columns))


def _side(extent: int, most: int) -> int:
    return most if extent % most == 0 else most // 2


def _made(
    op: AttentionOp,
    text: str,
    step: str,
    loops: list[tuple[str, str, str]],
    numbers: tuple[int, int, int, int],
    kept: str = "",
) -> TileCode:
    n, m, queries, keys, width, features = op.sizes
    instances, tiles, rows, columns = numbers
    behind = m * keys * width if text is KEY_GRADIENT else n * queries * features
    words = {"GROUP": n // m, "QUERIES": queries, "KEYS": keys, "WIDTH": width, "FEATURES": features}
    words |= {"ROWS": rows, "COLUMNS": columns, "TILES": tiles, "BEHIND": behind, "COUNT": n * queries}
    words |= {"SCALE": repr(op.scale), "BINARY": repr(op.scale * LOG2E), "LOG2E": repr(LOG2E)}  # type: ignore[dict-item]
    words |= {"LOW": f"tl.{op.query.dtype.name}", "SHARE": repr(level_scale(op))}  # type: ignore[dict-item]
    lines = []
    for suffix, (begin, end, masked) in zip("ab", loops, strict=False):
        inner = fill_template(step, {"MASKED": masked}, {}).replace("@", f"_{suffix}")
        lines.append(f"for start_{suffix} in range({begin}, {end}, {columns}):")
        lines += [f"    {line}" for line in inner.splitlines() if line]
    made = fill_template(text, {"LOOPS": "\n".join(lines), "KEPT": kept}, words)
    return tile_code(made, op.given(), op.type, (Tiles(instances, 1),))
