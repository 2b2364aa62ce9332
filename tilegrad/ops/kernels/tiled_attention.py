"""Attention and its gradient for matrix units with accumulators in registers.

Rows of a tile of scores are the queries of an instance (keys in the kernel of their gradient), columns the axis of its
loop: so maxima and sums of a row stay within few lanes, and weights are a left operand without a transpose. Weights are
rounded to the dtype of the values before the product. Exponentials are powers of 2.
"""

# mypy: ignore-errors
# (Parameters in capitals are constants.)

from __future__ import annotations

from ...tiles.read import core as tl
from ...tiles.read.scope import TileFunction
from ..op_kernel import OpKernel


@TileFunction
def tile(rows, begin, index, columns, WIDTH):
    return tl.load(rows + ((begin + index)[:, None] * WIDTH + columns[None, :]))


@TileFunction
def loops_over_keys(first, A):
    # With a causal mask: tiles of keys that precede all queries, and those on the diagonal.
    if not A.causal:
        return ((0, A.keys),)
    diagonal = tl.minimum((first + 1) // A.columns * A.columns, A.keys)
    return (0, diagonal), (diagonal, tl.minimum(first + A.rows, A.keys))


@TileFunction
def loops_over_queries(first, A):
    # With a causal mask: tiles of queries on the diagonal, and those that follow all keys.
    if not A.causal or A.group > 1:
        return ((0, A.group * A.queries),)
    begin = tl.minimum(first // A.columns * A.columns, A.queries)
    middle = tl.minimum((first + A.rows - 1 + A.columns - 1) // A.columns * A.columns, A.queries)
    return (begin, middle), (middle, A.queries)


@OpKernel
def tiled_attention(query, key, value, out, A, LEVELS):
    program = tl.program_id(0)
    head = (program // A.tiles).to(tl.int64)
    first = (A.tiles - 1 - program % A.tiles) * A.rows
    loops = loops_over_keys(first, A)  # before all tiles: producers of specialised warps know the bounds
    i = first + tl.arange(0, A.rows)
    t = tl.arange(0, A.columns)
    e = tl.arange(0, A.width)
    f = tl.arange(0, A.features)
    keys = key + head // A.group * (A.keys * A.width)
    values = value + head // A.group * (A.keys * A.features)
    queries = tile(query, head * A.queries, i, e, A.width)
    most = tl.full((A.rows,), -float("inf"), tl.float32)
    total = tl.zeros((A.rows,), tl.float32)
    mean = tl.zeros((A.rows, A.features), tl.float32)
    for n in tl.static_range(len(loops)):
        for start in range(loops[n][0], loops[n][1], A.columns):
            key_tile = tile(keys, start, t, e, A.width)
            value_tile = tile(values, start, t, f, A.features)
            scores = tl.dot(queries, tl.trans(key_tile))
            if A.causal and n == 1:
                scores = tl.where((start + t)[None, :] <= i[:, None], scores, -float("inf"))
            higher = tl.maximum(most, tl.max(scores, axis=1))
            shift = higher * A.binary_scale
            powers = tl.exp2(tl.fma(scores, A.binary_scale, -shift[:, None]))
            fade = tl.exp2(tl.fma(most, A.binary_scale, -shift))
            most = higher
            total = total * fade + tl.sum(powers, axis=1)
            mean = mean * fade[:, None]
            mean = tl.dot(powers.to(A.dtype), value_tile, mean)
    mean = mean * (1.0 / total)[:, None]
    tl.store(out + ((head * A.queries + i)[:, None] * A.features + f[None, :]), mean.to(A.dtype))
    if LEVELS:
        level = (most * A.scale + tl.log(total)) * A.level_scale
        upper = level.to(A.dtype)
        rest = level - upper.to(tl.float32)
        middle = rest.to(A.dtype)
        lower = (rest - middle.to(tl.float32)).to(A.dtype)
        tl.store(out + (A.behind + head * A.queries + i), upper)
        tl.store(out + (A.behind + A.count + head * A.queries + i), middle)
        tl.store(out + (A.behind + 2 * A.count + head * A.queries + i), lower)


@OpKernel
def attention_query_gradient(query, key, value, upstream, level, delta, out, A):
    program = tl.program_id(0)
    head = (program // A.tiles).to(tl.int64)
    first = (A.tiles - 1 - program % A.tiles) * A.rows
    loops = loops_over_keys(first, A)  # before all tiles: producers of specialised warps know the bounds
    i = first + tl.arange(0, A.rows)
    t = tl.arange(0, A.columns)
    e = tl.arange(0, A.width)
    f = tl.arange(0, A.features)
    keys = key + head // A.group * (A.keys * A.width)
    values = value + head // A.group * (A.keys * A.features)
    queries = tile(query, head * A.queries, i, e, A.width)
    arriving = tile(upstream, head * A.queries, i, f, A.features)
    height = tl.load(level + (head * A.queries + i)) * A.log2e
    share = tl.load(delta + (head * A.queries + i))
    slope = tl.zeros((A.rows, A.width), tl.float32)
    for n in tl.static_range(len(loops)):
        for start in range(loops[n][0], loops[n][1], A.columns):
            key_tile = tile(keys, start, t, e, A.width)
            value_tile = tile(values, start, t, f, A.features)
            scores = tl.dot(queries, tl.trans(key_tile))
            flow = tl.dot(arriving, tl.trans(value_tile))
            if A.causal and n == 1:
                scores = tl.where((start + t)[None, :] <= i[:, None], scores, -float("inf"))
            powers = tl.exp2(tl.fma(scores, A.binary_scale, -height[:, None]))
            slopes = powers * (flow - share[:, None])
            slope = tl.dot(slopes.to(A.dtype), key_tile, slope)
    tl.store(out + ((head * A.queries + i)[:, None] * A.width + e[None, :]), (slope * A.scale).to(A.dtype))


@OpKernel
def attention_key_gradient(query, key, value, upstream, level, delta, out, A):
    program = tl.program_id(0)
    pair = (program // A.tiles).to(tl.int64)
    first = program % A.tiles * A.rows
    loops = loops_over_queries(first, A)
    j = first + tl.arange(0, A.rows)
    t = tl.arange(0, A.columns)
    e = tl.arange(0, A.width)
    f = tl.arange(0, A.features)
    queries = query + pair * (A.group * A.queries * A.width)
    arriving = upstream + pair * (A.group * A.queries * A.features)
    levels = level + pair * (A.group * A.queries)
    deltas = delta + pair * (A.group * A.queries)
    keys = tile(key, pair * A.keys, j, e, A.width)
    values = tile(value, pair * A.keys, j, f, A.features)
    to_keys = tl.zeros((A.rows, A.width), tl.float32)
    to_values = tl.zeros((A.rows, A.features), tl.float32)
    for n in tl.static_range(len(loops)):
        for start in range(loops[n][0], loops[n][1], A.columns):
            query_tile = tile(queries, start, t, e, A.width)
            upstream_tile = tile(arriving, start, t, f, A.features)
            height = tl.load(levels + (start + t)) * A.log2e
            share = tl.load(deltas + (start + t))
            scores = tl.dot(keys, tl.trans(query_tile))
            flow = tl.dot(values, tl.trans(upstream_tile))
            if A.causal and n == 0:
                scores = tl.where(j[:, None] <= ((start + t) % A.queries)[None, :], scores, -float("inf"))
            powers = tl.exp2(tl.fma(scores, A.binary_scale, -height[None, :]))
            slopes = powers * (flow - share[None, :])
            to_values = tl.dot(powers.to(A.dtype), upstream_tile, to_values)
            to_keys = tl.dot(slopes.to(A.dtype), query_tile, to_keys)
    tl.store(out + ((pair * A.keys + j)[:, None] * A.width + e[None, :]), (to_keys * A.scale).to(A.dtype))
    behind = A.m * A.keys * A.width
    tl.store(out + (behind + (pair * A.keys + j)[:, None] * A.features + f[None, :]), to_values.to(A.dtype))
