"""Kernels of opaque ops with their grid, and kernels batched over a leading axis.

Parameters of a kernel, in order: the inputs, the output (`out`), and symbolic sizes (int64, `size_n` for n). A kernel
that needs scratch memory enlarges its output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..ir.dtype import int64
from ..ir.graph import TensorType
from ..ir.precision import Precision
from ..ir.program import Tiles as Tiles
from ..ir.size import Dim, Size
from ..ir.tile import Assign, Cast, Dot, Kernel, Literal, Name, ProgramId, Tile, TileParameter
from ..ir.tile_rewrite import rewrite, strings_in


class TileCode(NamedTuple):
    """A kernel with its grid and the sizes passed behind the tensors."""

    kernel: Kernel
    grid: tuple[Tiles, ...]
    sizes: tuple[Dim, ...] = ()


def with_precision(code: TileCode, precision: Precision) -> TileCode:
    """Return a kernel with the precision of its dots raised to a minimum."""
    if precision == "highest":
        return code

    def at(part: Any) -> Any:
        return part.replaced(precision=precision) if isinstance(part, Dot) else None

    return code._replace(kernel=code.kernel.replaced(body=rewrite(code.kernel.body, at)))


def size_parameter(size: str) -> str:
    """Return the parameter name of a symbolic size, which cannot clash with variables."""
    return f"size_{size}"


# --- batched kernels ------------------------------


def repeat_kernel(code: TileCode, types: Sequence[TensorType], mapped: Sequence[bool], entries: Dim) -> TileCode:
    """Batch a kernel over a leading axis.

    `types` are those of its tensors for one entry; `mapped` says which of them have the axis. The entry is the last
    axis of the grid.
    """
    kernel, grid, sizes = code
    taken = strings_in(kernel)
    entry = next(n for k in range(99) if (n := f"entry{k or ''}") not in taken)
    moved: dict[Tile, Tile] = {
        Name(p.name): Name(p.name) + Name(entry) * size_expression(t.count)
        for p, t, has_axis in zip(kernel.parameters, types, mapped, strict=False)
        if has_axis
    }
    body = rewrite(kernel.body, lambda part: moved.get(part) if isinstance(part, Tile) else None)
    names = size_names([entries, *sizes, *(d for t in types for d in t.shape)])
    pointers = [p for p in kernel.parameters if p.pointer]
    made = Kernel(
        f"{kernel.name}_each",
        (*pointers, *(TileParameter(size_parameter(n), int64, pointer=False) for n in names)),
        (Assign(entry, Cast(ProgramId(len(grid)), int64)), *body),
        kernel.origin,
    )
    return TileCode(made, (*grid, Tiles(entries, 1)), tuple(map(Size.named, names)))


def size_names(dims: Sequence[Dim]) -> list[str]:
    return sorted({name for d in dims if isinstance(d, Size) for name in d.names()})


def size_expression(size: Dim) -> Tile:
    """Return a size as an expression of the tile language."""
    if not isinstance(size, Size):
        return Literal(size)
    total: Tile = Literal(0)
    for names, coefficient in size.terms.items():
        term: Tile = Literal(coefficient)
        for name in names:
            term = term * Name(size_parameter(name))
        total = term if total == Literal(0) else total + term
    return total
