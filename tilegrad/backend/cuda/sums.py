"""Match the parts that recognised products and convolutions share: operands, accumulator, epilogue."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import tile as ir
from ...ir.dtype import DType, bfloat16, float16, float32
from ...ir.tile_access import statements
from ...ir.tile_checker import check
from .code.dot_operands import Definitions, Strided, is_zeros

TYPES = (bfloat16, float16, float32)
Terms = dict[ir.Tile, int]
"""A linear combination: coefficients of terms."""


class NotRecognised(Exception):
    """Raised when a kernel computes something else."""


def require(fits: object) -> None:
    if not fits:
        raise NotRecognised


class ProductKernel:
    """A kernel with one product of tiles in perfectly nested loops, and one store after them."""

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
        """Check that the kernel has no other arguments, and overwrites none that it reads."""
        require(self.places[target] not in read and len(self.places) == len(read) + 1)

    def rest(self, axis: int, counted: Terms, extent: int, dtype: DType) -> tuple[int, bool]:
        """Match the epilogue: return the argument with a bias, or -1, and whether a ReLU follows.

        A bias has an element for each of `extent` along an axis (-1 or -2) of a tile; `counted` is its first index.
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
        """Strip names, rounding to the stored dtype, and broadcasting along the other axis."""
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
