"""Convolutions over packed rows (implicit GEMM): channels innermost, positions as lines.

A tensor (groups, images, *positions, channels), padded so that windows stay inside, is one row of numbers for each
group. A position is a line of the row, and each tap of a window is at a constant distance in lines:

    x[g, q, t, j]  =  row[g, (q + shift(t)) * channels + j]         for a window q, a tap t, and j along the row

Taps along the last axis are contiguous, so `j` may run through all of them. So both ops are products of matrices with
overlapping lines, and no address is computed element by element (`transform/implicit_gemm.py` makes them from
`convolution.py` after differentiation).

    PackedRows             x in memory, flattened to rows
    Materialised           x in memory, with its axes
    PackedConvolve         products with weights, summed over channels and taps
    PackedConvolveWeight   products of inputs and upstream gradients, summed over lines
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

from ..ir.dtype import int64
from ..ir.graph import Reader, TensorType, Value
from ..ir.precision import Precision
from ..ir.scalar import Expr, Index, Position, const, fresh_index, reduce, size
from ..ir.scalar import cast as cast_element
from ..ir.size import product
from .base import require_alike
from .broadcasting import ZERO, accumulator, require, reshape, reshaped_position
from .contraction import multiply, precision_note
from .movement import Movement


@final
class PackedRows(Movement):
    """x stored in memory, flattened behind the first axis."""

    packs_rows = True
    store = "always"
    x: Value

    def infer(self) -> TensorType:
        return self.x.type.with_shape((self.x.shape[0], product(self.x.shape[1:])))

    def element(self, position: Position, read: Reader) -> Expr:
        return read(self.x, (position[0], *reshaped_position(position[1:], self.shape[1:], self.x.shape[1:])))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (reshape(upstream, self.x.shape),)


@final
class Materialised(Movement):
    """x stored in memory, in the order of its axes."""

    store = "always"
    x: Value

    def infer(self) -> TensorType:
        return self.x.type

    def element(self, position: Position, read: Reader) -> Expr:
        return read(self.x, position)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (upstream,)


def pitches(grid: tuple[int, ...]) -> tuple[int, ...]:
    """Return the distance in lines between consecutive positions of each axis.

    >>> pitches((5, 28, 30))
    (840, 30, 1)
    """
    return tuple([math.prod(grid[n + 1 :]) for n in range(len(grid))])


def _sum_products(x: Expr, y: Expr, over: Sequence[Expr], precision: Precision) -> Expr:
    dtype = x.dtype
    result = multiply(cast_element(x, accumulator(dtype)), cast_element(y, accumulator(dtype)), precision)
    for index in reversed(over):
        if isinstance(index, Index):
            result = reduce("add", index, result)
    return cast_element(result, dtype)


def _index(extent: int) -> Expr:
    return fresh_index(extent) if extent != 1 else const(0, int64)


def _row_number(at: Sequence[Expr], lines: Sequence[int]) -> Expr:
    total: Expr = ZERO
    for p, n in zip(at, lines, strict=True):
        total = total + p * n
    return total


@final
class PackedConvolve(Value):
    """(images, groups, outputs, *windows) from packed x and packed weights (outputs, *taps, run).

    `grid`: positions of an image of x; `dilation`: distance of taps along each axis, in positions.
    """

    contracts = True
    cost = "expensive"
    differentiable = False
    x: Value
    w: Value
    images: int
    grid: tuple[int, ...]
    channels: int
    outputs: int
    taps: tuple[int, ...]
    run: int
    counts: tuple[int, ...]
    dilation: tuple[int, ...]
    precision: Precision = "highest"

    def infer(self) -> TensorType:
        require_alike("convolution", (self.x, self.w))
        require("f", self.x.dtype, "convolution")
        return self.x.type.with_shape((self.images, self.w.shape[0], self.outputs, *self.counts))

    def element(self, position: Position, read: Reader) -> Expr:
        image, group, output, *windows = position
        *taps, along = over = [_index(n) for n in (*self.taps, self.run)]
        lines = pitches((1, *self.grid))
        at = [q + t * d for q, t, d in zip(windows, taps, self.dilation, strict=True)]
        x = read(self.x, (group, _row_number((image, *at), lines) * self.channels + along))
        w = read(self.w, (group, _row_number((output, *over), pitches((self.outputs, *self.taps, self.run)))))
        return _sum_products(w, x, over, self.precision)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return None, None

    def __str__(self) -> str:
        return f"packed_convolve[{self.counts} of {self.grid}{precision_note(self.precision)}]"


@final
class PackedConvolveWeight(Value):
    """(groups, outputs, *taps, run) from packed x and y, summed over lines.

    `lines`: number of summed lines; `first`: line of y of the first window; `taps`, `run`: those of the result.
    """

    contracts = True
    cost = "expensive"
    differentiable = False
    x: Value
    y: Value
    lines: int
    grid: tuple[int, ...]
    channels: tuple[int, int]
    """Channels of a line of x and of y."""
    outputs: int
    first: int
    taps: tuple[int, ...]
    run: int
    dilation: tuple[int, ...]
    precision: Precision = "highest"
    pitch: int = 1
    """Distance between outputs in y, 1 if they are the channels of a line."""

    def infer(self) -> TensorType:
        require_alike("convolution", (self.x, self.y))
        require("f", self.x.dtype, "convolution")
        return self.x.type.with_shape((self.x.shape[0], self.outputs, *self.taps, self.run))

    def element(self, position: Position, read: Reader) -> Expr:
        group, output, *taps, along = position
        line = fresh_index(self.lines)
        of_x, of_y = self.channels
        shift = _row_number([t * d for t, d in zip(taps, self.dilation, strict=True)], pitches(self.grid))
        x = read(self.x, (group, (line + shift) * of_x + along))
        y = read(self.y, (group, (line + size(self.first)) * of_y + output * self.pitch))
        return _sum_products(y, x, [line], self.precision)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return None, None

    def __str__(self) -> str:
        return f"packed_convolve_weight[{self.taps} of {self.grid}{precision_note(self.precision)}]"
