"""Make what kernels of every kind share: program ids over rows, names, parameters and the grid."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import tile
from ..ir.dtype import int32, int64
from ..ir.graph import Value
from ..ir.node import Node
from ..ir.program import MAX_INSTANCES, Tiles
from ..ir.scalar import Index, Read, size
from ..ir.size import Dim, Size
from ..ir.tile import Assign, Kernel, Literal, ProgramId, Tile, TileParameter
from .contraction_facts import described
from .emit import Emitter
from .flatten import FlatGroup
from .group import Group


class Lowered(Node):
    """A kernel with its arguments; a value represents the buffer that holds it."""

    kernel: Kernel
    arguments: tuple[Value | Dim, ...]
    grid: tuple[Tiles, ...]
    work: float
    """Estimated operations of one instance."""


def declare_programs(
    emitter: Emitter, rows: tuple[Index, ...], block: Mapping[Index, int], overlapping: bool = False
) -> tuple[Tiles, ...]:
    """Compute each row index from the program ids; the last index is the fastest.

    The last tile of an axis overhangs it, or overlaps the one before it if `overlapping`.
    """
    last_first = list(reversed(rows))
    order = sorted(last_first, key=lambda i: i not in block)  # tiles are along the first two axes of the grid
    grid = [Tiles(i.extent, block.get(i, 1)) for i in order[:2]]
    rest = order[2:]
    outer: Dim = 1
    for i in rest:
        outer = outer * _tiles(i.extent, block.get(i, 1))
    if rest:
        grid.append(Tiles(outer, 1))
    places = _places(grid)
    for number, index in enumerate(order[:2]):
        single = grid[number].extent == grid[number].tile
        _declare(emitter, index, ProgramId(places.index(number)), block, single, overlapping)
    if rest:
        program = ProgramId(places.index(2))
        left: Tile = emitter.assign("outer", program) if len(rest) > 1 else program
        for n, index in enumerate(rest):
            count = _tiles(index.extent, block.get(index, 1))
            last = n == len(rest) - 1
            here = left if last else tile.Apply("mod", (left, extent_of(emitter, count)))
            _declare(emitter, index, here, block, single=False)
            if not last:
                left = emitter.assign("outer", tile.Apply("floordiv", (left, extent_of(emitter, count))))
    return tuple([grid[number] for number in places]) or (Tiles(1, 1),)


def _places(grid: list[Tiles]) -> list[int]:
    """Order the axes of the grid: only the first has room for any number of instances."""
    places = list(range(len(grid)))
    counts = [-(-part.extent // part.tile) if isinstance(part.extent, int) else 1 for part in grid]
    if any(count > most for count, most in zip(counts, MAX_INSTANCES, strict=False)):
        places.insert(0, places.pop(counts.index(max(counts))))
    return places


def _tiles(extent: Dim, block: int) -> Dim:
    if isinstance(extent, Size):
        assert block == 1, "an outer axis that varies is not tiled"
        return extent
    return -(-extent // block)


def _declare(
    emitter: Emitter,
    index: Index,
    program: Tile,
    block: Mapping[Index, int],
    single: bool,
    overlapping: bool = False,
) -> None:
    width = block.get(index)
    stem = "row" if index not in emitter.axes else "i"
    name = emitter.fresh(stem)
    if not fits(width or 1, index.extent):
        program = tile.Cast(program, int64)
        emitter.long.add(name)
    value = program if width is None else _lanes(emitter, index, program, width, single, overlapping)
    emitter.body.append(Assign(name, value))
    emitter.variables[index] = name


def _lanes(emitter: Emitter, index: Index, program: Tile, width: int, single: bool, overlapping: bool) -> Tile:
    """Return the elements of an index in a tile; the last tile has a border, or overlaps the one before."""
    extent, lanes = index.extent, tile.Arange(0, width)
    aligned = divides(width, extent)
    shifted = overlapping and isinstance(extent, int) and not aligned
    if not aligned and not shifted:
        emitter.bound[index] = extent
    if single:
        return lanes
    start = tile.Apply("mul", (program, Literal(width))) if width > 1 else program
    if shifted:
        assert isinstance(extent, int)
        emitter.begins[index] = start
        start = tile.Apply("minimum", (start, Literal(extent - width)))
    return tile.Apply("add", (start, lanes))


def extent_of(emitter: Emitter, extent: Dim) -> Tile:
    """Emit an extent: a dynamic size is a parameter."""
    if isinstance(extent, Size):
        return emitter.emit(size(extent))[0]
    return Literal(extent)


def divides(block: int, extent: Dim) -> bool:
    """Whether blocks never overhang the axis."""
    return type(extent) is int and extent % block == 0


def fits(block: int, extent: Dim) -> bool:
    """Whether int32 holds all positions in whole blocks; dynamic sizes are below that.

    >>> fits(1024, 2**31 - 1), fits(1000, 2**31 - 1)
    (True, False)
    """
    return type(extent) is not int or -(-extent // block) * block <= int32.max + 1


def at_most(extent: Dim, most: int) -> int:
    """Clamp an extent; a dynamic one counts as long."""
    return min(extent, most) if type(extent) is int else most


def number_of(extent: Dim) -> int:
    """Estimate an extent as a number."""
    return extent if type(extent) is int else 64


def kernel_names(flat: FlatGroup, names: Mapping[Value, str]) -> dict[Value, str]:
    """Name the tensors of a kernel: reads in the order in which they occur, then stores."""
    found: dict[Value, str] = {}
    known: dict[str, str] = {}
    taken: set[str] = {"tl", "tg"}
    reads = [e.source for e in flat.expressions if isinstance(e, Read)]
    for value in [*reads, *(s.value for s in flat.stores)]:
        if names.get(value) in known:
            found[value] = known[names[value]]  # written over what was read
        elif value not in found:
            stem = "".join(c if c.isalnum() else "_" for c in names.get(value, "x"))
            name, n = stem, 1
            while name in taken or not name.isidentifier():
                n += 1
                name = f"{stem}_{n}" if stem[:1].isalpha() else f"x{stem}_{n}"
            taken.add(name)
            found[value] = known[names.get(value, name)] = name
    return found


def finished(
    group: Group, flat: FlatGroup, emitter: Emitter, names: dict[Value, str], grid: tuple[Tiles, ...], work: float
) -> Lowered:
    """Make the kernel from its body, with the parameters that the body needs."""
    body = tuple(emitter.body)
    dtypes = {name: value.dtype for value, name in names.items()}
    parameters = [TileParameter(name, dtype) for name, dtype in dtypes.items()]
    symbols = sorted(emitter.symbols)
    parameters += [TileParameter(s, int64, False) for s in symbols]
    arguments: tuple[Value | Dim, ...] = (*names, *(Size.named(s) for s in symbols))
    lines = {str(m.value.location): None for m in group.members if m.value.location}
    title = "_".join(dict.fromkeys(s.value.op for s in flat.stores))[:48]
    kernel = Kernel(title, tuple(parameters), body, ", ".join(lines), described(flat, names))
    return Lowered(kernel, arguments, grid, work)
