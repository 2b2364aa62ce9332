"""Kernels of opaque ops: Python functions in the tile language, specialised for types and constants."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from typing import Any

from ..ir import dtype
from ..ir.dtype import DType
from ..ir.graph import TensorType
from ..ir.node import Node
from ..ir.size import Size
from ..ir.tile import Apply, Cast, ExpandDims, Kernel, Literal, Name, Tile, TileParameter
from ..ir.tile_expressions import BINARY, COMPARISONS
from ..ir.tile_types import TileType
from ..tiles.read.arithmetic import apply, promoted_dtype
from ..tiles.read.builtin import builtin
from ..tiles.read.memory import load
from ..tiles.read.reader import KernelReader
from ..tiles.read.scope import TileFunction
from ..tiles.read.values import Operand, SymbolicTile, map_leaves, value_leaves
from ..tiles.read.writer import TileWriter
from .tile_code import TileCode, Tiles, size_expression, size_names, size_parameter

MAX_SPECIALISATIONS = 256
"""Kernels of one function that are kept, by types and constants."""


class OpKernel(TileFunction):
    """A kernel of an opaque op: a Python function of pointers and constants in the tile language.

    Its parameters are the inputs, `out`, and constants (in capitals), which may be sizes that vary, tuples, and nodes
    with these. Its source is read when a kernel is first compiled.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self.specialise = lru_cache(MAX_SPECIALISATIONS)(self._specialise)

    def code(
        self,
        inputs: Mapping[str, TensorType | tuple[TensorType, ...] | None],
        output: TensorType,
        grid: tuple[Tiles, ...],
        **constants: Any,
    ) -> TileCode:
        """Specialise the kernel for types and constants; a constant may be a size that varies.

        Several inputs may be one tuple; an input may be None. Constants that are words are appended to the kernel's
        name.
        """
        parts = [given if isinstance(given, tuple) else (given,) for given in inputs.values()]
        types = [t for part in parts for t in part if t is not None]
        names = tuple(size_names([d for t in types for d in t.shape]))
        kernel = self.specialise(tuple(inputs.items()), output.dtype, names, tuple(constants.items()))
        return TileCode(kernel, grid, tuple(map(Size.named, names)))

    def _specialise(
        self,
        inputs: tuple[tuple[str, TensorType | tuple[TensorType, ...] | None], ...],
        output: DType,
        sizes: tuple[str, ...],
        constants: tuple[tuple[str, Any], ...],
    ) -> Kernel:
        """Read the function for these types, names of sizes and constants."""
        values: dict[str, Any] = {n: symbolic_size(x) for n, x in constants}
        parameters: list[TileParameter] = []

        def pointer(name: str, element: DType) -> SymbolicTile:
            parameters.append(TileParameter(name, element))
            return SymbolicTile(Name(name), TileType(element, (), True))

        for name, given in inputs:
            if isinstance(given, tuple):
                values[name] = tuple([pointer(f"{name}{n}", t.dtype) for n, t in enumerate(given)])
            else:
                values[name] = None if given is None else pointer(name, given.dtype)
        values["out"] = pointer("out", output)
        parameters += [TileParameter(size_parameter(n), dtype.int64, pointer=False) for n in sizes]
        kernel = OpKernelReader(tuple(parameters)).read_whole(self, values, tuple(parameters)).kernel
        words = [x for _, x in constants if isinstance(x, str) and x]
        return kernel.replaced(name="_".join([kernel.name, *words]), origin="")  # type: ignore[no-any-return]


def symbolic_size(x: Any) -> Any:
    """Return a size that varies as an expression of parameters; other constants unchanged."""
    if isinstance(x, tuple):
        return tuple(map(symbolic_size, x))
    return SymbolicTile(size_expression(x), TileType(dtype.int64)) if isinstance(x, Size) else x


