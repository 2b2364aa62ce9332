"""Lower reductions and scans."""

from __future__ import annotations

from ....ir import tile as ir
from ....ir.dtype import DType
from ....ir.functions import accumulation_dtype, identity
from ....ir.tile_types import TileType
from .. import vectors
from ..costs import ACCUMULATOR_COUNT, MAX_ROWS_AT_ONCE, MAX_UNROLLED_ROWS, MIN_LONG_ROW
from ..emit import I64, Builder, LlvmValue, constant, dtype_constant
from .bf16_reads import even_or_odd, reads_even_and_odd
from .memory import StackTile
from .nests import LoopNests
from .position import Position, first_lanes
from .prefetch import prefetch_rows


def reduce(nests: LoopNests, out: StackTile, fn: str, x: ir.Tile, axis: int) -> None:
    source = nests.e.types.of(x)
    if fn.startswith("arg"):
        from .first_extreme import reduce_arg

        reduce_arg(nests, out, fn, x, axis)
    elif axis == len(source.shape) - 1:
        _LastAxis(nests, out, fn, x, source).emit()
    else:
        _reduce_outer_axis(nests, out, fn, x, axis)


class _LastAxis:
    """Reduces the last axis: vectors, then lanes, in a fixed order."""

    def __init__(self, nests: LoopNests, out: StackTile, fn: str, x: ir.Tile, source: TileType) -> None:
        self.nests, self.e, self.b, self.out, self.fn, self.x = nests, nests.e, nests.b, out, fn, x
        self.dtype, self.wide, self.extent = source.dtype, accumulation_dtype(source.dtype), source.shape[-1]
        self.lanes = nests.target.lanes(max(4, self.wide.bytes))
        self.neutral = dtype_constant(identity(fn, self.wide), self.wide, self.lanes)
        self.even_and_odd = reads_even_and_odd(nests.e, x, fn, self.wide)
        self.rows = _rows_at_once(source)
        self.chains = ACCUMULATOR_COUNT if self.rows == 1 else ACCUMULATOR_COUNT // 2

    def emit(self) -> None:
        self.nests.for_each(self.out.shape, self._rows, self.wide, vectorised=False, step=self.rows)

    def _rows(self, at: Position) -> None:
        b, width = self.b, self.lanes * self.chains
        here = [at.indices]
        here += [(*at.indices[:-1], b.op("add", at.indices[-1], constant(n, I64))) for n in range(1, self.rows)]
        done = self.extent // width * width
        totals = self._whole_vectors(at, here, done) if done else [[] for _ in range(self.rows)]
        for start in range(done, self.extent, self.lanes):
            left = self.extent - start
            place = at.iteration(lanes=self.lanes)._replace(active=left if left < self.lanes else None)
            for row, total in zip(here, totals, strict=True):
                value = self._read(place.moved(*row, constant(start, I64)))
                if left < self.lanes:
                    value = b.select(first_lanes(left, self.lanes), value, self.neutral)
                total.append(value)
        for row, total in zip(here, totals, strict=True):
            lane = _across_lanes(b, self.fn, self.wide, _combined(b, self.fn, self.wide, total))
            self.out.store(b, at.moved(*row), vectors.cast(b, lane, self.wide, self.out.dtype))

    def _whole_vectors(self, at: Position, here: list[tuple[LlvmValue, ...]], done: int) -> list[list[LlvmValue]]:
        """Reduce whole groups of vectors of each row to one vector per accumulator."""
        b, lanes, chains = self.b, self.lanes, self.chains
        names = [f"part{n}" for n in range(self.rows * chains)]
        loop = self.nests.loop("k", 0, done, lanes * chains, [(name, self.neutral) for name in names])
        inner = at.iteration(lanes=lanes)
        if self.even_and_odd:
            places = [b.op("add", loop.index, constant(n // 2 * 2 * lanes, I64)) for n in range(chains)]
            rows = [(inner.moved(*row, k), n % 2 == 1) for row in here for n, k in enumerate(places)]
            found = [even_or_odd(self.e, self.x, place, odd) for place, odd in rows]
        else:
            places = [b.op("add", loop.index, constant(n * lanes, I64)) for n in range(chains)]
            found = [self._read(inner.moved(*row, k)) for row in here for k in places]
        parts = [vectors.apply(b, self.fn, self.wide, pair) for pair in zip(loop.carried, found, strict=True)]
        closed = list(b.close_loop(loop, parts))
        return [closed[n * chains : (n + 1) * chains] for n in range(self.rows)]

    def _read(self, at: Position) -> LlvmValue:
        value = self.e.evaluate(self.x, at, self.dtype)
        return self.b.splat(vectors.cast(self.b, value, self.dtype, self.wide), self.lanes)


def _combined(b: Builder, fn: str, dtype: DType, values: list[LlvmValue]) -> LlvmValue:
    """Combine values pairwise."""
    while len(values) > 1:
        pairs = [vectors.apply(b, fn, dtype, (x, y)) for x, y in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(pairs) * 2 :]
    return values[0]


def _across_lanes(b: Builder, fn: str, dtype: DType, x: LlvmValue) -> LlvmValue:
    lanes = x.type.lanes
    while lanes > 1:
        lanes //= 2
        upper = b.shuffle(x, x, [*range(lanes, 2 * lanes)])
        x = vectors.apply(b, fn, dtype, (b.shuffle(x, x, [*range(lanes)]), upper))
    return b.extract(x, 0)


def _reduce_outer_axis(nests: LoopNests, out: StackTile, fn: str, x: ir.Tile, axis: int) -> None:
    """Reduce an outer axis: lanes stay independent."""
    b, t = nests.b, nests.e.types.of(x)
    wide, extent = accumulation_dtype(t.dtype), t.shape[axis]

    def column(at: Position) -> None:
        if extent <= MAX_UNROLLED_ROWS:
            total = _unrolled(nests, fn, x, axis, at)
        else:
            start = dtype_constant(identity(fn, wide), wide, at.lanes)
            loop = nests.loop("k", 0, extent, 1, [("total", start)])
            here = _row(nests, x, axis, at.iteration(*at.indices), loop.index)
            (total,) = b.close_loop(loop, [vectors.apply(b, fn, wide, (loop.carried[0], here))])
        out.store(b, at, vectors.cast(b, total, wide, out.dtype))

    nests.for_each(out.shape, column, wide)


def _row(nests: LoopNests, x: ir.Tile, axis: int, at: Position, k: LlvmValue) -> LlvmValue:
    """Evaluate one row of a reduction over an outer axis."""
    dtype = nests.e.types.of(x).dtype
    value = nests.e.evaluate(x, at.moved(*at.indices[:axis], k, *at.indices[axis:]), dtype)
    return nests.b.splat(vectors.cast(nests.b, value, dtype, accumulation_dtype(dtype)), at.lanes)


def _unrolled(nests: LoopNests, fn: str, x: ir.Tile, axis: int, at: Position) -> LlvmValue:
    """Evaluate an element of a reduction over few rows."""
    t = nests.e.types.of(x)
    rows = [_row(nests, x, axis, at, constant(n, I64)) for n in range(t.shape[axis])]
    return _combined(nests.b, fn, accumulation_dtype(t.dtype), rows)


def is_unrolled(nests: LoopNests, x: ir.Reduce) -> bool:
    """Whether a reduction is over few rows of an outer axis, so that it can be evaluated where it is used."""
    shape = nests.e.types.of(x.x).shape
    return not x.fn.startswith("arg") and x.axis < len(shape) - 1 and shape[x.axis] <= MAX_UNROLLED_ROWS


def reduction(nests: LoopNests, x: ir.Reduce, at: Position) -> LlvmValue:
    """Evaluate an element of such a reduction where it is used."""
    prefetch_rows(nests.e, x, at, nests.target.l3_bytes)
    wide = accumulation_dtype(nests.e.types.of(x.x).dtype)
    return vectors.cast(nests.b, _unrolled(nests, x.fn, x.x, x.axis, at), wide, nests.e.types.of(x).dtype)


def scan(nests: LoopNests, out: StackTile, fn: str, x: ir.Tile, axis: int) -> None:
    b, e, dtype = nests.b, nests.e, out.dtype
    wide = accumulation_dtype(dtype)

    def line(at: Position) -> None:
        start = dtype_constant(identity(fn, wide), wide, at.lanes)
        loop = nests.loop("k", 0, out.shape[axis], 1, [("total", start)])
        here = at.iteration(*at.indices[:axis], loop.index, *at.indices[axis:])
        value = b.splat(vectors.cast(b, e.evaluate(x, here, dtype), dtype, wide), at.lanes)
        total = vectors.apply(b, fn, wide, (loop.carried[0], value))
        out.store(b, here, vectors.cast(b, total, wide, dtype))
        b.close_loop(loop, [total])

    outer = (*out.shape[:axis], *out.shape[axis + 1 :])
    nests.for_each(outer, line, wide, vectorised=axis != len(out.shape) - 1)


def _rows_at_once(source: TileType) -> int:
    """Return the number of rows of a tile that one loop reduces."""
    if len(source.shape) < 2 or source.shape[-1] < MIN_LONG_ROW:
        return 1
    return next(n for n in range(MAX_ROWS_AT_ONCE, 0, -1) if source.shape[-2] % n == 0)
