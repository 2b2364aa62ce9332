"""Prefetch the operands of the next iteration of a sum, some cache lines at each block.

The hardware prefetcher does not follow rows of a tile that are far apart in memory, and packing would wait for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ....ir import tile as ir
from ..costs import MIN_TILE_LINES
from ..emit import I64, LlvmValue, constant
from .position import Position, position

if TYPE_CHECKING:
    from .elements import ElementEvaluator

LINE_BYTES = 64
"""Bytes of a cache line."""


class PrefetchTile(NamedTuple):
    """A tile that the next iteration loads: its contiguous axis, and its rows of cache lines."""

    load: ir.Load
    along: int
    rows: int
    lines: int


def tiles_to_prefetch(e: ElementEvaluator, operands: Sequence[ir.Tile], cache: int = 0) -> list[PrefetchTile]:
    """List the tiles that the next iteration of the innermost loop loads for a product, from matrices larger than a
    cache.
    """
    found = []
    for x in e.loads(*operands):
        shape = e.types.of(x).shape
        if e.next_counter is None or len(shape) != 2 or not _depends_on(e, x.pointer, e.next_counter[0]):
            continue
        if cache and _span_bytes(e, x, e.next_counter[0]) <= cache:
            continue
        along = next((axis for axis in (1, 0) if e.affine.step(x.pointer, axis - 2, typical=True) == 1), None)
        if along is not None:
            lines = -(-shape[along] * e.types.of(x).dtype.bytes // LINE_BYTES)
            found += (
                [PrefetchTile(x, along, shape[1 - along], lines)] if lines * shape[1 - along] >= MIN_TILE_LINES else []
            )
    return found


def prefetch_share(e: ElementEvaluator, tiles: Sequence[PrefetchTile], block: LlvmValue, blocks: int) -> None:
    """Prefetch the share of one block of these tiles."""
    b = e.b
    assert e.next_counter is not None
    ahead = position()._replace(names=dict([e.next_counter]))
    for tile in tiles:
        share = _share(tile, blocks)
        rows = max(1, share // tile.lines)
        parts = max(1, tile.lines // share)
        first = b.op("mul", b.op("udiv", block, constant(parts, I64)), constant(rows, I64))
        start = b.op("mul", b.op("urem", block, constant(parts, I64)), constant(share, I64))
        each = LINE_BYTES // e.types.of(tile.load).dtype.bytes
        for row in range(rows):
            at = b.intrinsic("smin", b.op("add", first, constant(row, I64)), constant(tile.rows - 1, I64))
            for n in range(min(share, tile.lines)):
                place = b.op("mul", b.op("add", start, constant(n, I64)), constant(each, I64))
                index = (at, place) if tile.along else (place, at)
                b.prefetch(e.evaluate(tile.load.pointer, ahead.moved(*index), e.types.of(tile.load).dtype), 2)


def prefetch_rows(e: ElementEvaluator, x: ir.Reduce, at: Position, cache: int) -> None:
    """Prefetch what the next iteration reduces here, if it reads rows of a matrix larger than the cache."""
    if e.next_counter is None or x.axis != 0:
        return
    counter, following = e.next_counter
    every = [y for y in e.loads(x.x) if len(e.types.of(y).shape) == 2 and _depends_on(e, y.pointer, counter)]
    loads = [y for y in every if e.affine.step(y.pointer, -1, typical=True) == 1 and _span_bytes(e, y, counter) > cache]
    ahead = at._replace(names=at.names | {counter: following}, known={}, lanes=0)
    for y in loads:
        t = e.types.of(y)
        for row in range(t.shape[0]):
            e.b.prefetch(e.evaluate(y.pointer, ahead.moved(constant(row, I64), *at.indices), t.dtype), 2)


def _span_bytes(e: ElementEvaluator, x: ir.Load, counter: str) -> int:
    """Approximate bytes between the first and last row that a loop reads."""
    last = e.affine.interval(ir.Name(counter)).high
    stride = max(abs(e.affine.step(x.pointer, axis) or 0) for axis in (-1, -2))
    return 0 if last is None else (last + 1) * stride * e.types.of(x).dtype.bytes


def _share(tile: PrefetchTile, blocks: int) -> int:
    """Cache lines that a block prefetches: a divisor of a row, or whole rows."""
    least = -(-tile.rows * tile.lines // blocks)
    if least >= tile.lines:
        return -(-least // tile.lines) * tile.lines
    return next(n for n in range(least, tile.lines + 1) if tile.lines % n == 0)


def _depends_on(e: ElementEvaluator, x: ir.Tile, name: str) -> bool:
    return any(isinstance(y, ir.Name) and y.name == name for y in e.subexpressions(x))
