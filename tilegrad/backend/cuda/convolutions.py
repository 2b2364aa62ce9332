"""Read a convolution with a simple epilogue from the description of a kernel, so that a library can compute it.

Such a kernel multiplies two matrices, one of which has overlapping lines (`transform/implicit_gemm.py`): windows of an
input that is already padded and deinterleaved in memory. So the problem has neither padding nor strides, and an axis of
the input may be longer than the distance to the next one. Gradients for an input have the form of a convolution, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...ir.contraction import Contraction, ContractionAxis, ContractionOperand, SumOfParts
from ...ir.dtype import DType
from ...ir.node import Structure
from .products import is_multiplied, result_strides, split_axes

MAX_AXES = 3
"""Most spatial axes of a convolution."""


class StridedTensor(NamedTuple):
    """A tensor in memory: argument of the kernel, offset of its first element, strides per image, channel and axis,
    stride per part, and the number of elements that the kernel touches.
    """

    argument: int
    dtype: DType
    first: int
    steps: tuple[int, ...]
    part_stride: int
    elements: int


class ConvolutionProblem(NamedTuple):
    """y[n, o, q] = sum of x[n, c, q + t * dilation] * w[o, t, c], with an optional bias per o and ReLU; or the gradient
    w of x and y, summed over n and q. `w` is dense. All of it is repeated for a number of `parts`.
    """

    of_weights: bool
    images: int
    channels: int
    outputs: int
    windows: tuple[int, ...]
    taps: tuple[int, ...]
    dilation: tuple[int, ...]
    parts: int
    x: StridedTensor
    w: StridedTensor
    y: StridedTensor
    bias: int = -1
    """Argument with the bias; -1 without one."""
    relu: bool = False
    precision: str = "highest"

    @property
    def operations(self) -> float:
        return 2.0 * self.parts * self.images * self.channels * self.outputs * math.prod((*self.windows, *self.taps))

    @property
    def made(self) -> StridedTensor:
        return self.w if self.of_weights else self.y

    @property
    def given(self) -> tuple[StridedTensor, StridedTensor]:
        return (self.x, self.y) if self.of_weights else (self.x, self.w)

    @property
    def results(self) -> int:
        if self.of_weights:
            return self.parts * self.outputs * self.channels * math.prod(self.taps)
        return self.y.elements

    def elements(self) -> dict[int, int]:
        """Return the number of elements of each argument."""
        found = {lying.argument: lying.elements for lying in (self.x, self.w, self.y)}
        return found if self.bias < 0 else {**found, self.bias: self.outputs}

    def whole(self, added: SumOfParts) -> ConvolutionProblem | None:
        """Return the weight gradient whose split-K parts a sum adds up, or None."""
        consecutive = (self.x.part_stride, self.y.part_stride, self.w.part_stride) == (
            self.x.steps[0],
            self.y.steps[0],
            added.elements,
        )
        if not (self.of_weights and added.parts == self.parts > 1 and consecutive):
            return None
        windows = (*self.windows[:-1], self.windows[-1] * self.parts)
        w = self.w._replace(dtype=added.dtype, part_stride=0)
        x, y = (t._replace(steps=(t.steps[0] * self.parts, *t.steps[1:]), part_stride=0) for t in (self.x, self.y))
        return self._replace(windows=windows, parts=1, x=x, w=w, y=y)

    @property
    def overlaps(self) -> bool:
        """Whether rows or images of x overlap, sharing the padding between them."""
        outer = (self.x.steps[0] if self.images > 1 else None, *self.x.steps[2:])
        inner = zip(outer, self.x.steps[2:], self.extents, strict=False)
        return any(part_stride is not None and step * extent > part_stride for part_stride, step, extent in inner)

    @property
    def rows(self) -> list[int]:
        """Offset of x for each row of weights. A weight gradient sums over its own lines for each row: x has an axis of
        overlapping rows for all taps except those along a line.
        """
        found = [0]
        outer = zip(self.taps[:-1], self.x.steps[2:-1], strict=True) if self.of_weights else ()
        for taps, step in outer:
            found = [first + tap * step for first in found for tap in range(taps)]
        return found

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the axes of x."""
        return tuple([q + (t - 1) * d for q, t, d in zip(self.windows, self.taps, self.dilation, strict=True)])

    def __str__(self) -> str:
        more = (" + bias" if self.bias >= 0 else "") + (", relu" if self.relu else "")
        sides, taps = ("x".join(map(str, n)) for n in (self.extents, self.taps))
        what = "weights of " if self.of_weights else ""
        parts = f"{self.parts} x " if self.parts > 1 else ""
        size = f"{self.images} x {self.channels} x {sides}, {self.outputs} x {taps}"
        return f"{parts}{what}{size} {self.x.dtype}{more}"


