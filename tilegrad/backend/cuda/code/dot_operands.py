"""Find operands of products that are strided tiles of memory, with the bounds that masks give them.

An operand loaded unchanged with constant strides can be copied to shared memory asynchronously; the divisor of its
first address gives the size of the copies. Steps, divisors and sums come from `tiles/affine.py`.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType
from ....ir.tile_types import Types
from ....tiles.affine import Affine, Sum, add_sums, memoised, once_assigned


class Bound(NamedTuple):
    """A mask condition: elements are read where `index < extent`."""

    at: ir.Tile
    extent: int


class Strided(NamedTuple):
    """A strided tile of memory: element (r, c) is at the first element's address plus r * steps[0] + c * steps[1]
    elements.
    """

    pointer: ir.Tile
    parameter: str
    dtype: DType
    shape: tuple[int, int]
    steps: tuple[int, int]
    bounds: tuple[Bound | None, Bound | None] = (None, None)
    """Bound along each axis, beyond which elements are 0."""
    placed: bool = True
    """Whether the compared indices are the line and the position in it; if not, the matrix begins at the remaining
    offset behind its parameter.
    """

    @property
    def along(self) -> int:
        """The contiguous axis."""
        return 1 if self.steps[1] == 1 else 0

    @property
    def pitch(self) -> int:
        """Elements from one line to the next."""
        return self.steps[1 - self.along]


class OperandAnalysis(Affine):
    """Analyses the operands of the products of a kernel; all names that are assigned once are known."""

    def __init__(self, kernel: ir.Kernel, types: Types, capability: int = 0) -> None:
        super().__init__(types, *once_assigned(kernel))
        self.capability = capability
        """Compute capability of the GPU, 80 for sm_80."""
        self.parameters = {p.name: p for p in kernel.parameters}

    @memoised
    def divisor_within(self, x: ir.Tile, line: int) -> int:
        """Return a divisor of an address's position within lines of this length."""
        x = self.resolved(x)
        match x:
            case ir.Cast(y) | ir.BroadcastTo(y) | ir.ExpandDims(y):
                return self.divisor_within(y, line)
            case ir.Apply("add" | "sub", args):
                return gcd(*(self.divisor_within(y, line) for y in args))
        whole = self.divisor(x)
        return 0 if whole % line == 0 else gcd(whole, line)

    def strided(self, x: ir.Tile) -> Strided | None:
        """Return a tile of a product as a strided tile of memory, if it is loaded unchanged with constant strides."""
        x = self.resolved(x)
        if not isinstance(x, ir.Load):
            return None
        t = self.types.of(x)
        parameter = self.parameter(x.pointer)
        steps = (self.step(x.pointer, -2), self.step(x.pointer, -1))
        if len(t.shape) != 2 or parameter is None or steps[0] is None or steps[1] is None or 1 not in steps:
            return None
        found = Strided(x.pointer, parameter, t.dtype, (t.shape[0], t.shape[1]), (steps[0], steps[1]))
        return found if x.mask is None else self._bounded(found, x)

    def _bounded(self, memory: Strided, load: ir.Load) -> Strided | None:
        """Add the bounds of a mask to a strided tile, if the mask confines it to a matrix and masked elements are 0.

        The compared indices are then the line and the position in the line.
        """
        if load.mask is None or (load.other is not None and not self._is_zero(load.other)):
            return None
        if not memory.pitch:  # a single line has no pitch
            return None
        bounds: list[Bound | None] = [None, None]
        lines = self._split_terms(memory)
        placed = True
        for index, extent in self.comparisons(load.mask):
            steps = (self.step(index, -2), self.step(index, -1))
            if steps not in ((0, 1), (1, 0)) or bounds[steps.index(1)] is not None:
                return None
            axis = steps.index(1)
            placed = placed and self.linear(index) == lines[axis != memory.along]
            bounds[axis] = Bound(index, extent)
        return memory._replace(bounds=(bounds[0], bounds[1]), placed=placed) if any(bounds) else None

    def starts(self, memory: Strided) -> int:
        """Return a divisor of the offset of the matrix whose lines and columns the compared indices count."""
        rest, column = self._offset(memory), memory.bounds[memory.along]
        if column is not None:
            rest = add_sums(rest, self.linear(column.at), -1)
        return gcd(memory.pitch, *(factor * self.divisor(term) for term, factor in rest.items()))

    def starts_inside(self, memory: Strided) -> bool:
        """Return whether compared indices are non-negative and their matrix starts at or after its parameter.

        Asynchronous copies fill negative positions with zeros.
        """
        rest = self._offset(memory)
        for axis, bound in enumerate(memory.bounds):
            if bound is not None:
                counted = self.first(bound.at)
                if not self._is_nonnegative_sum(counted):
                    return False
                rest = add_sums(rest, counted, -memory.steps[axis])
        return self._is_nonnegative_sum(rest)

    def is_within_lines(self, memory: Strided) -> bool:
        """Return whether no line of a tile can continue in the next line of memory.

        Where a mask counts lines, no line may begin beyond the end of the line it counts.
        """
        width = memory.shape[memory.along]
        line = memory.bounds[1 - memory.along]
        if line is None:
            return width <= gcd(memory.pitch, self.divisor_within(memory.pointer, memory.pitch))
        column = add_sums(self._offset(memory), self.first(line.at), -memory.pitch)
        last = self._upper_bound_of_sum(column)
        return last is not None and self._is_nonnegative_sum(column) and last + width <= memory.pitch

    def _offset(self, memory: Strided) -> Sum:
        """Return the offset of the first element of a tile from its parameter."""
        return add_sums(self.first(memory.pointer), {ir.Name(memory.parameter): 1}, -1)

    def _upper_bound_of_sum(self, terms: Sum) -> int | None:
        found = [(factor, self.interval(term, True).high) for term, factor in terms.items()]
        return None if any(last is None for _, last in found) else sum(factor * (last or 0) for factor, last in found)

    def _is_nonnegative_sum(self, terms: Sum) -> bool:
        return all(factor > 0 and self.is_nonnegative(term) for term, factor in terms.items())

    def _is_zero(self, x: ir.Tile) -> bool:
        x = self.resolved(x)
        return isinstance(x, ir.Literal) and x.value == 0

    @memoised
    def comparisons(self, mask: ir.Tile) -> list[tuple[ir.Tile, int]]:
        """Return (index, extent) for each conjunct `index < extent` of a mask; -1 marks any other condition."""
        mask, other = self.resolved(mask), (ir.Literal(0), -1)
        match mask:
            case ir.Apply("bitand", args):
                return list(dict.fromkeys(found for y in args for found in self.comparisons(y)))
            case ir.ExpandDims(y) | ir.BroadcastTo(y):
                shape = self.types.of(y).shape
                found = [
                    (i, n) if n >= 0 and self.types.of(i).shape == shape else other for i, n in self.comparisons(y)
                ]
                return [(mask.replaced(x=index), n) if n >= 0 else other for index, n in found]
            case ir.Apply("lt", (index, ir.Literal(int(extent)))):
                return [(index, extent)]
        return [other]

    def _split_terms(self, memory: Strided) -> tuple[Sum, Sum | None]:
        """Return the position in the line as a sum, and the number of the line, if it is known."""
        lines: dict[ir.Tile, int] = {}
        within: dict[ir.Tile, int] = {}
        known = True
        for term, factor in add_sums(self.linear(memory.pointer), {ir.Name(memory.parameter): 1}, -1).items():
            if factor % memory.pitch == 0:
                lines[term] = factor // memory.pitch
            elif not isinstance(term, ir.Arange) and not factor * self.divisor(term) % memory.pitch:
                known = False
            else:
                within[term] = factor
        return within, lines if known else None

    @memoised
    def parameter(self, pointer: ir.Tile) -> str | None:
        """Return the parameter that an address is an offset from."""
        pointer = self.resolved(pointer)
        if isinstance(pointer, ir.Name):
            return pointer.name if pointer.name in self.parameters else None
        bases = [y for y in ir.parts(pointer) if not isinstance(y, ir.Literal) and self.types.of(y).pointer]
        return self.parameter(bases[0]) if len(bases) == 1 else None


def is_zeros(x: ir.Tile) -> bool:
    return isinstance(x, ir.Full) and isinstance(x.value, ir.Literal) and x.value.value == 0
