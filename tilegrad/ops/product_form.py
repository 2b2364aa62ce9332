"""Write ops that are sums of products as one form: matrix products, batches, convolutions and their gradients.

    out[o] = sum of x[p] * y[q]        for all indices of all axes of the form

Each axis of the form moves the position in x, y and the result by a step along one axis of each, or not at all. So a
window and a tap are two axes of the form that move along the same axis of the input. Elements beyond the borders of an
operand are 0. Kernels that are generic in sizes and strides compute this form (`backend/cpu/generic_products`).
"""

from __future__ import annotations

from itertools import product as cartesian
from math import gcd
from typing import NamedTuple

from ..ir.graph import Value
from ..ir.size import Dim, Shape
from .contraction import Contract, letters
from .convolution import Convolve, ConvolveBack, ConvolveWeight
from .sliding import Sliding


class AxisStep(NamedTuple):
    """A step along an axis of a tensor per index; axis -1 is no movement."""

    axis: int = -1
    step: int = 0


UNMOVED = AxisStep()


class FormAxis(NamedTuple):
    """An index of the form. It is summed over if the result does not move."""

    extent: int
    x: AxisStep = UNMOVED
    y: AxisStep = UNMOVED
    out: AxisStep = UNMOVED


class ProductForm(NamedTuple):
    """Axes, and where the first products begin along each axis of the operands and the result."""

    axes: tuple[FormAxis, ...]
    x_first: tuple[int, ...]
    y_first: tuple[int, ...]
    out_first: tuple[int, ...]
    is_inside: bool = False
    """Whether it is known that all elements exist that are read."""


def product_forms(value: Value) -> tuple[ProductForm, ...] | None:
    """Return the forms whose results together are the result of an op, or None if it is no such op or sizes vary.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> x, y = (Input(TensorType(float32, shape)) for shape in ((2, 3), (3, 5)))
    >>> for axis in product_forms(Contract(x, y, "ik,kj->ij"))[0].axes:
    ...     print(axis.extent, *axis.x, *axis.y, *axis.out)
    2 0 1 -1 0 0 1
    5 -1 0 1 1 1 1
    3 1 1 0 1 -1 0
    """
    if not all(isinstance(n, int) for v in (value, *value.inputs) for n in v.shape):
        return None
    match value:
        case Contract(x=x, y=y, equation=equation):
            return (_contraction(equation, x.shape, y.shape),)
        case Convolve():
            return (_convolution(value),)
        case ConvolveWeight():
            return (_weight_gradient(value),)
        case ConvolveBack():
            return tuple(_input_gradient(value))
    return None


def _contraction(equation: str, x: Shape, y: Shape) -> ProductForm:
    of_x, of_y, out = letters(equation)
    axes: list[FormAxis] = []
    for letter in dict.fromkeys(out + of_x):
        moves, extents = [], []
        for shown, shape in ((of_x, x), (of_y, y)):
            at = shown.find(letter)
            extents.append(shape[at] if at >= 0 else 1)
            moves.append(AxisStep(at, 1) if at >= 0 and shape[at] != 1 else UNMOVED)
        to = out.find(letter)
        extent = extents[0] if extents[1] == 1 else extents[1]
        axes.append(_axis(extent, moves[0], moves[1], AxisStep(to, 1) if to >= 0 else UNMOVED))
    return ProductForm(tuple(axes), (0,) * len(of_x), (0,) * len(of_y), (0,) * len(out), is_inside=True)


def _axis(extent: Dim, x: AxisStep = UNMOVED, y: AxisStep = UNMOVED, out: AxisStep = UNMOVED) -> FormAxis:
    assert isinstance(extent, int)
    return FormAxis(extent, x, y, out)


def _along(*axes: int) -> list[AxisStep]:
    """Return movements by one element along axes of x, y and the result."""
    return [AxisStep(axis, 1) if axis >= 0 else UNMOVED for axis in axes]


