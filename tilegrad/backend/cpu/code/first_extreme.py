"""Lower argmin and argmax: the first extreme or first NaN, with a candidate in each lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.dtype import DType, bool_, int32
from .. import vectors
from ..emit import I1, I32, I64, Builder, LlvmValue, Type, constant, lane_constants
from .memory import StackTile
from .position import Position

if TYPE_CHECKING:
    from .nests import LoopNests


def reduce_arg(nests: LoopNests, out: StackTile, fn: str, x: ir.Tile, axis: int) -> None:
    assert out.dtype is int32
    shape, dtype = nests.e.types.of(x).shape, nests.e.types.of(x).dtype
    along, lanes = axis == len(shape) - 1, nests.target.lanes(max(4, dtype.bytes))
    if along and lanes > 1 and shape[-1] >= 2 * lanes and dtype is not bool_:
        nests.for_each(out.shape, lambda at: _along_rows(nests, out, fn, x, at, lanes), dtype, vectorised=False)
    else:
        nests.for_each(out.shape, lambda at: _across_columns(nests, out, fn, x, axis, at), dtype, vectorised=not along)


def _across_columns(nests: LoopNests, out: StackTile, fn: str, x: ir.Tile, axis: int, at: Position) -> None:
    """Reduce an outer axis; columns are lanes."""
    b, e, lanes = nests.b, nests.e, at.lanes
    shape, dtype = e.types.of(x).shape, e.types.of(x).dtype

    def read(at: Position, k: LlvmValue) -> LlvmValue:
        return b.splat(e.evaluate(x, at.moved(*at.indices[:axis], k, *at.indices[axis:]), dtype), lanes)

    start = [("best", read(at, constant(0, I64))), ("place", constant(0, Type("i32", lanes) if lanes else I32))]
    loop = nests.loop("k", 0, shape[axis], 1, start)
    best, place = loop.carried
    value = read(at.iteration(*at.indices), loop.index)
    better = _is_better(b, fn, dtype, value, best)
    here = b.splat(b.convert("trunc", loop.index, "i32"), lanes)
    place = b.close_loop(loop, [b.select(better, value, best), b.select(better, here, place)])[1]
    out.store(b, at, place)


def _along_rows(nests: LoopNests, out: StackTile, fn: str, x: ir.Tile, at: Position, lanes: int) -> None:
    """Reduce the last axis by vectors, then the lanes."""
    b, e = nests.b, nests.e
    extent, dtype = e.types.of(x).shape[-1], e.types.of(x).dtype
    whole, numbers = extent // lanes * lanes, lane_constants(range(lanes), "i32")

    def read(row: Position, k: LlvmValue) -> LlvmValue:
        return b.splat(e.evaluate(x, row.moved(*at.indices, k), dtype), lanes)

    def step(row: Position, best: LlvmValue, place: LlvmValue, k: LlvmValue) -> list[LlvmValue]:
        value = read(row, k)
        better = _is_better(b, fn, dtype, value, best)
        better = better if row.mask is None else b.op("and", better, row.mask)
        here = b.op("add", b.splat(b.convert("trunc", k, "i32"), lanes), numbers)
        return [b.select(better, value, best), b.select(better, here, place)]

    loop = nests.loop(
        "k", lanes, whole, lanes, [("best", read(at._replace(lanes=lanes), constant(0, I64))), ("place", numbers)]
    )
    best, place = loop.carried
    best, place = b.close_loop(loop, step(at.iteration(lanes=lanes), best, place, loop.index))
    if whole < extent:
        tail = at.iteration(lanes=lanes)._replace(active=extent - whole)
        best, place = step(tail, best, place, constant(whole, I64))
    out.store(b, at, _first(b, fn, dtype, best, place))


def _first(b: Builder, fn: str, dtype: DType, best: LlvmValue, place: LlvmValue) -> LlvmValue:
    """Reduce lanes to the position of the best; ties go to the first."""
    lanes = best.type.lanes
    while lanes > 1:
        lanes //= 2
        halves = [[b.shuffle(v, v, range(n, n + lanes)) for v in (best, place)] for n in (0, lanes)]
        (one, first), (two, second) = halves
        earlier = b.compare("slt", second, first)
        worse = _negated(b, _is_better(b, fn, dtype, one, two))
        taken = b.op("or", _is_better(b, fn, dtype, two, one), b.op("and", worse, earlier))
        best, place = b.select(taken, two, one), b.select(taken, second, first)
    return b.extract(place, 0)


def _is_better(b: Builder, fn: str, dtype: DType, value: LlvmValue, old: LlvmValue) -> LlvmValue:
    better = vectors.apply(b, "gt" if fn == "argmax" else "lt", dtype, (value, old))
    if not dtype.is_float:
        return better
    old_is_number = _negated(b, vectors.apply(b, "isnan", dtype, (old,)))
    return b.op("and", b.op("or", better, vectors.apply(b, "isnan", dtype, (value,))), old_is_number)


def _negated(b: Builder, x: LlvmValue) -> LlvmValue:
    return b.op("xor", x, constant(True, x.type if x.type.lanes else I1))
