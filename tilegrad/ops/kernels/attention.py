"""Attention and its gradient for vector units.

Tiles of scores have keys as rows and queries as columns, so each query is a lane: maxima and sums need no reduction
across lanes, keys and values are read as scalars, and only each tile of queries is transposed, once. The last, shorter
tile of keys has code of its own, so that only missing queries are masked.
"""

# mypy: ignore-errors
# (Parameters in capitals are constants.)

from __future__ import annotations

from ...tiles.read import core as tl
from ...tiles.read.scope import TileFunction
from ..op_kernel import OpKernel, below, flat_offset, int64, load_masked


@TileFunction
def key_loops(begin, end, first, A):
    # Bounds of the loops over keys: whole tiles of keys that precede all queries, other whole tiles, and the rest.
    stop = tl.minimum(end, A.whole) if A.chunked else A.whole
    if A.causal:
        stop = tl.minimum(stop, first + A.lanes)
    clear = begin
    if A.unmasked:
        clear = tl.minimum(stop, (first + 1) // A.length * A.length)
    last = A.keys
    if A.chunked and A.causal:
        last = tl.where((end == A.keys) & (first + A.lanes > A.whole), A.keys, A.whole)
    elif A.chunked:
        last = tl.where(end == A.keys, A.keys, A.whole)
    elif A.causal:
        last = tl.where(first + A.lanes > A.whole, A.keys, A.whole)
    return (begin, clear), (tl.maximum(begin, clear) if A.unmasked else begin, stop), (int64(A.whole), last)


@TileFunction
def mask_at(mask, head, i, j, COUNT, A):
    return load_masked(
        mask
        + tl.broadcast_to(
            flat_offset((head // A.heads, head % A.heads, j[:, None], i[None, :]), A.mask_strides, head * 0),
            (COUNT if A.mask[2] != 1 else 1, A.lanes if A.mask[3] != 1 else 1),
        ),
        below(i, A.queries, 0) if A.mask[3] != 1 else None,
        None,
    )


@TileFunction
def masked(scores, mask, head, i, j, COUNT, A):
    return (
        tl.where(mask_at(mask, head, i, j, COUNT, A), scores, -float("inf"))
        if mask.dtype.element_ty == tl.int1
        else scores + mask_at(mask, head, i, j, COUNT, A).to(A.dtype)
    )


@TileFunction
def preceding(scores, behind, A):
    # `behind` are narrow integers, of which a vector holds twice as many.
    return tl.where(behind[:, None] <= tl.arange(0, A.lanes)[None, :], scores, -float("inf"))


@TileFunction
def philox_round(a, b, c, d, k, m, A):
    return (
        tl.umulhi(c, A.multipliers[1]) ^ b ^ k,
        c * A.multipliers[1],
        tl.umulhi(a, A.multipliers[0]) ^ d ^ m,
        a * A.multipliers[0],
        k + A.key_steps[0],
        m + A.key_steps[1],
    )


@TileFunction
def dropout_factor(seed, drawn, head, i, j, COUNT, A):
    # Drawn as in `random.Philox`: the first word for each pair.
    counter = drawn + (head * A.queries + i)[None, :] * A.keys + j[:, None]
    a = counter.to(tl.uint32)
    words = a, (counter >> 32).to(tl.uint32), a ^ a, a ^ a, seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for r in tl.static_range(A.rounds):
        words = philox_round(*words, A)
    # Assigned twice, which keeps it a variable: inlined it would be drawn twice.
    factor = tl.full((COUNT, A.lanes), A.factor, A.dtype)
    factor = tl.where((words[0] >> 8) < A.threshold, factor, 0.0)
    return factor


@OpKernel
def attention(query, key, value, mask, state, out, A):
    program = tl.program_id(0).to(tl.int64)
    head = program // A.tiles
    first = program % A.tiles * A.lanes
    i = first + tl.arange(0, A.lanes)
    e = tl.arange(0, A.width)
    f = tl.arange(0, A.features)
    keys = key + head // A.group * (A.keys * A.width)
    values = value + head // A.group * (A.keys * A.features)
    given = load_masked(
        query + (head * (A.queries * A.width) + i[:, None] * A.width + e[None, :]), below(i, A.queries, 1)
    ).to(A.dtype)
    columns = tl.trans(given * A.scale)
    seed = None if state is None else tl.load(state)
    drawn = None if state is None else tl.load(state + 1)
    most = tl.full((A.lanes,), -float("inf"), A.dtype)
    total = tl.zeros((A.lanes,), A.dtype)
    mean = tl.zeros((A.features, A.lanes), A.dtype)
    loops = key_loops(int64(0), A.keys, first, A)
    for n in A.loops:
        for start in range(loops[n][0], loops[n][1], A.counts[n]):
            j = start + tl.arange(0, A.counts[n])
            scores = tl.dot(tl.load(keys + (j[:, None] * A.width + e[None, :])).to(A.dtype), columns)
            if mask is not None:
                scores = masked(scores, mask, head, i, j, A.counts[n], A)
            if A.causal and n > 0:
                behind = (start - first).to(tl.int32) + tl.arange(0, A.counts[n])
                scores = preceding(scores, behind, A)
            higher = tl.maximum(most, tl.max(scores, axis=0))
            shift = tl.where(higher == -float("inf"), 0.0, higher)
            powers = tl.exp(scores - shift[None, :])
            fade = tl.exp(most - shift)
            most = higher
            total = total * fade + tl.sum(powers, axis=0)
            mean = mean * fade[None, :]
            factor = None if state is None else dropout_factor(seed, drawn, head, i, j, A.counts[n], A)
            mean = tl.dot(
                tl.load(values + (j[None, :] * A.features + f[:, None])).to(A.dtype),
                powers if state is None else powers * factor,
                mean,
            )
    reached = tl.where(total == 0.0, 1.0, total)
    mean = mean * (1.0 / reached)[None, :]
    store_rows(out, tl.trans(mean), head * (A.queries * A.features), i, f, A.features, A)
    level = tl.where(total == 0.0, float("inf"), most + tl.log(reached))
    tl.store(out + (A.n * A.queries * A.features + head * A.queries + i), level, mask=below(i, A.queries))


@TileFunction
def store_rows(out, rows, begin, i, columns, WIDTH, A):
    tl.store(out + (begin + i[:, None] * WIDTH + columns[None, :]), rows, mask=below(i, A.queries, 1))


@TileFunction
def rows_of(pointer, begin, i, columns, WIDTH, A):
    return load_masked(pointer + (begin + i[:, None] * WIDTH + columns[None, :]), below(i, A.queries, 1)).to(A.dtype)


@TileFunction
def add_product(sums, weights, factor, rows, begin, i, j, columns, WIDTH, A):
    # Add products to rows of `out`.
    place = sums + (j[:, None] * WIDTH + columns[None, :])
    weighted = weights if factor is None else weights * factor
    tl.store(place, tl.dot(weighted, rows_of(rows, begin, i, columns, WIDTH, A), tl.load(place)))


@TileFunction
def clear_rows(to_keys, to_values, begin, end, e, f, A):
    for row in range(begin, end):
        tl.store(to_keys + (row * A.width + e), tl.zeros((A.width,), A.dtype))
        tl.store(to_values + (row * A.features + f), tl.zeros((A.features,), A.dtype))


@OpKernel
def attention_gradient(query, key, value, mask, state, upstream, level, delta, out, A):
    program = tl.program_id(0).to(tl.int64)
    pair, chunk = program // A.chunks, program % A.chunks
    begin = chunk * A.span
    end = tl.minimum(begin + A.span, A.keys)
    e = tl.arange(0, A.width)
    f = tl.arange(0, A.features)
    keys, values = key + pair * (A.keys * A.width), value + pair * (A.keys * A.features)
    to_keys = out + (A.behind_queries + pair * (A.keys * A.width))
    to_values = out + (A.behind_keys + pair * (A.keys * A.features))
    clear_rows(to_keys, to_values, begin, end, e, f, A)
    seed, drawn = (None, None) if state is None else (tl.load(state), tl.load(state + 1))
    for member in range(int64(0), A.group):
        head = pair * A.group + member
        for first in range(int64(0), A.queries, A.lanes):
            i = first + tl.arange(0, A.lanes)
            queries, arriving = head * (A.queries * A.width), head * (A.queries * A.features)
            columns = tl.trans(rows_of(query, queries, i, e, A.width, A) * A.scale)
            upward = tl.trans(rows_of(upstream, arriving, i, f, A.features, A))
            height = load_masked(level + (head * A.queries + i), below(i, A.queries), float("inf"))
            share = load_masked(delta + (head * A.queries + i), below(i, A.queries))
            slope = tl.zeros((A.width, A.lanes), A.dtype)
            loops = key_loops(begin, end, first, A)
            for n in A.loops:
                for start in range(loops[n][0], loops[n][1], A.counts[n]):
                    j = start + tl.arange(0, A.counts[n])
                    scores = tl.dot(tl.load(keys + (j[:, None] * A.width + e[None, :])).to(A.dtype), columns)
                    if mask is not None:
                        scores = masked(scores, mask, head, i, j, A.counts[n], A)
                    if A.causal and n > 0:
                        behind = (start - first).to(tl.int32) + tl.arange(0, A.counts[n])
                        scores = preceding(scores, behind, A)
                    scores = tl.exp(scores - height[None, :])
                    flow = tl.dot(tl.load(values + (j[:, None] * A.features + f[None, :])).to(A.dtype), upward)
                    factor = None if state is None else dropout_factor(seed, drawn, head, i, j, A.counts[n], A)
                    flow = scores * ((flow if state is None else flow * factor) - share[None, :]) * A.scale
                    add_product(to_values, scores, factor, upstream, arriving, i, j, f, A.features, A)
                    add_product(to_keys, flow, None, query, queries, i, j, e, A.width, A)
                    slope = tl.dot(tl.load(keys + (j[None, :] * A.width + e[:, None])).to(A.dtype), flow, slope)
            store_rows(out, tl.trans(slope), (chunk * A.n + head) * (A.queries * A.width), i, e, A.width, A)