class NoConvolution(Exception):
    """Raised for a contraction that is no convolution."""


def require(holds: object) -> None:
    if not holds:
        raise NoConvolution


def convolution_of(computed: Structure | None) -> ConvolutionProblem | None:
    """Return the convolution that a description stands for, or None.

    >>> from ...ir.contraction import IndexDigit
    >>> from ...ir.dtype import bfloat16
    >>> w, x, y = (ContractionOperand(n, bfloat16, 0) for n in range(3))
    >>> rows, columns = ContractionAxis(32, 144, 0, False), ContractionAxis(320, 0, 16, False)
    >>> loop, inner = ContractionAxis(3, 48, 128, True), ContractionAxis(48, 1, 1, True)
    >>> image, row, place = IndexDigit(1, 64, 0, 1152), IndexDigit(1, 8, 8, 6, 6), IndexDigit(1, 1, 8, 1, 6)
    >>> digits = image, row, place, IndexDigit(0, 1, 0, 36)
    >>> print(convolution_of(Contraction((rows, columns, loop, inner), w, x, y, digits)))
    5 x 16 x 8x8, 32 x 3x3 bf16
    """
    if not isinstance(computed, Contraction) or not is_multiplied(computed):
        return None
    try:
        made = _Convolution(computed).found()
        require(max(made.taps) > 1)
        return made
    except NoConvolution:
        return None


