"""Geometry of windows on an axis: the positions of a window, and the windows that cover a position.

    Sliding    windows of equal width at a distance of `stride` on an axis that may be padded
    Adaptive   a number of windows of nearly equal widths that cover the whole axis

Both directions have closed forms. Gradients use the second one to gather from the windows that cover an element,
instead of scattering.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias, final

from ..errors import ShapeError
from ..ir.node import Structure
from ..ir.scalar import TRUE, Expr, apply, size, where
from ..ir.size import Dim, Shape
from .broadcasting import ZERO, shown


class Tap(NamedTuple):
    """Position of an element of a window."""

    at: Expr
    """Position along the axis."""
    exists: Expr


class Covering(NamedTuple):
    """A window that covers a position."""

    window: Expr
    tap: Expr
    """Element of the window at the position."""
    reached: Expr
    """Whether the position is at a tap of some window of an unbounded axis."""
    exists: Expr


class Coverings(NamedTuple):
    """A window that covers a position of several axes."""

    windows: tuple[Expr, ...]
    taps: tuple[Expr, ...]
    reached: Expr
    exists: Expr


class WindowAxis(Structure):
    """An axis of `extent` elements with `count` windows of at most `width`."""

    extent: Dim
    count: Dim

    @property
    @abstractmethod
    def width(self) -> int: ...

    @property
    @abstractmethod
    def cover(self) -> int:
        """Most windows that cover a position."""

    @abstractmethod
    def place(self, window: Expr, tap: Expr) -> Tap:
        """Return the position of element `tap` of a window."""

    @abstractmethod
    def covering(self, at: Expr, n: Expr) -> Covering:
        """Return the n-th window that covers a position."""

    @abstractmethod
    def elements(self, window: Expr, padding: bool) -> Expr:
        """Return the number of elements of a window, with or without padding."""

    @abstractmethod
    def first(self, window: Expr, tap: Expr) -> Expr:
        """Return the tap, or that of the first element on the axis if this one is before it."""


WindowAxes: TypeAlias = "tuple[WindowAxis, ...]"


@final
class Sliding(WindowAxis):
    """Windows of `taps` elements at a distance of `dilation`; the first window begins `padding` before the axis.

    >>> from ..ir.scalar import Index
    >>> axis = Sliding(8, 4, 3, 2, 1, 1)
    >>> q, k, p = Index("q", 4), Index("k", 3), Index("p", 8)
    >>> cover = axis.covering(p, Index("n", 2))
    >>> print(axis.place(q, k).at, "|", cover.window, "|", cover.tap)
    (((q * 2) + k) + -1) | (((p + 1) // 2) + (n * -1)) | ((n * 2) + ((p + 1) % 2))
    """

    taps: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def width(self) -> int:
        return self.taps

    @property
    def cover(self) -> int:
        return -(-self.taps // self._every)

    @property
    def _every(self) -> int:
        """Distance of taps of neighbouring windows that meet the same position."""
        return self.stride // math.gcd(self.stride, self.dilation)

    def place(self, window: Expr, tap: Expr) -> Tap:
        at = window * self.stride + tap * self.dilation - self.padding
        return Tap(at, (at >= 0) & (at < size(self.extent)))

    def covering(self, at: Expr, n: Expr) -> Covering:
        # the tap k and the window q with  q * stride + k * dilation = at + padding
        distance = at + self.padding
        common = math.gcd(self.stride, self.dilation)
        conjunction, reduced = self._every, self.dilation // common
        least = (distance // common) * pow(reduced, -1, conjunction) % conjunction if conjunction > 1 else ZERO
        tap = least + n * conjunction
        whole = distance // self.stride if self.dilation == 1 else (distance - least * self.dilation) // self.stride
        window = whole - n * reduced
        reached = tap < self.taps
        if common > 1:
            reached = reached & apply("eq", distance % common, ZERO)
        return Covering(window, tap, reached, reached & (window >= 0) & (window < size(self.count)))

    def elements(self, window: Expr, padding: bool) -> Expr:
        start = window * self.stride - self.padding
        end = start + ((self.taps - 1) * self.dilation + 1)
        if padding:
            return apply("minimum", end, size(self.extent + self.padding)) - start
        return apply("minimum", end, size(self.extent)) - apply("maximum", start, ZERO)

    def first(self, window: Expr, tap: Expr) -> Expr:
        at = self.place(window, tap).at
        return where(at < 0, tap + (self.dilation - 1 - at) // self.dilation, tap)

    def __str__(self) -> str:
        marks = [f"{self.taps}"]
        marks += [f"/{self.stride}"] * (self.stride != 1) + [f"+{self.padding}"] * (self.padding != 0)
        return "".join(marks + [f"*{self.dilation}"] * (self.dilation != 1))


@final
class Adaptive(WindowAxis):
    """Window q of n on an axis of m elements, from floor(q m / n) to ceil((q + 1) m / n), exclusive.

    A position is covered by the windows that would be its elements if windows and positions were exchanged.

    >>> Adaptive(10, 4).width, Adaptive(10, 5).width, Adaptive(3, 7).width
    (3, 2, 2)
    """

    extent: int
    count: int

    @property
    def width(self) -> int:
        return _widest(self.extent, self.count)

    @property
    def cover(self) -> int:
        return _widest(self.count, self.extent)

    def place(self, window: Expr, tap: Expr) -> Tap:
        at = _start(window, self.extent, self.count) + tap
        return Tap(at, at < _end(window, self.extent, self.count))

    def covering(self, at: Expr, n: Expr) -> Covering:
        window = _start(at, self.count, self.extent) + n
        exists = window < _end(at, self.count, self.extent)
        return Covering(window, at - _start(window, self.extent, self.count), exists, exists)

    def elements(self, window: Expr, padding: bool) -> Expr:
        return _end(window, self.extent, self.count) - _start(window, self.extent, self.count)

    def first(self, window: Expr, tap: Expr) -> Expr:
        return tap

    def __str__(self) -> str:
        return f"to {self.count}"


def _start(window: Expr, extent: int, count: int) -> Expr:
    return window * extent // count


def _end(window: Expr, extent: int, count: int) -> Expr:
    return ((window + 1) * extent + (count - 1)) // count


def _widest(extent: int, count: int) -> int:
    period = count // math.gcd(extent, count) if count else 0
    return max((-(-(q + 1) * extent // count) - q * extent // count for q in range(period)), default=0)


def check_fit(op: str, shape: Shape, *expected: Dim) -> None:
    """Raise an error if the last axes of a tensor do not have the extents of the windows."""
    if shape[len(shape) - len(expected) :] != expected:
        raise ShapeError(f"{op}: {shown(shape)} does not end in {shown(expected)}, which these windows are made for")


def tap_positions(axes: WindowAxes, windows: Sequence[Expr], taps: Sequence[Expr]) -> tuple[tuple[Expr, ...], Expr]:
    """Return the position of an element of a window over several axes, and whether it exists."""
    found = [axis.place(q, k) for axis, q, k in zip(axes, windows, taps, strict=True)]
    return tuple([p.at for p in found]), conjunction(p.exists for p in found)


def coverings(axes: WindowAxes, at: Sequence[Expr], numbers: Sequence[Expr]) -> Coverings:
    """Return a window that covers a position of several axes."""
    found = [axis.covering(p, n) for axis, p, n in zip(axes, at, numbers, strict=True)]
    windows, taps, reached, exists = zip(*found, strict=True)
    return Coverings(windows, taps, conjunction(reached), conjunction(exists))


def conjunction(conditions: Iterable[Expr]) -> Expr:
    """Combine conditions with `and`."""
    result: Expr = TRUE
    for condition in conditions:
        result = result & condition
    return result
