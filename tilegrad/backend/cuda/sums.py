"""Kernels that are one sum of products, and what is done with it: what `products` and `convolutions` read alike."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import tile as ir
from ...ir.dtype import DType, bfloat16, float16, float32
from ...ir.tile_access import statements
from ...ir.tile_checker import check
from .code.dot_operands import Definitions, Strided, is_zeros

TYPES = (bfloat16, float16, float32)
Terms = dict[ir.Tile, int]
"""A sum of terms, each times a number."""


class NotRecognised(Exception):
    """The kernel is something else."""


def require(fits: object) -> None:
    if not fits:
        raise NotRecognised


class ProductKernel:
    """A kernel with one product of tiles, in `loops` of which each is in the one before, and one store behind them."""

    def __init__(self, kernel: ir.Kernel, extents: Sequence[int]) -> None:
        every = list(statements(kernel.body))
        require(all(isinstance(s, ir.Assign | ir.For | ir.Store) for s in every))
        dots = [s for s in every if isinstance(s, ir.Assign) and isinstance(s.value, ir.Dot)]
        stores = [s for s in every if isinstance(s, ir.Store)]
        self.loops = [s for s in every if isinstance(s, ir.For)]
        require(len(dots) == len(stores) == 1 and stores[0] in kernel.body)
        nest = [kernel.body, *(loop.body for loop in self.loops)]
        require(all(inner in outer for outer, inner in zip(nest, self.loops, strict=False)) and dots[0] in nest[-1])
        dot = dots[0].value
        assert isinstance(dot, ir.Dot)
        self.sums, self.dot, self.store = dots[0].name, dot, stores[0]
        starts = [s for s in every if isinstance(s, ir.Assign) and s.name == self.sums and s is not dots[0]]
        require(len(starts) == 1 and is_zeros(starts[0].value) and starts[0] in kernel.body)
        require(self.dot.accumulator == ir.Name(self.sums))
        self.definitions = Definitions(kernel, check(kernel))
        self.places = {p.name: n for n, p in enumerate(kernel.parameters)}
        self.extents = (*extents, 1, 1, 1)[:3]

    def operand(self, x: ir.Tile) -> Strided:
        memory = self.definitions.strided(x)
        require(memory is not None and memory.dtype in TYPES)
        assert memory is not None
        return memory

    def check_places(self, read: set[int], target: str) -> None:
        """Every argument of the kernel is one of those, and none that is read is written."""
        require(self.places[target] not in read and len(self.places) == len(read) + 1)

    def rest(self, axis: int, counted: Terms, extent: int, dtype: DType) -> tuple[int, bool]:
        """The argument with a bias, or -1, and whether what is negative becomes 0: what is done with the sums.

        A bias has an element for each of `extent` along an axis (-1 or -2) of a tile; `counted` is where that begins.
        """
        value, relu, bias = self._plain(self.store.value, axis, dtype), False, -1
        match value:
            case ir.Apply("maximum", (y, ir.Literal(zero))) | ir.Apply("maximum", (ir.Literal(zero), y)) if zero == 0:
                value, relu = self._plain(y, axis, dtype), True
        match value:
            case ir.Apply("add", (y, z)):
                parts = [self._plain(part, axis, dtype) for part in (y, z)]
                added = parts[0] if parts[1] == ir.Name(self.sums) else parts[1]
                value = parts[1] if added is parts[0] else parts[0]
                bias = self._bias(added, axis, counted, extent, dtype)
        require(value == ir.Name(self.sums))
        return bias, relu

    def _plain(self, x: ir.Tile, axis: int, dtype: DType) -> ir.Tile:
        """Without names, without rounding to what is stored in the end, and without the other axis, of extent 1."""
        while True:
            x = self.definitions.resolved(x)
            match x:
                case ir.Cast(y, to) if to in (dtype, float32):
                    x = y
                case ir.Expand(y, (other,)) if other == (0 if axis == -1 else 1):
                    x = y
                case _:
                    return x

    def _bias(self, x: ir.Tile, axis: int, counted: Terms, extent: int, dtype: DType) -> int:
        definitions = self.definitions
        columns = definitions.types.of(self.store.pointer).shape[axis]
        require(isinstance(x, ir.Load) and definitions.types.of(x).shape == (columns,))
        assert isinstance(x, ir.Load)
        parameter = definitions.parameter(x.pointer)
        require(parameter is not None and definitions.types.of(x).dtype is dtype)
        require(definitions.step(x.pointer, -1) == 1 and definitions.linear_form(x.pointer) == counted)
        for index, bound in definitions.comparisons(x.mask) if x.mask is not None else ():
            require(bound >= extent and definitions.step(index, -1) == 1 and definitions.linear_form(index) == counted)
        return self.places[str(parameter)]