class _Convolution:
    """The axes of a contraction by role: one of x alone, one of y alone, the innermost summed one, the others."""

    def __init__(self, c: Contraction) -> None:
        self.c = c
        rows, columns, summed, others = split_axes(c)
        require(rows >= 0 and columns >= 0 and summed)
        self.free = rows, columns
        self.inner, self.loops = summed[-1], summed[:-1]
        self.others = others

    def found(self) -> ConvolutionProblem:
        strides = result_strides(self.c)
        return self._of_windows() if strides is None else self._of_weights(strides)

    def _stride(self, axis: ContractionAxis, operand: int) -> int:
        return axis.y if operand else axis.x

    def _of_windows(self) -> ConvolutionProblem:
        """Match a result stored at digits of a window's index: image, row, place in the row."""
        c = self.c
        across = next((n for n in (0, 1) if any(d.axis == self.free[n] and d.divisor > 1 for d in c.digits)), 1)
        of_w = 1 - across
        windows_axis, outputs_axis = c.axes[self.free[across]], c.axes[self.free[of_w]]
        places = sorted([d for d in c.digits if d.axis == self.free[across]], key=lambda d: -d.divisor)
        linear = {d.axis: d.stride for d in c.digits if d not in places}
        require(all(d.divisor == 1 and not d.modulus and not d.limit for d in c.digits if d not in places))
        require(places and self.free[of_w] in linear)
        channels, outputs = self._stride(windows_axis, across), outputs_axis.extent
        require((self.inner.x, self.inner.y) == (1, 1) and self.inner.extent % channels == 0)
        inside = all(self._stride(loop, across) < places[0].divisor * channels for loop in self.loops)
        rows = places[1:] if inside else places
        periods = [windows_axis.extent, *[d.divisor for d in places]]
        counts = [outer // d.divisor for d, outer in zip(places, periods, strict=False)]
        require(places[-1].divisor == 1 and not places[0].modulus and 1 <= len(rows) <= MAX_AXES)
        require(all(d.divisor * n == outer for d, n, outer in zip(places, counts, periods, strict=False)))
        require(all(d.modulus == n for d, n in zip(places[1:], counts[1:], strict=True)))
        require(not (inside and places[0].limit))
        images = counts[0] if inside else 1
        stored = [min(n, d.limit or n) for d, n in zip(places, counts, strict=True)]
        windows = tuple(stored[-len(rows) :])
        taps, dilation = self._taps([d.divisor * channels for d in rows], across)
        weights = self._stride(outputs_axis, of_w) * outputs
        parts, part_stride = self._parts(linear, of_w, weights, 0)
        require(c.bias < 0 or c.bias_axis == self.free[of_w])
        lines = periods[1] * channels if inside else windows_axis.extent * channels
        x = self._operand(across, (lines, 1, *[d.divisor * channels for d in rows]), part_stride[across])
        w = self._operand(of_w, (), part_stride[of_w])
        steps = (places[0].stride if inside else 0, linear[self.free[of_w]], *[d.stride for d in rows])
        y = self._result(steps, (images, outputs, *windows), part_stride[2], parts)
        shape = (images, channels, outputs, windows, taps, dilation)
        return ConvolutionProblem(False, *shape, parts, x, w, y, c.bias, c.relu, c.precision)

    def _taps(self, steps: Sequence[int], across: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the taps along each axis, on which an operand has stride `steps`, and their dilation; weights are read
        in order.
        """
        channels, last = steps[-1], len(steps)
        taps, dilation, inner = [1] * last, [1] * last, self.inner.extent
        for loop in reversed(self.loops):
            move = self._stride(loop, across)
            axis = next((n for n, step in enumerate(steps) if move % step == 0), last)
            require(axis < last and self._stride(loop, 1 - across) == inner)
            taps[axis], dilation[axis], last = loop.extent, move // steps[axis], axis
            inner *= loop.extent
        if taps[-1] == 1:
            taps[-1] = self.inner.extent // channels
        else:
            require(self.inner.extent == channels)
        require(self._stride(self.c.axes[self.free[1 - across]], 1 - across) == inner)
        return tuple(taps), tuple(dilation)

    def _of_weights(self, strides: Sequence[int]) -> ConvolutionProblem:
        """Match a result stored at taps, outermost first, and along a row of the input: more taps, and channels."""
        c = self.c
        across = next((n for n in (0, 1) if strides[self.free[n]] == 1), 0)
        of_y = 1 - across
        row, column = c.axes[self.free[across]], c.axes[self.free[of_y]]
        channels, run, outputs = self._stride(self.inner, across), row.extent, column.extent
        require(strides[self.free[across]] == 1 == self._stride(row, across) and not self.loops)
        require(channels > 0 and self._stride(self.inner, of_y) > 0 and run % channels == 0)
        taps = sorted([n for n in self.others if not self._stride(c.axes[n], of_y)], key=lambda n: strides[n])
        inner = run
        for n in taps:
            require(strides[n] == inner and self._stride(c.axes[n], across) > 0)
            inner *= c.axes[n].extent
        require(strides[self.free[of_y]] == inner and len(taps) < MAX_AXES and c.bias < 0 and not c.relu)
        self.others = [n for n in self.others if n not in taps]
        parts, part_stride = self._parts(dict(enumerate(strides)), of_y, 0, inner * outputs)
        outer, length = [c.axes[n] for n in reversed(taps)], self.inner.extent
        whole = length * channels
        x = self._operand(across, (whole, 1, *[self._stride(a, across) for a in outer], channels), part_stride[across])
        pitch = self._stride(self.inner, of_y)
        steps = (length * pitch, self._stride(column, of_y), *[length * pitch] * len(taps), pitch)
        y = self._operand(of_y, steps, part_stride[of_y])
        w = self._result((), (parts * inner * outputs,), 0, 1)._replace(part_stride=part_stride[2])
        windows = (*[1] * len(taps), length)
        shape = (1, channels, outputs, windows, (*[a.extent for a in outer], run // channels), (1,) * len(windows))
        return ConvolutionProblem(True, *shape, parts, x, w, y, precision=c.precision)

    def _parts(
        self, strides: dict[int, int], of_w: int, weights: int, results: int
    ) -> tuple[int, tuple[int, int, int]]:
        """Return the number of parts and their strides, where weights, or results, of all parts are contiguous."""
        if not self.others:
            return 1, (0, 0, 0)
        require(len(self.others) == 1)
        (n,) = self.others
        axis, out = self.c.axes[n], strides.get(n, 0)
        require(axis.x and axis.y and out > 0)
        require(self._stride(axis, of_w) == weights if weights else out == results)
        return axis.extent, (axis.x, axis.y, out)

    def _operand(self, operand: int, steps: tuple[int, ...], part_stride: int) -> StridedTensor:
        memory: ContractionOperand = self.c.y if operand else self.c.x
        last = sum((axis.extent - 1) * self._stride(axis, operand) for axis in self.c.axes)
        return StridedTensor(memory.parameter, memory.dtype, memory.first, steps, part_stride, memory.first + last + 1)

    def _result(self, steps: tuple[int, ...], extents: tuple[int, ...], part_stride: int, parts: int) -> StridedTensor:
        out = self.c.out
        last = sum((n - 1) * step for n, step in zip(extents, steps or (1,), strict=True)) + (parts - 1) * part_stride
        return StridedTensor(out.parameter, out.dtype, out.first, steps, part_stride, out.first + last + 1)
