"""Affine analysis of addresses: strides along the axes of a tile, divisors of offsets, and bounds from masks.

The answers follow from the form of an expression alone. An operand loaded unchanged with constant strides can be copied
to shared memory asynchronously; the divisor of its first address gives the size of the copies.
"""

from __future__ import annotations

from collections import Counter
from math import gcd
from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType
from ....ir.tile_types import Types
from ....tiles.affine import Affine, memoised, once_assigned


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


class Definitions(Affine):
    """Resolves the names of a kernel and answers questions about the operands of its products."""

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
        across, within = self._split_terms(memory)
        placed = True
        for index, extent in self.comparisons(load.mask):
            steps = (self.step(index, -2), self.step(index, -1))
            if steps not in ((0, 1), (1, 0)) or bounds[steps.index(1)] is not None:
                return None
            axis = steps.index(1)
            wanted = within if axis == memory.along else across
            placed = placed and wanted is not None and self.terms(index) == wanted
            bounds[axis] = Bound(index, extent)
        return memory._replace(bounds=(bounds[0], bounds[1]), placed=placed) if any(bounds) else None

    def starts(self, memory: Strided) -> int:
        """Return a divisor of the offset of the matrix whose lines and columns the compared indices count."""
        column = memory.bounds[memory.along]
        counted: Counter[ir.Tile] = Counter() if column is None else self.terms(column.at)
        found = self.terms(memory.pointer)
        spacing = gcd(memory.pitch, *map(self.divisor, found - counted))
        return gcd(spacing, *map(self.divisor, counted)) if counted - found else spacing

    def starts_inside(self, memory: Strided) -> bool:
        """Return whether compared indices are non-negative and their matrix starts at or after its parameter.

        Asynchronous copies fill negative positions with zeros.
        """
        rest = dict(self.coefficients(memory.pointer))
        for axis, bound in enumerate(memory.bounds):
            if bound is not None:
                counted = self.coefficients(bound.at)
                if not self._is_nonnegative_sum(counted):
                    return False
                for term, factor in counted.items():
                    rest[term] = rest.get(term, 0) - factor * memory.steps[axis]
        return self._is_nonnegative_sum(rest)

    def is_within_lines(self, memory: Strided) -> bool:
        """Return whether no line of a tile can continue in the next line of memory.

        Where a mask counts lines, no line may begin beyond the end of the line it counts.
        """
        width = memory.shape[memory.along]
        line = memory.bounds[1 - memory.along]
        if line is None:
            return width <= gcd(memory.pitch, self.divisor_within(memory.pointer, memory.pitch))
        column = dict(self.coefficients(memory.pointer))
        for term, factor in self.coefficients(line.at).items():
            column[term] = column.get(term, 0) - factor * memory.pitch
        last = self._upper_bound_of_sum(column)
        return last is not None and self._is_nonnegative_sum(column) and last + width <= memory.pitch

    def _upper_bound_of_sum(self, terms: dict[ir.Tile, int]) -> int | None:
        found = [(factor, self.interval(term, True).high) for term, factor in terms.items() if factor]
        return None if any(last is None for _, last in found) else sum(factor * (last or 0) for factor, last in found)

    @memoised
    def coefficients(self, x: ir.Tile) -> dict[ir.Tile, int]:
        """Return the first element of an integer tile (of an address: its offset) as a linear combination of terms."""
        x = self.resolved(x)
        found: dict[ir.Tile, int] = {}
        match x:
            case ir.Literal(int(value)) | ir.Arange(value, _):
                return {ir.Literal(1): value}
            case ir.Name(name) if name in self.parameters and self.parameters[name].pointer:
                return {}
            case ir.Cast(y) | ir.BroadcastTo(y) | ir.ExpandDims(y) | ir.Full(_, y):
                return self.coefficients(y)
            case ir.Apply("mul", (y, ir.Literal(int(by)))) | ir.Apply("mul", (ir.Literal(int(by)), y)):
                return {term: factor * by for term, factor in self.coefficients(y).items()}
            case ir.Apply("add" | "sub" as fn, (y, z)):
                for part, sign in ((y, 1), (z, 1 if fn == "add" else -1)):
                    for term, factor in self.coefficients(part).items():
                        found[term] = found.get(term, 0) + sign * factor
                return found
        return {x: 1}

    def _is_nonnegative_sum(self, terms: dict[ir.Tile, int]) -> bool:
        return all(factor == 0 or (factor > 0 and self.is_nonnegative(term)) for term, factor in terms.items())

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

    @memoised
    def terms(self, x: ir.Tile) -> Counter[ir.Tile]:
        """Count the terms that an integer (or the offset of an address) is a sum of."""
        x = self.resolved(x)
        match x:
            case ir.Literal(value) if value == 0:
                return Counter()
            case ir.Name(name) if name in self.parameters and self.parameters[name].pointer:
                return Counter()
            case ir.ExpandDims(y) | ir.BroadcastTo(y) | ir.Cast(y):
                return self.terms(y)
            case ir.Apply("add", (y, z)):
                return self.terms(y) + self.terms(z)
        return Counter([x])

    def _split_terms(self, memory: Strided) -> tuple[Counter[ir.Tile] | None, Counter[ir.Tile]]:
        """Return the terms of the line number, if it is known, and those of the position in the line."""
        across: Counter[ir.Tile] | None = Counter()
        within: Counter[ir.Tile] = Counter()
        for term, times in self.terms(memory.pointer).items():
            match term:
                case ir.Apply("mul", (index, ir.Literal(value))) if value == memory.pitch and across is not None:
                    across.update({part: times * count for part, count in self.terms(index).items()})
                case ir.Apply("mul", (_, ir.Literal(value))) if value == memory.pitch:
                    pass
                case ir.Apply("mul", (_, ir.Literal(int(value)))) if value % memory.pitch == 0:
                    across = None
                case _ if (
                    self.step(term, -1) == 0 and self.step(term, -2) == 0 and not self.divisor(term) % memory.pitch
                ):
                    across = None
                case _:
                    within[term] += times
        return across, within

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
