"""Kernels of opaque ops: Python functions in the tile language, specialised for types and constants."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ..ir import dtype
from ..ir.dtype import DType
from ..ir.graph import TensorType
from ..ir.size import Size
from ..ir.tile import Apply, Cast, Kernel, Literal, Name, Tile, TileParameter
from ..ir.tile_expressions import BINARY, COMPARISONS
from ..ir.tile_types import TileType
from ..tiles.read.arithmetic import apply, promoted_dtype
from ..tiles.read.builtin import builtin
from ..tiles.read.reader import KernelReader
from ..tiles.read.scope import TileFunction
from ..tiles.read.values import SymbolicTile
from ..tiles.read.writer import TileWriter
from .tile_code import TileCode, Tiles, size_expression, size_names, size_parameter

MAX_SPECIALISATIONS = 256
"""Kernels of one function that are kept, by types and constants."""


class OpKernel(TileFunction):
    """A kernel of an opaque op: a Python function of pointers and constants in the tile language.

    Its parameters are the inputs, `out`, and constants (annotated `tl.constexpr`). Its source is read when a kernel is
    first compiled. In it `//` and `%` round towards minus infinity, as in the IR.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self.specialise = lru_cache(MAX_SPECIALISATIONS)(self._specialise)

    def code(
        self, inputs: Mapping[str, TensorType], output: TensorType, grid: tuple[Tiles, ...], **constants: Any
    ) -> TileCode:
        """Specialise the kernel for types and constants; a constant may be a size that varies."""
        names = tuple(size_names([d for t in inputs.values() for d in t.shape]))
        pointers = tuple([(n, t.dtype) for n, t in inputs.items()])
        kernel = self.specialise((*pointers, ("out", output.dtype)), names, tuple(constants.items()))
        return TileCode(kernel, grid, tuple(map(Size.named, names)))

    def _specialise(
        self, pointers: tuple[tuple[str, DType], ...], sizes: tuple[str, ...], constants: tuple[tuple[str, Any], ...]
    ) -> Kernel:
        """Read the function for these dtypes, names of sizes and constants."""
        values: dict[str, Any] = {n: symbolic_size(x) for n, x in constants}
        values |= {n: SymbolicTile(Name(n), TileType(d, (), True)) for n, d in pointers}
        parameters = [TileParameter(n, d) for n, d in pointers]
        parameters += [TileParameter(size_parameter(n), dtype.int64, pointer=False) for n in sizes]
        reader = OpKernelReader(tuple(parameters))
        return reader.read_whole(self, values, tuple(parameters)).kernel.replaced(origin="")  # type: ignore[no-any-return]


def symbolic_size(x: Any) -> Any:
    """Return a size that varies as an expression of parameters; other constants unchanged."""
    if isinstance(x, tuple):
        return tuple(map(symbolic_size, x))
    return SymbolicTile(size_expression(x), TileType(dtype.int64)) if isinstance(x, Size) else x


class OpKernelReader(KernelReader):
    """Reads kernels of ops: `//` and `%` round down, and operations on integers of two widths promote in the IR."""

    def operation(self, op: ast.operator, x: Any, y: Any) -> Any:
        rounds = isinstance(op, ast.FloorDiv | ast.Mod) and (isinstance(x, SymbolicTile) or isinstance(y, SymbolicTile))
        if _are_integers(x, y) or (rounds and y != 1):
            return self.make(Apply(BINARY[type(op)], (_tile(x), _tile(y))))
        return super().operation(op, x, y)

    def compared(self, op: ast.cmpop, x: Any, y: Any) -> Any:
        if _are_integers(x, y) and type(op) in COMPARISONS:
            return self.make(Apply(COMPARISONS[type(op)], (x.tile, y.tile)))
        return super().compared(op, x, y)


def _are_integers(x: Any, y: Any) -> bool:
    return all(isinstance(z, SymbolicTile) and z.type.dtype.is_integer and not z.type.pointer for z in (x, y))


def _tile(x: Any) -> Tile:
    return x.tile if isinstance(x, SymbolicTile) else Literal(x)


@builtin
def int64(w: TileWriter, x: Any) -> SymbolicTile:
    """Convert a number or tile to an int64 tile; `tl.int64` of a number is the number."""
    return w.cast(x, dtype.int64) if isinstance(x, SymbolicTile) else w.make(Cast(Literal(x), dtype.int64))


@builtin
def remainder(w: TileWriter, x: Any, y: Any) -> SymbolicTile:
    """Return the remainder of a division towards zero."""
    return apply(w, "fmod", promoted_dtype(x, y), x, y)
