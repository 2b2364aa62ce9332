"""Which ways there are to go about a map or rows group, and what each makes of its indices.

map:   along    a tile along memory, of one row or some short ones
       across   a square tile, where memory is read across
rows:  whole    one instance has all elements in one piece
       down     a loop over rows that are there in one piece: adds up across them
       rows     an instance has one row, or a few short ones, in one piece
       beside   rows that lie side by side in memory: a tile has some columns of some of them, in a loop
       loop     a loop along a row, a tile at a time
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ..ir.position import linear
from ..ir.scalar import Expr, Index, Read, Reduce, facts, walk
from ..ir.size import Dim, product
from ..runtime.choice import Choice, chosen, power
from ..runtime.target_model import TargetModel
from .flatten import FlatGroup
from .fuse_partial_sums import sums_across
from .instances import at_most, divides, number_of
from .small_tensors import is_whole


class Cut(NamedTuple):
    """What becomes of the indices of a group."""

    axes: tuple[Index, ...]
    """Those that run along tile axes, in their order."""
    block: dict[Index, int]
    """The extents of the tile axes; indices without one are numbers."""
    looped: dict[Index, int]
    """Columns that are looped over, and how many at a time."""


def usual(flat: FlatGroup, target: TargetModel) -> Choice:
    """What is taken if nobody says anything."""
    return _with_sizes(flat, next(_ways(flat, target)), target)


def candidates(flat: FlatGroup, target: TargetModel) -> list[Choice]:
    """What may be tried, the usual choice first."""
    found = dict.fromkeys([usual(flat, target)])
    for way in _ways(flat, target):
        for part in (0.25, 0.5, 1, 2, 4):
            scaled = target._replace(
                min_instances=1,
                tile_elements=max(1, int(target.tile_elements * part)),
                short_row_elements=max(1, int(target.short_row_elements * part)),
                min_tile_elements=1,
                loop_elements=max(1, int(target.loop_elements * part)),
                column_tile_width=max(1, int(target.column_tile_width * part)),
                max_column_tile_width=0,
                row_block_elements=max(1, int(target.row_block_elements * part)),
                transpose_tile_side=max(1, int(target.transpose_tile_side * part)),
            )
            found[_with_sizes(flat, way, scaled)] = None
        if way == "beside":
            for depth in (
                max(1, target.column_tile_depth // 2),
                target.column_tile_depth * 2,
                target.column_tile_depth * 4,
            ):
                found[_with_sizes(flat, way, target._replace(column_tile_depth=depth))] = None
    return list(found)


def refusal(flat: FlatGroup, choice: Choice, target: TargetModel) -> str:
    """Why a choice, from wherever it came, is none for this group; empty if it is."""
    ways = list(_ways(flat, target))
    if choice.way not in ways:
        return f"the way is one of: {', '.join(ways)}"
    wanted, free = SIZES[choice.way]
    if not set(wanted) <= set(choice.names) <= {*wanted, *free}:
        return f"{choice.way} has the sizes {' '.join(f'{name}=...' for name in wanted + free)}"
    if target.pow2_tiles and any(number != power(number) for _, number in choice.sizes):
        return "sizes are powers of two here"
    if any(number > MOST for _, number in choice.sizes):
        return f"a size is at most {MOST}"
    if choice.way == "down" and not divides(choice.size("height"), flat.columns[0].extent):
        return f"the height divides {flat.columns[0].extent}"
    return ""


WINDOW, NEAR, LEAST_ROW = 16, 4, 8
"""How wide windows are, how far apart, and how many in a row, for rows to be taken side by side."""
PAGE = 4096
"""Bytes after which memory falls on the same places of a first cache again."""
LONG_ROW = 1024
"""Columns from which on a row is a stream of its own."""
LONG_SUM = 256
"""Columns from which on it matters in which pieces memory is gone through."""
NARROWEST, SLICE = 256, 64
"""The fewest rows side by side that are worth an instance; and where there are not as many for all workers."""
FEW_ROWS = 4
"""Of a tile, down to which it gets smaller so that less of it is beyond the last row."""
LEAST_SIDE = 16
"""Of a square tile that is made smaller, so that there are more."""
MOST = 1 << 16
"""The largest extent of a tile."""
SIZES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "along": ((), ("height", "width")),
    "across": (("height", "width"), ()),
    "whole": ((), ()),
    "down": ((), ("height",)),
    "rows": ((), ("height",)),
    "beside": (("depth", "width"), ()),
    "loop": (("width",), ("height",)),
}
"""The sizes that belong to each way, and those that are 1 if they are not there."""


def _ways(flat: FlatGroup, target: TargetModel) -> Iterator[str]:
    """The ways that are open, the usual one first."""
    rows, columns = flat.rows, flat.columns
    if not columns:
        if rows and _crossing(flat, rows, rows[-1], target) is not None:
            yield "across"
        yield "along"
    elif is_whole(rows, columns, target.single_instance_elements):
        yield "whole"
    elif sums_across(columns, flat.roots, target.max_row_elements):
        yield "down"
    else:
        along = _runs_along(flat, columns[-1]) and not _are_windows(flat)
        if not along and _fastest_row(flat, rows) is not None:
            yield "beside"
        if len(columns) == 1 and _in_one_piece(flat, columns[0].extent, target):
            yield "rows"
        yield "loop"
        if along and _fastest_row(flat, rows) is not None:
            yield "beside"


def _in_one_piece(flat: FlatGroup, extent: Dim, target: TargetModel) -> bool:
    """Softmax took a third of the time on rows of 50,257 so, as they stay in the second cache and `exp` is kept."""
    if type(extent) is not int or extent <= target.max_row_elements:
        return type(extent) is int
    rows = sum(isinstance(e, Read | Reduce) for e in walk(*flat.roots)) + len(flat.stores)
    return extent * rows <= target.max_row_footprint


def _with_sizes(flat: FlatGroup, way: str, target: TargetModel) -> Choice:
    """A way with the sizes of tiles that fit a target."""
    rows, columns = flat.rows, flat.columns
    match way:
        case "across":
            crossing = _crossing(flat, rows, rows[-1], target)
            assert crossing is not None
            return _across(flat, rows, crossing, target)
        case "along" if rows:
            return _along(rows, target)
        case "down":
            outer, inner = columns
            return _down(outer, inner, target)
        case "rows":
            width = _piece(columns[0].extent, target.max_row_elements, target)
            along = any(columns[0] in facts(s.offset).indices for s in flat.stores)
            height = _height(
                rows,
                width,
                target._replace(tile_elements=min(target.tile_elements, target.short_row_elements))
                if along
                else target,
            )
            if height == 1 and not along:
                height = _streams(rows, width, target)
            return chosen(way, height=height) if height > 1 else chosen(way)
        case "beside":
            beside = _fastest_row(flat, rows)
            assert beside is not None
            return chosen(
                way,
                depth=_piece(columns[-1].extent, target.column_tile_depth, target),
                width=_beside(flat, beside, target),
            )
        case "loop":
            width = _piece(columns[-1].extent, target.loop_elements, target)
            height = _rows_together(flat, width, target)
            return chosen(way, height=height, width=width) if height > 1 else chosen(way, width=width)
    return chosen(way)


def _rows_together(flat: FlatGroup, width: int, target: TargetModel) -> int:
    """How many rows go through a loop of short pieces together: those that lie behind one another there.

    Sums over (64, 32) for each of 1024 rows took a quarter of the time so: one such piece is a line or two of memory.
    """
    rows, columns = flat.rows, flat.columns
    if (
        target.row_streams == 1
        or not rows
        or len(columns) < 2
        or type(rows[-1].extent) is not int
        or columns[-1].extent != width
    ):
        return 1
    if any(stride(o, rows[-1]) != width for o in _largest(flat)):
        return 1
    most = min(target.column_tile_width // width, rows[-1].extent // (target.workers * target.min_parallel_rows))
    return max((n for n in range(1, most + 1) if rows[-1].extent % n == 0), default=1)


def _streams(rows: tuple[Index, ...], width: int, target: TargetModel) -> int:
    """How many long rows are summed together. A matrix of 4096 x 4096 by a vector took 0.7 of the time with four."""
    if not rows or width < LONG_ROW or type(rows[-1].extent) is not int:
        return 1
    most = min(target.row_streams, rows[-1].extent // (target.workers * target.min_parallel_rows))
    return max((n for n in range(1, most + 1) if rows[-1].extent % n == 0), default=1)


def _across(flat: FlatGroup, rows: tuple[Index, ...], crossing: Index, target: TargetModel) -> Choice:
    count = number_of(product(i.extent for i in rows))
    side = target.transpose_tile_side
    while side > LEAST_SIDE and count // (side * side) < target.min_instances:
        side //= 2
    width = min(side, _lines(flat, rows[-1], crossing, target)) if target.cache_associativity else side
    return chosen("across", height=_piece(crossing.extent, side, target), width=_piece(rows[-1].extent, width, target))


def _lines(flat: FlatGroup, inner: Index, crossing: Index, target: TargetModel) -> int:
    """How many rows of what is read across a cache has room for: those a power of two apart fall on each other.

    With 8 of them at a time, 2048 x 2048 numbers were turned in 0.42 of the time that 32 took, 512 x 512 in 0.33; with
    vectors of 16 numbers, squares of them took 0.35 of the time of 8 by 32.
    """
    reads = [e for e in walk(*flat.roots) if isinstance(e, Read) and stride(e.position[0], crossing) == 1]
    strides = [(stride(e.position[0], inner) or 0) * e.dtype.bytes for e in reads]
    fewest = max(
        target.cache_associativity, target.matmul.micro_columns
    )  # squares of vectors take lines whole, and ask for none again
    return min(
        [fewest * (PAGE // math.gcd(stride, PAGE)) for stride in strides if stride], default=target.transpose_tile_side
    )


def _along(rows: tuple[Index, ...], target: TargetModel) -> Choice:
    count = number_of(product(i.extent for i in rows))
    tile = max(
        min(target.min_tile_elements, target.tile_elements),
        min(target.tile_elements, power(-(-count // target.min_instances))),
    )
    target = target._replace(tile_elements=tile)
    width = _piece(rows[-1].extent, tile, target)
    height = _height(rows[:-1], width, target)
    return chosen("along", height=height, width=width) if height > 1 else chosen("along", width=width)


def _height(rows: tuple[Index, ...], width: int, target: TargetModel) -> int:
    """How many short rows an instance takes: as many as fill a tile, if enough instances are left."""
    if not rows or width * 2 > target.tile_elements:
        return 1
    height = _piece(rows[-1].extent, target.tile_elements // max(1, width), target)
    count = number_of(product(i.extent for i in rows))
    while height > 1 and width * height > target.min_tile_elements and count // height < target.min_instances:
        height = -(-height // 2)
    if target.pow2_tiles and type(rows[-1].extent) is int:
        while height > FEW_ROWS and _covered(rows[-1].extent, height) > 1.1 * _covered(rows[-1].extent, height // 2):
            height //= 2
    return height


def _covered(extent: int, piece: int) -> int:
    """How far tiles reach that cover an axis.

    >>> _covered(54, 16), _covered(54, 8)
    (64, 56)
    """
    return -(-extent // piece) * piece


def _beside(flat: FlatGroup, beside: Index, target: TargetModel) -> int:
    """How many rows side by side an instance has.

    Memory is gone through faster in long pieces: a core took 0.75 of the time with 1024 rows at a time or more, and
    1.25 with 256, of what it took with 512; but all are to have some, and what sticks out is slow.
    """
    usual = _piece(beside.extent, target.column_tile_width, target)
    count = number_of(product(i.extent for i in flat.columns))
    extent = beside.extent
    if type(extent) is not int or count < LONG_SUM:
        return usual
    sums = sum(isinstance(e, Reduce) and e.index is flat.columns[0] for e in walk(*flat.roots))
    others = number_of(product(i.extent for i in flat.rows if i is not beside))
    even = [extent // n for n in range(1, extent // SLICE + 1) if extent % n == 0]
    even = [width for width in even if width >= NARROWEST or _is_slice(width, others * extent, target)]
    fitting = [width for width in even if width * sums <= target.max_column_tile_width]
    return min(fitting, key=lambda w: -(-others * (extent // w) // target.workers) * (w + NARROWEST), default=usual)


def _is_slice(width: int, extent: int, target: TargetModel) -> bool:
    """Whether fewer rows side by side than usual are an instance: all workers have some so, in whole vectors.

    Sums across 2048 x 384, 4096 x 128 or 512 x 384 numbers took 0.53 to 0.58 of the time with two instances, not one.
    """
    return extent < target.workers * NARROWEST and width % target.matmul.micro_columns == 0


def _down(outer: Index, inner: Index, target: TargetModel) -> Choice:
    """Rows of 64 to 1024 elements took 1.2 to 1.6 times as long in tiles of several as one by one on a CPU."""
    most = target.row_block_elements // _piece(inner.extent, target.max_row_elements, target)
    fitting = (n for n in range(1, most + 1) if outer.extent % n == 0 and (not target.pow2_tiles or n == power(n)))
    height = max(fitting, default=1)
    return chosen("down", height=height) if height > 1 else chosen("down")


def _piece(extent: Dim, most: int, target: TargetModel) -> int:
    """The extent of a tile along an axis."""
    if not target.pow2_tiles:
        return at_most(extent, most)
    fitting = 1 << max(0, most.bit_length() - 1)
    return min(power(extent), fitting) if type(extent) is int else fitting


def cut(flat: FlatGroup, choice: Choice, target: TargetModel) -> Cut:
    """What a choice makes of the indices of a group."""
    rows, columns = flat.rows, flat.columns
    whole = {i: _whole(i, target) for i in columns if type(i.extent) is int}
    match choice.way:
        case "along" if not rows:
            return Cut((), {}, {})
        case "across":
            crossing = _crossing(flat, rows, rows[-1], target)
            assert crossing is not None
            return _cut((crossing, choice.size("height")), (rows[-1], choice.size("width")))
        case "along":
            return _tall(rows, choice.size("height"), (rows[-1], choice.size("width")))
        case "whole":
            return Cut(columns, whole, {})
        case "down":
            outer, inner = columns
            height = choice.size("height")
            made = _tall((outer, inner), height, (inner, whole[inner]))
            return made._replace(looped={outer: height})
        case "rows":
            (column,) = columns
            return _tall((*rows, column), choice.size("height"), (column, whole[column]))
        case "beside":
            beside = _fastest_row(flat, rows)
            assert beside is not None
            depth, inner = choice.size("depth"), columns[-1]
            made = _cut((inner, depth), (beside, choice.size("width")))
            looped = dict.fromkeys(columns[:-1], 1)
            if inner.extent == depth:
                return made._replace(looped=looped)
            return made._replace(looped=looped | {inner: depth})
        case "loop":
            width = choice.size("width")
            made = _tall((*rows, columns[-1]), choice.size("height"), (columns[-1], width))
            return made._replace(looped=dict.fromkeys(columns[:-1], 1) | {columns[-1]: width})
    raise AssertionError(f"{choice} is no way to go about a group")


def _cut(*blocks: tuple[Index, int]) -> Cut:
    return Cut(tuple([index for index, _ in blocks]), dict(blocks), {})


def _tall(indices: tuple[Index, ...], height: int, last: tuple[Index, int]) -> Cut:
    """A tile along the last index, and of some of the one before it."""
    return _cut((indices[-2], height), last) if height > 1 else _cut(last)


def _whole(column: Index, target: TargetModel) -> int:
    assert type(column.extent) is int
    return power(column.extent) if target.pow2_tiles else column.extent


def _offsets(flat: FlatGroup) -> list[Expr]:
    return [e.position[0] for e in walk(*flat.roots) if isinstance(e, Read)] + [s.offset for s in flat.stores]


def _largest(flat: FlatGroup) -> list[Expr]:
    """The offsets that run over the most elements: the traffic that decides."""
    offsets = _offsets(flat)
    counts = [_count(o) for o in offsets]
    return [o for o, n in zip(offsets, counts, strict=True) if n == max(counts)]


def _count(offset: Expr) -> int:
    """Over how many elements it runs."""
    return math.prod(number_of(i.extent) for i in facts(offset).indices)


def stride(offset: Expr, index: Index) -> int | None:
    """By how much an offset grows with an index, if it does so evenly."""
    total = linear(offset)
    if any(index in walk(f) and f is not index for product in total for f in product):
        return None
    return sum(c if product == (index,) else 1 << 40 for product, c in total.items() if index in product)


def _runs_along(flat: FlatGroup, column: Index) -> bool:
    """Whether the largest reads go through memory along the column."""
    strides = [stride(o, column) for o in _largest(flat)]
    along = sum(s in (1, -1) for s in strides)
    across = sum(s is not None and abs(s) > 1 for s in strides)
    return along > 0 and along >= across or across == 0


def _fastest_row(flat: FlatGroup, rows: tuple[Index, ...]) -> Index | None:
    offsets = _largest(flat)
    best = max(rows, key=lambda r: sum(stride(o, r) == 1 for o in offsets), default=None)
    if best is not None and any(stride(o, best) == 1 for o in offsets):
        return best
    return rows[-1] if _are_windows(flat) else None


def _are_windows(flat: FlatGroup) -> bool:
    """Whether rows are summed over windows: a few elements here and there, for neighbours in the result a little on."""
    inner = flat.columns[-1]
    if not flat.rows or len(flat.columns) < 2 or type(inner.extent) is not int or inner.extent > WINDOW:
        return False
    row = flat.rows[-1]
    near = [stride(o, row) for o in _largest(flat)]
    return number_of(row.extent) >= LEAST_ROW and all(s is not None and 0 < s <= NEAR for s in near)


def _crossing(flat: FlatGroup, rows: tuple[Index, ...], inner: Index, target: TargetModel) -> Index | None:
    """Another row index along which some read goes through memory, where the inner one jumps: the largest such read."""
    for offset in sorted(_offsets(flat), key=_count, reverse=True):
        step = stride(offset, inner)
        if step > 8 if step is not None else target.tiled_gathers and _is_looked_up(offset, inner):
            for row in rows:
                if row is not inner and stride(offset, row) == 1 and number_of(row.extent) >= 8:
                    return row
    return None


def _is_looked_up(offset: Expr, index: Index) -> bool:
    """Whether it is memory that says where elements are, for each value of an index."""
    return any(isinstance(e, Read) and index in facts(e).indices for e in walk(offset))