class OpKernelReader(KernelReader):
    """Reads kernels of ops as they are written.

    A name that gets a new value stays one variable, so that accumulators are updated in place. `//` and `%` round down,
    and operations on integers of two widths promote in the IR. List comprehensions make tuples.
    """

    hint = "part"
    """Name for the parts of a tuple."""

    def statement(self, node: ast.stmt) -> bool | None:
        before = self.hint
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                self.hint = name
        try:
            return super().statement(node)
        finally:
            self.hint = before

    def expression(self, node: ast.expr) -> Any:
        if not isinstance(node, ast.ListComp):
            return super().expression(node)
        (loop,) = node.generators
        found = []
        for x in self.value(loop.iter):
            self.bind(loop.target, x)
            found.append(map_leaves(self.value(node.elt), lambda y: self.held(y, self.hint)))
        return tuple(found)

    def finish(self, node: ast.Return) -> None:
        if self.frame.source.tree.body == [node] and node.value is not None:
            self.frame.names["return"] = self.value(
                node.value
            )  # a function of one expression is put where it is called
        else:
            super().finish(node)

    def attribute(self, whole: Any, name: str) -> Any:
        return symbolic_size(getattr(whole, name)) if isinstance(whole, Node) else super().attribute(whole, name)

    def operation(self, op: ast.operator, x: Any, y: Any) -> Any:
        rounds = isinstance(op, ast.FloorDiv | ast.Mod) and (isinstance(x, SymbolicTile) or isinstance(y, SymbolicTile))
        if _are_integers(x, y) or (rounds and (y != 1 or isinstance(op, ast.Mod))):
            return self.make(Apply(BINARY[type(op)], (_tile(x), _tile(y))))
        return super().operation(op, x, y)

    def compared(self, op: ast.cmpop, x: Any, y: Any) -> Any:
        if _are_integers(x, y) and type(op) in COMPARISONS:
            return self.make(Apply(COMPARISONS[type(op)], (x.tile, y.tile)))
        return super().compared(op, x, y)

    def is_variable(self, name: str, value: Any) -> bool:
        mine, leaves = self.frame.mine.get(name, ()), value_leaves(value)
        tiles = [x.tile if isinstance(x, SymbolicTile) else None for x in leaves]
        return bool(tiles) and all(isinstance(x, Name) and x.name in mine for x in tiles)

    def store_leaf(self, name: str, x: Operand) -> Operand:
        if isinstance(x, SymbolicTile) and isinstance(x.tile, Name):
            if not any(x.tile.name in variables for variables in self.frame.mine.values()):
                return x  # nothing assigns it again
        return super().store_leaf(name, x)


def _are_integers(x: Any, y: Any) -> bool:
    return all(isinstance(z, SymbolicTile) and z.type.dtype.is_integer and not z.type.pointer for z in (x, y))


def _tile(x: Any) -> Tile:
    return x.tile if isinstance(x, SymbolicTile) else Literal(x)


# --- functions of kernels ----------------------------------------------------------


@builtin
def int64(w: TileWriter, x: Any) -> SymbolicTile:
    """Convert a number or tile to an int64 tile; `tl.int64` of a number is the number."""
    return w.cast(x, dtype.int64) if isinstance(x, SymbolicTile) else w.make(Cast(Literal(x), dtype.int64))


@builtin
def remainder(w: TileWriter, x: Any, y: Any) -> SymbolicTile:
    """Return the remainder of a division towards zero."""
    return apply(w, "fmod", promoted_dtype(x, y), x, y)


@builtin
def check_index(w: TileWriter, index: Any, extent: Any, check: int) -> SymbolicTile:
    """Return an index; if it is out of range, the error of a check is reported."""
    return w.make(Apply("inside", (index.tile, extent.tile, Literal(check))))


@builtin
def load_masked(w: TileWriter, pointer: Any, mask: Any, other: float | None = 0.0) -> SymbolicTile:
    """Load under a mask; None: everywhere."""
    return load.run(w, (pointer,) if mask is None else (pointer, mask, other), {})  # type: ignore[no-any-return]


@builtin
def below(w: OpKernelReader, lanes: Any, count: int, axis: int | None = None) -> SymbolicTile | None:
    """Return the mask of numbers below a count, with a new axis; None if the count fills all instances."""
    if count % lanes.shape[0] == 0:
        return None
    mask: SymbolicTile = w.compared(ast.Lt(), lanes, count)
    return mask if axis is None else w.make(ExpandDims(mask.tile, (axis,)))


@builtin
def unravel(w: OpKernelReader, flat: Any, shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the position in a shape from a row-major number."""
    position: list[Any] = []
    for size in reversed(shape[1:]):
        position.append(w.operation(ast.Mod(), flat, size))
        flat = w.operation(ast.FloorDiv(), flat, size)
    return (flat, *reversed(position)) if shape else ()


@builtin
def flat_offset(w: OpKernelReader, position: tuple[Any, ...], strides: tuple[Any, ...], zero: Any) -> Any:
    """Return an offset, the sum of positions times strides, or `zero` if all strides are 0."""
    return _sum(w, [w.operation(ast.Mult(), x, n) for x, n in zip(position, strides, strict=True) if n != 0]) or zero


@builtin
def weighted_sum(w: OpKernelReader, factors: tuple[float, ...], terms: tuple[Any, ...]) -> Any:
    """Return the sum of terms with constant factors."""
    pairs = [(x, f) for f, x in zip(factors, terms, strict=True) if f]
    return _sum(w, [x if f == 1 else w.operation(ast.Mult(), x, f) for x, f in pairs])


@builtin
def combine(w: TileWriter, fn: str, x: SymbolicTile, y: SymbolicTile) -> SymbolicTile:
    """Return `fn` of two tiles of one type: add, mul, maximum or minimum."""
    return w.make(Apply(fn, (x.tile, y.tile)))


@builtin
def sum_of(w: OpKernelReader, terms: tuple[Any, ...]) -> Any:
    """Return the sum of tiles."""
    return _sum(w, list(terms))


def _sum(w: OpKernelReader, terms: list[Any]) -> Any:
    return reduce(lambda x, y: w.operation(ast.Add(), x, y), terms) if terms else None
