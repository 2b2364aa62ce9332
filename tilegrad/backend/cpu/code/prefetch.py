"""What the next turn of a sum takes from memory is asked for while this one is computed, some lines at each block.

Rows of a tile that lie apart from each other in memory do not come by themselves, and packing them waits for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ....ir import tile as ir
from ....ir.tile_access import walk
from ..emit import I64, Value, constant
from .elements import At, defined

if TYPE_CHECKING:
    from .elements import Elements

LINE = 64
"""Bytes that come at a time."""
LEAST = 64
"""Lines of a tile that are worth asking for."""


class Wanted(NamedTuple):
    """A tile that the next turn loads: its rows lie along an axis, and consist of so many lines of memory."""

    load: ir.Load
    along: int
    rows: int
    lines: int


def wanted(e: Elements, operands: Sequence[ir.Tile], cache: int = 0) -> list[Wanted]:
    """What the next turn of the innermost loop loads for a product, from matrices that do not fit a cache."""
    found = []
    for x in _loads(e, operands):
        shape = e.types.of(x).shape
        if e.following is None or len(shape) != 2 or not _depends(e, x.pointer, e.following[0]):
            continue
        if cache and _reach(e, x, e.following[0]) <= cache:
            continue
        along = next((axis for axis in (1, 0) if e.step(x.pointer, axis - 2, local=True) == 1), None)
        if along is not None:
            lines = -(-shape[along] * e.types.of(x).dtype.bytes // LINE)
            found += [Wanted(x, along, shape[1 - along], lines)] if lines * shape[1 - along] >= LEAST else []
    return found


def ask(e: Elements, tiles: Sequence[Wanted], block: Value, blocks: int) -> None:
    """Asks for the share of one block in these tiles, of so many blocks."""
    b = e.b
    assert e.following is not None
    counter, following = e.following
    memo, e.memo = e.memo, {}
    now, e.registers[counter] = e.registers[counter], following
    for tile in tiles:
        share = _share(tile, blocks)
        rows = max(1, share // tile.lines)
        parts = max(1, tile.lines // share)
        first = b.op("mul", b.op("udiv", block, constant(parts, I64)), constant(rows, I64))
        start = b.op("mul", b.op("urem", block, constant(parts, I64)), constant(share, I64))
        each = LINE // e.types.of(tile.load).dtype.bytes
        for row in range(rows):
            at = b.intrinsic("smin", b.op("add", first, constant(row, I64)), constant(tile.rows - 1, I64))
            for n in range(min(share, tile.lines)):
                place = b.op("mul", b.op("add", start, constant(n, I64)), constant(each, I64))
                pointer = e.of(
                    tile.load.pointer, [at, place] if tile.along else [place, at], 0, e.types.of(tile.load).dtype
                )
                b.bring(pointer, 2)
    e.registers[counter], e.memo = now, memo


def ask_across(e: Elements, x: ir.Reduce, at: At, cache: int) -> None:
    """Asks for what the next turn reduces at the same place, if rows lie across memory, more than fit a cache.

    4096 x 4096 numbers took 0.75 of the time; from the third cache, the asking itself took a fifth.
    """
    if e.following is None or x.axis != 0:
        return
    counter, following = e.following
    every = [y for y in _loads(e, [x.x]) if len(e.types.of(y).shape) == 2 and _depends(e, y.pointer, counter)]
    loads = [y for y in every if e.step(y.pointer, -1, local=True) == 1 and _reach(e, y, counter) > cache]
    memo, e.memo = e.memo, {}
    now, e.registers[counter] = e.registers[counter], following
    for y in loads:
        t = e.types.of(y)
        for row in range(t.shape[0]):
            e.b.bring(e.of(y.pointer, [constant(row, I64), *at], 0, t.dtype), 2)
    e.registers[counter], e.memo = now, memo


def _reach(e: Elements, x: ir.Load, counter: str) -> int:
    """About the bytes of a matrix whose rows are so far apart, as many of them as a loop goes through."""
    span = e.ranges.of(ir.Name(counter))
    apart = max(abs(e.step(x.pointer, axis) or 0) for axis in (-1, -2))
    return 0 if span is None else (span[1] + 1) * apart * e.types.of(x).dtype.bytes


def _share(tile: Wanted, blocks: int) -> int:
    """How many lines a block asks for: a part of a row that divides it, or whole rows."""
    least = -(-tile.rows * tile.lines // blocks)
    if least >= tile.lines:
        return -(-least // tile.lines) * tile.lines
    return next(n for n in range(least, tile.lines + 1) if tile.lines % n == 0)


def _loads(e: Elements, operands: Sequence[ir.Tile]) -> list[ir.Load]:
    """The loads in expressions, each once, through names that stand for expressions; not those inside addresses."""
    found: dict[int, ir.Tile] = {}
    stack = list(operands)
    while stack:
        x = defined(e, stack.pop())
        if id(x) not in found:
            found[id(x)] = x
            stack.extend(() if isinstance(x, ir.Load) else ir.parts(x))
    return [x for x in found.values() if isinstance(x, ir.Load)]


def _depends(e: Elements, x: ir.Tile, name: str) -> bool:
    """Whether an expression is made from a name."""
    seen, stack = set[str](), [x]
    while stack:
        for part in walk(stack.pop()):
            if isinstance(part, ir.Name) and part.name not in seen:
                seen.add(part.name)
                stack += [e.lazy[part.name]] if part.name in e.lazy else []
    return name in seen
