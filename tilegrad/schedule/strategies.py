"""Strategies for the loops of map and rows groups: when each fits, its default tile, candidates, and tile axes.

map:   along    a tile that is contiguous in memory, of one row or of several short ones
       across   a square tile, where memory is read transposed
rows:  whole    one instance takes all elements as one tile
       down     a loop over whole rows: reduces along and across them
       rows     an instance takes one row, or several short ones, as one tile
       beside   a tile of neighbouring columns, in a loop over their elements: reduces across memory
       loop     a loop along a row, a tile at a time
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, final

from ..ir.scalar import Expr, Index, Read, Reduce, facts, walk
from ..ir.size import Dim, product
from ..runtime.choice import Choice, chosen, power
from ..runtime.target_model import TargetModel
from .access_patterns import (
    contiguous_row,
    dominant_offsets,
    is_contiguous_along,
    reads_windows,
    stride,
    transposed_row,
)
from .flatten import FlatGroup
from .group import scanned_bytes
from .instances import at_most, divides, number_of
from .small_tensors import is_whole

PAGE_BYTES = 4096
"""Distance at which addresses fall into the same set of a first-level cache."""
MIN_STREAM_ELEMENTS = 1024
"""Row length from which on each row is a stream of memory of its own."""
MIN_WIDENED_SUM = 256
"""Elements of a sum from which on its column tiles are widened."""
MIN_COLUMN_TILE, MIN_COLUMN_SLICE = 256, 64
"""Narrowest column tile, in elements; and the narrowest where there are too few columns for all workers."""
COLUMN_TILE_OVERHEAD = 256
"""Cost of a column tile that does not depend on its width, in elements."""
MIN_TRIMMED_ROWS = 4
"""Rows of a tile below which it is not halved to waste fewer elements beyond the last row."""
MAX_WASTE = 1.1
"""Elements of tiles with overhang, for each element with tiles of half as many rows."""
MIN_TRANSPOSE_SIDE = 16
"""Smallest side of a square tile that is halved so that there are more instances."""
MAX_TILE_EXTENT = 1 << 16
"""Largest size that a choice may ask for, in elements."""
CANDIDATE_SCALES = (0.25, 0.5, 1, 2, 4)
"""Factors of the default tile sizes that the tuner tries."""


class Cut(NamedTuple):
    """The tile axes and loops of a kernel, by index."""

    axes: tuple[Index, ...]
    """Indices that run along tile axes, in their order."""
    block: dict[Index, int]
    """Extents of the tile axes; indices without one are scalars."""
    looped: dict[Index, int]
    """Columns that are looped over, and the step of each loop."""


class Strategy(ABC):
    """A way to cut the loops of a group into tiles."""

    name: str
    required: tuple[str, ...] = ()
    """Sizes that a choice must have."""
    optional: tuple[str, ...] = ()
    """Sizes that are 1 unless a choice has them."""

    def fits(self, flat: FlatGroup, target: TargetModel) -> bool:
        """Whether the strategy computes the group."""
        return True

    def default(self, flat: FlatGroup, target: TargetModel) -> Choice:
        """Return the sizes that the cost model prefers."""
        return chosen(self.name)

    def candidates(self, flat: FlatGroup, target: TargetModel) -> Iterator[Choice]:
        """Yield the sizes that the tuner tries: the defaults of models with smaller and larger tiles."""
        for scale in CANDIDATE_SCALES:
            yield self.default(flat, _scaled(target, scale))

    def refusal(self, flat: FlatGroup, choice: Choice) -> str:
        """Return why sizes are invalid for this group; empty if they are valid."""
        return ""

    @abstractmethod
    def cut(self, flat: FlatGroup, choice: Choice, target: TargetModel) -> Cut:
        """Return the tile axes and loops for a choice."""


@final
class _Along(Strategy):
    name = "along"
    optional = ("height", "width")

    def default(self, flat: FlatGroup, target: TargetModel) -> Choice:
        rows = flat.rows
        if not rows:
            return chosen(self.name)
        share = power(-(-_count(rows) // target.min_instances))
        tile = max(min(target.min_tile_elements, target.tile_elements), min(target.tile_elements, share))
        width = _tile_extent(rows[-1].extent, tile, target)
        height = _height(rows[:-1], width, target._replace(tile_elements=tile))
        return chosen(self.name, height=height, width=width) if height > 1 else chosen(self.name, width=width)

    def cut(self, flat: FlatGroup, choice: Choice, target: TargetModel) -> Cut:
        if not flat.rows:
            return Cut((), {}, {})
        return _tall(flat.rows, choice.size("height"), (flat.rows[-1], choice.size("width")))


@final
class _Across(Strategy):
    name = "across"
    required = ("height", "width")

    def fits(self, flat: FlatGroup, target: TargetModel) -> bool:
        return bool(flat.rows) and transposed_row(flat, target.tiled_gathers) is not None

    def default(self, flat: FlatGroup, target: TargetModel) -> Choice:
        crossing, inner = self._axes(flat, target)
        count, side = _count(flat.rows), target.transpose_tile_side
        while side > MIN_TRANSPOSE_SIDE and count // (side * side) < target.min_instances:
            side //= 2
        width = (
            min(side, self._conflict_free_rows(flat, inner, crossing, target)) if target.cache_associativity else side
        )
        height = _tile_extent(crossing.extent, side, target)
        return chosen(self.name, height=height, width=_tile_extent(inner.extent, width, target))

    def _axes(self, flat: FlatGroup, target: TargetModel) -> tuple[Index, Index]:
        crossing = transposed_row(flat, target.tiled_gathers)
        assert crossing is not None
        return crossing, flat.rows[-1]

    def _conflict_free_rows(self, flat: FlatGroup, inner: Index, crossing: Index, target: TargetModel) -> int:
        """Return how many rows of the transposed operand a cache holds: rows a power of two apart share its sets."""
        reads = [e for e in flat.expressions if isinstance(e, Read) and stride(e.position[0], crossing) == 1]
        strides = [(stride(e.position[0], inner) or 0) * e.dtype.bytes for e in reads]
        fewest = max(target.cache_associativity, target.matmul.micro_columns)  # squares of vectors use whole lines
        fitting = [fewest * (PAGE_BYTES // math.gcd(step, PAGE_BYTES)) for step in strides if step]
        return min(fitting, default=target.transpose_tile_side)

    def cut(self, flat: FlatGroup, choice: Choice, target: TargetModel) -> Cut:
        crossing, inner = self._axes(flat, target)
        return _cut((crossing, choice.size("height")), (inner, choice.size("width")))


@final
class _Whole(Strategy):
    name = "whole"

    def fits(self, flat: FlatGroup, target: TargetModel) -> bool:
        return is_whole(flat.rows, flat.columns, target.single_instance_elements)

    def cut(self, flat: FlatGroup, choice: Choice, target: TargetModel) -> Cut:
        return Cut(flat.columns, {i: _whole(i, target) for i in flat.columns if type(i.extent) is int}, {})


@final
class _Down(Strategy):
    name = "down"
    optional = ("height",)

    def fits(self, flat: FlatGroup, target: TargetModel) -> bool:
        return reduces_row_blocks(flat.columns, flat.roots, target.max_row_elements)

    def default(self, flat: FlatGroup, target: TargetModel) -> Choice:
        outer, inner = flat.columns
        most = target.row_block_elements // _tile_extent(inner.extent, target.max_row_elements, target)
        heights = (n for n in range(1, most + 1) if not target.pow2_tiles or n == power(n))
        height = max((n for n in heights if outer.extent % n == 0), default=1)
        return chosen(self.name, height=height) if height > 1 else chosen(self.name)

    def refusal(self, flat: FlatGroup, choice: Choice) -> str:
        extent = flat.columns[0].extent
        return "" if divides(choice.size("height"), extent) else f"the height divides {extent}"

    def cut(self, flat: FlatGroup, choice: Choice, target: TargetModel) -> Cut:
        outer, inner = flat.columns
        height = choice.size("height")
        return _tall((outer, inner), height, (inner, _whole(inner, target)))._replace(looped={outer: height})


@final
class _Rows(Strategy):
    name = "rows"
    optional = ("height",)

    def fits(self, flat: FlatGroup, target: TargetModel) -> bool:
        """Whether a row, or all that is read, reduced and stored of a longer one, stays in the second-level cache."""
        if len(flat.columns) != 1:
            return False
        extent = flat.columns[0].extent
        if type(extent) is not int or extent <= target.max_row_elements:
            return type(extent) is int
        rows = sum(isinstance(e, Read | Reduce) for e in flat.expressions) + len(flat.stores)
        if extent * rows > target.max_row_footprint:
            return False
        return extent * scanned_bytes(flat.expressions) <= target.max_scanned_bytes

    def default(self, flat: FlatGroup, target: TargetModel) -> Choice:
        rows, (column,) = flat.rows, flat.columns
        width = _tile_extent(column.extent, target.max_row_elements, target)
        along = any(column in facts(s.offset).indices for s in flat.stores)
        tile = min(target.tile_elements, target.short_row_elements) if along else target.tile_elements
        height = _height(rows, width, target._replace(tile_elements=tile))
        if height == 1 and not along:
            height = self._streams(rows, width, target)
        return chosen(self.name, height=height) if height > 1 else chosen(self.name)

    def _streams(self, rows: tuple[Index, ...], width: int, target: TargetModel) -> int:
        """Return how many long rows are reduced together, to read several streams of memory at a time."""
        if not rows or width < MIN_STREAM_ELEMENTS:
            return 1
        return _largest_divisor(rows[-1].extent, target.row_streams, target)

    def cut(self, flat: FlatGroup, choice: Choice, target: TargetModel) -> Cut:
        (column,) = flat.columns
        return _tall((*flat.rows, column), choice.size("height"), (column, _whole(column, target)))


@final
class _ColumnTiles(Strategy):
    name = "beside"
    required = ("depth", "width")

    def fits(self, flat: FlatGroup, target: TargetModel) -> bool:
        return contiguous_row(flat) is not None

    def default(self, flat: FlatGroup, target: TargetModel) -> Choice:
        depth = _tile_extent(flat.columns[-1].extent, target.column_tile_depth, target)
        return chosen(self.name, depth=depth, width=self._width(flat, target))

    def candidates(self, flat: FlatGroup, target: TargetModel) -> Iterator[Choice]:
        yield from super().candidates(flat, target)
        depth = target.column_tile_depth
        for tried in (max(1, depth // 2), depth * 2, depth * 4):
            yield self.default(flat, target._replace(column_tile_depth=tried))

    def _width(self, flat: FlatGroup, target: TargetModel) -> int:
        """Return the columns of a tile: memory is read faster in long pieces, but every worker needs as many."""
        row = self._row(flat)
        extent, default = row.extent, _tile_extent(row.extent, target.column_tile_width, target)
        if type(extent) is not int or _count(flat.columns) < MIN_WIDENED_SUM:
            return default
        sums = sum(isinstance(e, Reduce) and e.index is flat.columns[0] for e in flat.expressions)
        others = number_of(product(i.extent for i in flat.rows if i is not row))
        even = [extent // n for n in range(1, extent // MIN_COLUMN_SLICE + 1) if extent % n == 0]
        few = others * extent < target.workers * MIN_COLUMN_TILE
        vectors = target.matmul.micro_columns
        even = [width for width in even if width >= MIN_COLUMN_TILE or (few and width % vectors == 0)]

        def time(width: int) -> int:
            return -(-others * (extent // width) // target.workers) * (width + COLUMN_TILE_OVERHEAD)

        return min((w for w in even if w * sums <= target.max_column_tile_width), key=time, default=default)

    def _row(self, flat: FlatGroup) -> Index:
        row = contiguous_row(flat)
        assert row is not None
        return row

    def cut(self, flat: FlatGroup, choice: Choice, target: TargetModel) -> Cut:
        depth, inner = choice.size("depth"), flat.columns[-1]
        made = _cut((inner, depth), (self._row(flat), choice.size("width")))
        looped = dict.fromkeys(flat.columns[:-1], 1)
        return made._replace(looped=looped if inner.extent == depth else looped | {inner: depth})


@final
class _Loop(Strategy):
    name = "loop"
    required = ("width",)
    optional = ("height",)

    def default(self, flat: FlatGroup, target: TargetModel) -> Choice:
        width = _tile_extent(flat.columns[-1].extent, target.loop_elements, target)
        height = self._adjacent_rows(flat, width, target)
        return chosen(self.name, height=height, width=width) if height > 1 else chosen(self.name, width=width)

    def _adjacent_rows(self, flat: FlatGroup, width: int, target: TargetModel) -> int:
        """Return how many rows share a loop over short pieces: those whose pieces are adjacent in memory."""
        rows, columns = flat.rows, flat.columns
        if target.row_streams == 1 or not rows or len(columns) < 2 or columns[-1].extent != width:
            return 1
        if type(rows[-1].extent) is not int or any(stride(o, rows[-1]) != width for o in dominant_offsets(flat)):
            return 1
        return _largest_divisor(rows[-1].extent, target.column_tile_width // width, target)

    def cut(self, flat: FlatGroup, choice: Choice, target: TargetModel) -> Cut:
        width, columns = choice.size("width"), flat.columns
        made = _tall((*flat.rows, columns[-1]), choice.size("height"), (columns[-1], width))
        return made._replace(looped=dict.fromkeys(columns[:-1], 1) | {columns[-1]: width})


ALONG, ACROSS, WHOLE, DOWN, ROWS, COLUMN_TILES, LOOP = (
    _Along(),
    _Across(),
    _Whole(),
    _Down(),
    _Rows(),
    _ColumnTiles(),
    _Loop(),
)
STRATEGIES: dict[str, Strategy] = {s.name: s for s in (ALONG, ACROSS, WHOLE, DOWN, ROWS, COLUMN_TILES, LOOP)}


def _fitting(flat: FlatGroup, target: TargetModel) -> Iterator[Strategy]:
    """Yield the strategies that compute a group, the default one first."""
    tried: tuple[Strategy, ...]
    if not flat.columns:
        tried = (ACROSS, ALONG)
    elif WHOLE.fits(flat, target):
        tried = (WHOLE,)
    elif DOWN.fits(flat, target):
        tried = (DOWN,)
    elif is_contiguous_along(flat, flat.columns[-1]) and not reads_windows(flat):
        tried = (ROWS, LOOP, COLUMN_TILES)
    else:
        tried = (COLUMN_TILES, ROWS, LOOP)
    return (strategy for strategy in tried if len(tried) == 1 or strategy.fits(flat, target))


def default(flat: FlatGroup, target: TargetModel) -> Choice:
    """Return the choice of the cost model."""
    return next(_fitting(flat, target)).default(flat, target)


def candidates(flat: FlatGroup, target: TargetModel) -> list[Choice]:
    """Return the choices that the tuner tries, the default one first."""
    found = dict.fromkeys([default(flat, target)])
    for strategy in _fitting(flat, target):
        found |= dict.fromkeys(strategy.candidates(flat, target))
    return list(found)


def refusal(flat: FlatGroup, choice: Choice, target: TargetModel) -> str:
    """Return why a choice is invalid for this group; empty if it is valid."""
    names = [strategy.name for strategy in _fitting(flat, target)]
    if choice.strategy not in names:
        return f"the strategy is one of: {', '.join(names)}"
    strategy = STRATEGIES[choice.strategy]
    sizes = strategy.required + strategy.optional
    if not set(strategy.required) <= set(choice.names) <= set(sizes):
        return f"{choice.strategy} has the sizes {' '.join(f'{name}=...' for name in sizes)}"
    if target.pow2_tiles and any(number != power(number) for _, number in choice.sizes):
        return "sizes are powers of two here"
    if any(number > MAX_TILE_EXTENT for _, number in choice.sizes):
        return f"a size is at most {MAX_TILE_EXTENT}"
    return strategy.refusal(flat, choice)


def cut(flat: FlatGroup, choice: Choice, target: TargetModel) -> Cut:
    """Return the tile axes and loops for a choice."""
    return STRATEGIES[choice.strategy].cut(flat, choice, target)


def _scaled(target: TargetModel, scale: float) -> TargetModel:
    """Scale the tile sizes of a model, and drop its minimum of instances."""

    def size(number: int) -> int:
        return max(1, int(number * scale))

    return target._replace(
        min_instances=1,
        tile_elements=size(target.tile_elements),
        short_row_elements=size(target.short_row_elements),
        min_tile_elements=1,
        loop_elements=size(target.loop_elements),
        column_tile_width=size(target.column_tile_width),
        max_column_tile_width=0,
        row_block_elements=size(target.row_block_elements),
        transpose_tile_side=size(target.transpose_tile_side),
    )


def _height(rows: tuple[Index, ...], width: int, target: TargetModel) -> int:
    """Return how many short rows fill a tile, if enough instances are left."""
    if not rows or width * 2 > target.tile_elements:
        return 1
    height = _tile_extent(rows[-1].extent, target.tile_elements // max(1, width), target)
    count = _count(rows)
    while height > 1 and width * height > target.min_tile_elements and count // height < target.min_instances:
        height = -(-height // 2)
    extent = rows[-1].extent
    if target.pow2_tiles and type(extent) is int:
        while height > MIN_TRIMMED_ROWS and _covered(extent, height) > MAX_WASTE * _covered(extent, height // 2):
            height //= 2
    return height


def _covered(extent: int, tile: int) -> int:
    """Round an extent up to a multiple of a tile.

    >>> _covered(54, 16), _covered(54, 8)
    (64, 56)
    """
    return -(-extent // tile) * tile


def _largest_divisor(extent: Dim, most: int, target: TargetModel) -> int:
    """Return the most rows that divide an axis and leave enough for every worker."""
    if type(extent) is not int:
        return 1
    most = min(most, extent // (target.workers * target.min_parallel_rows))
    return max((n for n in range(1, most + 1) if extent % n == 0), default=1)


def _tile_extent(extent: Dim, most: int, target: TargetModel) -> int:
    """Return the extent of a tile along an axis."""
    if not target.pow2_tiles:
        return at_most(extent, most)
    fitting = 1 << max(0, most.bit_length() - 1)
    return min(power(extent), fitting) if type(extent) is int else fitting


def _count(indices: tuple[Index, ...]) -> int:
    return number_of(product(i.extent for i in indices))


def _cut(*blocks: tuple[Index, int]) -> Cut:
    return Cut(tuple([index for index, _ in blocks]), dict(blocks), {})


def _tall(indices: tuple[Index, ...], height: int, last: tuple[Index, int]) -> Cut:
    """Cut a tile along the last index, and along the one before it if it is higher than 1."""
    return _cut((indices[-2], height), last) if height > 1 else _cut(last)


def _whole(column: Index, target: TargetModel) -> int:
    assert type(column.extent) is int
    return power(column.extent) if target.pow2_tiles else column.extent


def reduces_row_blocks(columns: Sequence[Index], roots: Iterable[Expr], longest: int) -> bool:
    """Whether the first of two columns is looped over while the other, of at most `longest` elements, is one tile."""
    extents = [i.extent if type(i.extent) is int else longest + 1 for i in columns]
    if len(columns) != 2 or max(extents) > longest:
        return False
    sums = [e for e in walk(*roots) if isinstance(e, Reduce) and e.index is columns[0]]
    return any(not isinstance(e.body, Reduce) for e in sums)
