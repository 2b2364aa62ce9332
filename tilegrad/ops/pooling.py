"""Windows of tensors, with their sums and maxima.

    Im2col <-> Col2im                 the elements of all windows; the sum of overlapping windows
    WindowGather <-> WindowScatter    one element of each window; elements scattered to where they were
    MaxPool                           the maximum of each window; NaN is greater than all

Windows cover the last axes of a tensor, as described by `axes` (`sliding.py`). Gradients gather from the windows that
cover an element instead of scattering.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import final

from ..ir.dtype import DType, int32, int64, uint8
from ..ir.functions import identity
from ..ir.graph import Reader, TensorType, Value
from ..ir.scalar import TRUE, Const, Expr, Index, Position, apply, const, fresh_index, reduce, size
from ..ir.scalar import cast as cast_element
from ..ir.scalar import where as choose
from ..ir.size import Shape
from .arithmetic import div, trunc_divide
from .base import Operand
from .broadcasting import ZERO, accumulator, reduce_sum, require, reshape
from .cast import cast, widened
from .movement import Movement
from .sliding import WindowAxes, WindowAxis, check_fit, coverings, tap_positions


def _pooled_shape(x: Value, axes: WindowAxes) -> Shape:
    """Return the shape with one element for each window."""
    check_fit("pooling", x.shape, *[a.extent for a in axes])
    return (*x.shape[: x.type.rank - len(axes)], *[a.count for a in axes])


def _unpooled_shape(y: Value, axes: WindowAxes) -> Shape:
    """Return the shape that the windows cover."""
    check_fit("pooling", y.shape, *[a.count for a in axes])
    return (*y.shape[: y.type.rank - len(axes)], *[a.extent for a in axes])


@final
class Im2col(Movement):
    """The elements of each window, 0 outside the tensor: (..., *taps, *windows)."""

    x: Value
    axes: WindowAxes

    def infer(self) -> TensorType:
        check_fit("windows", self.x.shape, *[a.extent for a in self.axes])
        lead = self.x.shape[: self.x.type.rank - len(self.axes)]
        return self.x.type.with_shape((*lead, *[a.width for a in self.axes], *[a.count for a in self.axes]))

    def element(self, position: Position, read: Reader) -> Expr:
        n = len(self.axes)
        lead, taps, windows = position[: -2 * n], position[-2 * n : -n], position[-n:]
        at, exists = tap_positions(self.axes, windows, taps)
        return choose(exists, read(self.x, (*lead, *at)), const(0, self.x.dtype))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (Col2im(upstream, self.axes),)


MAX_UNROLLED_WINDOWS = 9
"""Overlapping windows whose sum is unrolled: a short sum vectorises along memory."""


def _sum_over_covers(axes: WindowAxes, part: Callable[[Sequence[Expr]], Expr]) -> Expr:
    """Sum a function over the windows that cover a position."""
    counts = [a.cover for a in axes]
    if 0 < math.prod(counts) <= MAX_UNROLLED_WINDOWS:
        numbers = itertools.product(*[[const(n, int64) for n in range(count)] for count in counts])
        first, *others = [part(each) for each in numbers]
        return sum(others, first)
    indices = [fresh_index(count) for count in counts]
    total = part(indices)
    for index in reversed(indices):
        total = reduce("add", index, total)
    return total


@final
class Col2im(Value):
    """The sum of overlapping windows, from (..., *taps, *windows)."""

    cost = "expensive"
    y: Value
    axes: WindowAxes

    def infer(self) -> TensorType:
        taps, counts = [a.width for a in self.axes], [a.count for a in self.axes]
        check_fit("windows", self.y.shape, *taps, *counts)
        lead = self.y.shape[: self.y.type.rank - 2 * len(self.axes)]
        return self.y.type.with_shape((*lead, *[a.extent for a in self.axes]))

    def element(self, position: Position, read: Reader) -> Expr:
        n, dtype = len(self.axes), self.y.dtype

        def part(numbers: Sequence[Expr]) -> Expr:
            found = coverings(self.axes, position[-n:], numbers)
            element = read(self.y, (*position[:-n], *found.taps, *found.windows))
            return cast_element(choose(found.exists, element, const(0, dtype)), accumulator(dtype))

        return cast_element(_sum_over_covers(self.axes, part), dtype)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (Im2col(upstream, self.axes),)


def _unflatten_tap(flat: Expr, axes: WindowAxes) -> list[Expr]:
    """Split the flat number of a tap into one for each axis."""
    taps, behind = [], math.prod(a.width for a in axes)
    for axis in axes:
        behind //= axis.width
        taps.append(flat // behind % axis.width)
    return taps


def _flatten_taps(taps: Sequence[Expr], axes: WindowAxes) -> Expr:
    flat: Expr = ZERO
    for tap, axis in zip(taps, axes, strict=True):
        flat = flat * axis.width + tap
    return flat


def _candidates(x: Value, axes: WindowAxes, position: Position, read: Reader) -> tuple[Index, Expr]:
    """Return an index over the elements of a window, and the element; missing ones are the smallest number."""
    index = fresh_index(math.prod(a.width for a in axes))
    lead, windows = position[: -len(axes)], position[-len(axes) :]
    at, exists = tap_positions(axes, windows, _unflatten_tap(index, axes))
    return index, choose(exists, read(x, (*lead, *at)), const(identity("maximum", x.dtype), x.dtype))


MAX_UNROLLED_TAPS = 16
"""Elements of a window whose comparisons are unrolled: they then vectorise along memory."""


def _unrolled_maximum(x: Value, axes: WindowAxes, position: Position, read: Reader, number: DType) -> tuple[Expr, Expr]:
    """Return the maximum of a small window and its tap, as a shared chain of selections."""
    lead, windows = position[: -len(axes)], position[-len(axes) :]
    least = const(identity("maximum", x.dtype), x.dtype)
    # if all elements are the smallest number, choose the first one that exists, not padding
    found = cast_element(_flatten_taps([a.first(q, ZERO) for a, q in zip(axes, windows, strict=True)], axes), number)
    greatest: Expr = least
    for flat in range(math.prod(a.width for a in axes)):
        at, exists = tap_positions(axes, windows, _unflatten_tap(const(flat, int64), axes))
        if flat == 0 and exists is TRUE:
            greatest = read(x, (*lead, *at))
            continue
        each = choose(exists, read(x, (*lead, *at)), least)
        better = apply("invert", each <= greatest)
        if x.dtype.is_float:
            better = better & apply("eq", greatest, greatest)  # the first NaN is the maximum
        greatest, found = choose(better, each, greatest), choose(better, const(flat, number), found)
    return greatest, found


def _is_small(axes: WindowAxes) -> bool:
    return math.prod(a.width for a in axes) <= MAX_UNROLLED_TAPS


@final
class MaxPool(Value):
    """The maximum of each window."""

    cost = "expensive"
    x: Value
    axes: WindowAxes

    def infer(self) -> TensorType:
        require("if", self.x.dtype, "max_pool")
        return self.x.type.with_shape(_pooled_shape(self.x, self.axes))

    def element(self, position: Position, read: Reader) -> Expr:
        if _is_small(self.axes):
            return _unrolled_maximum(self.x, self.axes, position, read, uint8)[0]
        return reduce("maximum", *_candidates(self.x, self.axes, position, read))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (WindowScatter(upstream, WindowArgmax(self.x, self.axes), self.axes),)


@final
class WindowArgmax(Value):
    """The tap of the maximum of each window, the first one of ties, in the narrowest type."""

    cost = "expensive"
    differentiable = False
    x: Value
    axes: WindowAxes

    def infer(self) -> TensorType:
        dtype = uint8 if math.prod(a.width for a in self.axes) <= uint8.max + 1 else int32
        return TensorType(dtype, _pooled_shape(self.x, self.axes), self.x.device)

    def element(self, position: Position, read: Reader) -> Expr:
        if _is_small(self.axes):
            return _unrolled_maximum(self.x, self.axes, position, read, uint8)[1]
        found = reduce("argmax", *_candidates(self.x, self.axes, position, read))
        # if all elements are the smallest number, padding was found: choose the first one that exists
        windows = position[-len(self.axes) :]
        taps = [a.first(q, k) for a, q, k in zip(self.axes, windows, _unflatten_tap(found, self.axes), strict=True)]
        return cast_element(_flatten_taps(taps, self.axes), self.dtype)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)


@final
class WindowGather(Value):
    """The element at a given tap of each window."""

    x: Value
    numbers: Value
    axes: WindowAxes

    def infer(self) -> TensorType:
        check_fit("pooling", self.numbers.shape, *_pooled_shape(self.x, self.axes))
        return self.x.type.with_shape(self.numbers.shape)

    def element(self, position: Position, read: Reader) -> Expr:
        lead, windows = position[: -len(self.axes)], position[-len(self.axes) :]
        taps = _unflatten_tap(cast_element(read(self.numbers, position), int64), self.axes)
        at, exists = tap_positions(self.axes, windows, taps)
        return choose(exists, read(self.x, (*lead, *at)), const(0, self.x.dtype))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return WindowScatter(upstream, self.numbers, self.axes), None


@final
class WindowScatter(Value):
    """For each position the sum over the windows that chose it."""

    cost = "expensive"
    y: Value
    numbers: Value
    axes: WindowAxes

    def infer(self) -> TensorType:
        check_fit("pooling", self.numbers.shape, *self.y.shape)
        return self.y.type.with_shape(_unpooled_shape(self.y, self.axes))

    def element(self, position: Position, read: Reader) -> Expr:
        n, dtype = len(self.axes), self.y.dtype

        def part(numbers: Sequence[Expr]) -> Expr:
            found = coverings(self.axes, position[-n:], numbers)
            window = (*position[:-n], *found.windows)
            chosen = choose(found.exists, read(self.numbers, window), const(0, self.numbers.dtype))
            mine = apply("eq", cast_element(chosen, int32), cast_element(_flatten_taps(found.taps, self.axes), int32))
            element = choose(mine, choose(found.exists, read(self.y, window), const(0, dtype)), const(0, dtype))
            return cast_element(element, accumulator(dtype))

        return cast_element(_sum_over_covers(self.axes, part), dtype)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return WindowGather(upstream, self.numbers, self.axes), None


@final
class PoolIndex(Value):
    """Flat position of the chosen elements in the last axes of the tensor."""

    differentiable = False
    numbers: Value
    axes: WindowAxes

    def infer(self) -> TensorType:
        return self.numbers.type.with_dtype(int64)

    def element(self, position: Position, read: Reader) -> Expr:
        windows = position[-len(self.axes) :]
        at, _ = tap_positions(
            self.axes, windows, _unflatten_tap(cast_element(read(self.numbers, position), int64), self.axes)
        )
        flat: Expr = ZERO
        for place, axis in zip(at, self.axes, strict=True):
            flat = flat * size(axis.extent) + place
        return flat

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)


@final
class WindowCounts(Value):
    """Number of elements of the windows of an axis."""

    cost = "free"
    differentiable = False
    axis: WindowAxis
    padding: bool
    place: str = "cpu"

    def infer(self) -> TensorType:
        return TensorType(int64, (self.axis.count,), self.place)

    def element(self, position: Position, read: Reader) -> Expr:
        return apply("maximum", self.axis.elements(position[0], self.padding), const(1, int64))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return ()


def max_pool(x: Value, axes: WindowAxes) -> Value:
    """Return the maximum of each window."""
    return MaxPool(x, axes)


def pool_indices(x: Value, axes: WindowAxes) -> Value:
    """Return the positions of the maxima."""
    return PoolIndex(WindowArgmax(x, axes), axes)


def sum_pool(x: Value, axes: WindowAxes) -> Value:
    """Return the sum of each window."""
    patches = Im2col(x, axes)
    rank = x.type.rank
    return reduce_sum(patches, tuple(range(rank - len(axes), rank)))


def average_pool(x: Value, axes: WindowAxes, padding: bool = True, divisor: int | None = None) -> Value:
    """Return the mean of each window, or its sum divided by a given number."""
    total = sum_pool(widened(x), axes)
    quotient: Callable[[Value, Operand], Value] = trunc_divide if x.dtype.is_integer else div
    kind = int if x.dtype.is_integer else float
    if divisor is not None:
        return cast(quotient(total, kind(divisor)), x.dtype)
    number = 1
    for n, axis in enumerate(axes):
        count = axis.elements(fresh_index(axis.count), padding)
        if isinstance(count, Const):
            number *= int(count.value)
            continue
        sizes = cast(WindowCounts(axis, padding, x.device), total.dtype)
        total = quotient(total, reshape(sizes, (axis.count, *(1,) * (len(axes) - 1 - n))))
    return cast(quotient(total, kind(number)) if number != 1 else total, x.dtype)