def _convolution(value: Convolve) -> ProductForm:
    batch, groups, channels = value.x.shape[:3]
    axes = [
        _axis(batch, *_along(0, -1, 0)),
        _axis(groups, *_along(1, 0, 1)),
        _axis(value.w.shape[1], *_along(-1, 1, 2)),
    ]
    windows: list[Sliding] = list(value.axes)
    axes += [_axis(a.count, AxisStep(3 + n, a.stride), UNMOVED, AxisStep(3 + n, 1)) for n, a in enumerate(windows)]
    axes.append(_axis(channels, *_along(2, 2, -1)))
    axes += [_axis(a.taps, AxisStep(3 + n, a.dilation), AxisStep(3 + n, 1)) for n, a in enumerate(windows)]
    rank = 3 + len(windows)
    return ProductForm(tuple(axes), (0, 0, 0, *[-a.padding for a in windows]), (0,) * rank, (0,) * rank)


def _weight_gradient(value: ConvolveWeight) -> ProductForm:
    batch, groups, channels = value.x.shape[:3]
    axes = [
        _axis(groups, *_along(1, 1, 0)),
        _axis(value.y.shape[2], *_along(-1, 2, 1)),
        _axis(channels, *_along(2, -1, 2)),
    ]
    windows: list[Sliding] = list(value.axes)
    axes += [_axis(a.taps, AxisStep(3 + n, a.dilation), UNMOVED, AxisStep(3 + n, 1)) for n, a in enumerate(windows)]
    axes.append(_axis(batch, *_along(0, 0, -1)))
    axes += [_axis(a.count, AxisStep(3 + n, a.stride), AxisStep(3 + n, 1)) for n, a in enumerate(windows)]
    rank = 3 + len(windows)
    return ProductForm(tuple(axes), (0, 0, 0, *[-a.padding for a in windows]), (0,) * rank, (0,) * rank)


class _Phase(NamedTuple):
    """The windows that cover positions `stride * n + phase` of an axis, by the taps at which they do."""

    taps: int
    """Number of taps that meet such a position."""
    first_tap: int
    tap_step: int
    first_window: int
    """Window of the first tap at the first position."""
    window_step: int
    """Windows from one tap to the next, backwards."""


def _phases(axis: Sliding) -> list[_Phase]:
    """List the phases of an axis.

    >>> for phase in _phases(Sliding(8, 4, 3, 2, 1)):
    ...     print(*phase)
    1 1 2 0 1
    2 0 2 1 1
    """
    every = axis.stride // gcd(axis.stride, axis.dilation)
    found = []
    for phase in range(axis.stride):
        at = phase + axis.padding
        first = next((k for k in range(min(every, axis.taps)) if (at - k * axis.dilation) % axis.stride == 0), None)
        taps = 0 if first is None else -(-(axis.taps - first) // every)
        window = 0 if first is None else (at - first * axis.dilation) // axis.stride
        found.append(_Phase(taps, first or 0, every, window, every * axis.dilation // axis.stride))
    return found


def _input_gradient(value: ConvolveBack) -> list[ProductForm]:
    """List a form for each combination of phases, which meet the same taps at all positions."""
    batch, groups, outputs = value.y.shape[:3]
    forms = []
    for phases in cartesian(*[list(enumerate(_phases(a))) for a in value.axes]):
        axes = [
            _axis(batch, *_along(0, -1, 0)),
            _axis(groups, *_along(1, 0, 1)),
            _axis(value.weights.shape[1], *_along(-1, 1, 2)),
        ]
        split = value.shape[3::2]
        axes += [_axis(count, *_along(3 + n, -1, 3 + 2 * n)) for n, count in enumerate(split)]
        axes.append(_axis(outputs, *_along(2, 2, -1)))
        axes += [
            _axis(p.taps, AxisStep(3 + n, -p.window_step), AxisStep(3 + n, p.tap_step))
            for n, (_, p) in enumerate(phases)
        ]
        out_first = (0, 0, 0, *[m for number, _ in phases for m in (0, number)])
        starts = [(p.first_window, p.first_tap) for _, p in phases]
        forms.append(
            ProductForm(tuple(axes), (0, 0, 0, *[w for w, _ in starts]), (0, 0, 0, *[k for _, k in starts]), out_first)
        )
    return forms
