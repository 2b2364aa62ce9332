"""The ops of `pooling.py` with the elements of a window written out, and read whether they matter or not.

A device of many threads waits for memory, not for arithmetic: what is read on no condition is under way at once, and
what lies outside is read where the last element is, and not used.

    MaxPoolInTurn, GreatestInTurn, ReturnedInTurn       MaxPool, Greatest, Returned
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import final

from ..ir.dtype import int32, uint8
from ..ir.functions import identity
from ..ir.graph import Reader, TensorType, Value
from ..ir.scalar import TRUE, Expr, Position, apply, const, size
from ..ir.scalar import cast as cast_element
from ..ir.scalar import where as choose
from .broadcasting import ZERO, accumulator
from .pooling import flat_tap, over_covers, shape_of_windows, shape_under
from .sliding import Axes, check_fit, coverings, places


def _inside(at: Sequence[Expr], extents: Sequence[object], exists: Expr) -> tuple[Expr, ...]:
    """Positions, where they do not exist those of some element that does."""
    if exists is TRUE:
        return tuple(at)
    last = [size(extent) - 1 for extent in extents]  # type: ignore[arg-type]
    return tuple([apply("maximum", apply("minimum", p, n), ZERO) for p, n in zip(at, last, strict=True)])


def _in_turn(x: Value, axes: Axes, position: Position, read: Reader) -> list[tuple[int, Expr]]:
    """The elements of a window with their numbers."""
    lead, windows = position[: -len(axes)], position[-len(axes) :]
    least = const(identity("maximum", x.dtype), x.dtype)
    found = []
    for number, taps in enumerate(itertools.product(*[range(a.width) for a in axes])):
        at, exists = places(axes, windows, [size(tap) for tap in taps])
        element = read(x, (*lead, *_inside(at, [a.extent for a in axes], exists)))
        found.append((number, choose(exists, element, least)))
    return found


@final
class MaxPoolInTurn(Value):
    """The greatest element of each window."""

    differentiable = False
    cost = "dear"
    x: Value
    axes: Axes

    def infer(self) -> TensorType:
        return self.x.type.with_shape(shape_of_windows(self.x, self.axes))

    def element(self, position: Position, read: Reader) -> Expr:
        (_, best), *others = _in_turn(self.x, self.axes, position, read)
        for _, element in others:
            best = apply("maximum", best, element)
        return best

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)


@final
class GreatestInTurn(Value):
    """Which element of each window is the greatest."""

    differentiable = False
    cost = "dear"
    x: Value
    axes: Axes

    def infer(self) -> TensorType:
        dtype = uint8 if math.prod(a.width for a in self.axes) <= 256 else int32
        return TensorType(dtype, shape_of_windows(self.x, self.axes), self.x.device)

    def element(self, position: Position, read: Reader) -> Expr:
        (_, best), *others = _in_turn(self.x, self.axes, position, read)
        first = [a.first(q, ZERO) for a, q in zip(self.axes, position[-len(self.axes) :], strict=True)]
        number = cast_element(flat_tap(first, self.axes), int32)
        for n, element in others:
            better = apply("invert", apply("le", element, best))
            if element.dtype.is_float:  # NaN is greater than all, and stays
                better = better & apply("invert", apply("isnan", best))
            number = choose(better, const(n, int32), number)
            best = apply("maximum", best, element)
        return cast_element(number, self.dtype)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)


@final
class ReturnedInTurn(Value):
    """For each position the sum over the windows that chose it."""

    differentiable = False
    cost = "dear"
    y: Value
    numbers: Value
    axes: Axes

    def infer(self) -> TensorType:
        check_fit("pooling", self.numbers.shape, *self.y.shape)
        return self.y.type.with_shape(shape_under(self.y, self.axes))

    def element(self, position: Position, read: Reader) -> Expr:
        n, dtype = len(self.axes), self.y.dtype

        def part(numbers: Sequence[Expr]) -> Expr:
            found = coverings(self.axes, position[-n:], numbers)
            window = (*position[:-n], *_inside(found.windows, [a.count for a in self.axes], found.exists))
            chosen = cast_element(read(self.numbers, window), int32)
            mine = apply("eq", chosen, cast_element(flat_tap(found.taps, self.axes), int32))
            element = choose(found.exists & mine, read(self.y, window), const(0, dtype))
            return cast_element(element, accumulator(dtype))

        return cast_element(over_covers(self.axes, part), dtype)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return None, None
