"""Convolutions and their gradients as sums of products.

    T(x, w, y) = sum of  x[n, g, c, q * stride + k * dilation - padding]  *  w[g, o, c, k]  *  y[n, g, o, q]

Each of the three ops is the derivative of T by one factor, and so are its gradients:

    Convolve         y from x and w      the convolution
    ConvolveBack     x from y and w      its gradient for the input; as a layer: the transposed convolution
    ConvolveWeight   w from x and y      its gradient for the weight

x is (batch, groups, channels, *positions), w (groups, outputs, channels, *taps), y (batch, groups, outputs, *windows).
All are sums of products over indices at which x, w and y are read affinely: the scheduler makes matrix products of them
(`schedule/products.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from ..errors import ShapeError
from ..ir.graph import Reader, TensorType, Value
from ..ir.precision import Precision
from ..ir.scalar import Expr, Index, Position, const, fresh_index, reduce
from ..ir.scalar import cast as cast_element
from ..ir.scalar import where as choose
from ..ir.size import Dim, Shape, product
from .base import require_alike
from .broadcasting import accumulator, fill, require, reshape
from .contraction import multiply, precision_note
from .movement import cat, narrow, pad, permute
from .sliding import Sliding, check_fit, coverings, tap_positions

Windows = tuple[Sliding, ...]


def _infer(x: Value, y: Value, shape: Shape) -> TensorType:
    require_alike("convolution", (x, y))
    require("if", x.dtype, "convolution")
    return x.type.with_shape(shape)


def _sum_products(x: Expr, y: Expr, over: Sequence[Index], precision: Precision) -> Expr:
    """Sum products, in float32 for half precision."""
    dtype = x.dtype
    result = multiply(cast_element(x, accumulator(dtype)), cast_element(y, accumulator(dtype)), precision)
    for index in reversed(over):
        result = reduce("add", index, result)
    return cast_element(result, dtype)


def _guarded_read(exists: Expr, element: Expr) -> Expr:
    return choose(exists, element, const(0, element.dtype))


def _indices(extents: Sequence[Dim]) -> list[Index]:
    return [fresh_index(extent) for extent in extents]


@final
class Convolve(Value):
    """Windows of x times weights, summed over channels and taps."""

    contracts = True
    cost = "expensive"
    x: Value
    w: Value
    axes: Windows
    precision: Precision = "highest"

    def infer(self) -> TensorType:
        channels, taps = self.x.shape[2], [a.taps for a in self.axes]
        check_fit("convolution", self.x.shape, channels, *[a.extent for a in self.axes])
        check_fit("convolution", self.w.shape, self.x.shape[1], self.w.shape[1], channels, *taps)
        return _infer(self.x, self.w, (*self.x.shape[:2], self.w.shape[1], *[a.count for a in self.axes]))

    def element(self, position: Position, read: Reader) -> Expr:
        batch, group, output, *windows = position
        channel, *taps = over = _indices([self.x.shape[2], *[a.taps for a in self.axes]])
        at, exists = tap_positions(self.axes, windows, taps)
        x = _guarded_read(exists, read(self.x, (batch, group, channel, *at)))
        return _sum_products(x, read(self.w, (group, output, channel, *taps)), over, self.precision)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        to_x = convolve_back(upstream, self.w, self.axes, self.precision) if self.x.tracked else None
        to_w = ConvolveWeight(self.x, upstream, self.axes, self.precision) if self.w.tracked else None
        return to_x, to_w

    def __str__(self) -> str:
        return f"convolve[{_shown(self.axes)}{precision_note(self.precision)}]"


@final
class ConvolveBack(Value):
    """Weights times the windows that cover each position, summed over outputs and windows.

    Positions at a distance of the stride meet the same taps. So an axis of the result is split into strides and the
    phase within a stride; for each phase this is a matrix product without taps that miss the position. The weights are
    transposed to (groups, channels, outputs, *taps), because outputs are summed.
    """

    reads_in_order = True
    contracts = True
    cost = "expensive"
    y: Value
    weights: Value
    axes: Windows
    precision: Precision = "highest"

    def infer(self) -> TensorType:
        outputs, taps = self.y.shape[2], [a.taps for a in self.axes]
        check_fit("convolution", self.y.shape, outputs, *[a.count for a in self.axes])
        check_fit("convolution", self.weights.shape, self.y.shape[1], self.weights.shape[1], outputs, *taps)
        split = [n for a in self.axes for n in (_strides(a), a.stride)]
        return _infer(self.y, self.weights, (*self.y.shape[:2], self.weights.shape[1], *split))

    def element(self, position: Position, read: Reader) -> Expr:
        batch, group, channel, *split = position
        at = [q * a.stride + r for a, q, r in zip(self.axes, split[::2], split[1::2], strict=True)]
        output, *numbers = over = _indices([self.y.shape[2], *[a.cover for a in self.axes]])
        found = coverings(self.axes, at, numbers)
        y = _guarded_read(found.exists, read(self.y, (batch, group, output, *found.windows)))
        w = _guarded_read(found.reached, read(self.weights, (group, channel, output, *found.taps)))
        return _sum_products(y, w, over, self.precision)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        positions = [_strides(a) * a.stride for a in self.axes]
        x = reshape(upstream, (*upstream.shape[:3], *positions))
        axes = tuple([a.replaced(extent=n) for a, n in zip(self.axes, positions, strict=True)])
        to_y = Convolve(x, _transposed(self.weights), axes, self.precision) if self.y.tracked else None
        to_w = _transposed(ConvolveWeight(x, self.y, axes, self.precision)) if self.weights.tracked else None
        return to_y, to_w

    def __str__(self) -> str:
        return f"convolve_back[{_shown(self.axes)}{precision_note(self.precision)}]"


@final
class ConvolveWeight(Value):
    """Inputs times upstream gradients, summed over batch and windows."""

    contracts = True
    cost = "expensive"
    x: Value
    y: Value
    axes: Windows
    precision: Precision = "highest"

    def infer(self) -> TensorType:
        batch, groups = self.x.shape[:2]
        check_fit("convolution", self.x.shape, *[a.extent for a in self.axes])
        check_fit("convolution", self.y.shape, batch, groups, self.y.shape[2], *[a.count for a in self.axes])
        taps = [a.taps for a in self.axes]
        return _infer(self.x, self.y, (self.x.shape[1], self.y.shape[2], self.x.shape[2], *taps))

    def element(self, position: Position, read: Reader) -> Expr:
        group, output, channel, *taps = position
        batch, *windows = over = _indices([self.x.shape[0], *[a.count for a in self.axes]])
        at, exists = tap_positions(self.axes, windows, taps)
        x = _guarded_read(exists, read(self.x, (batch, group, channel, *at)))
        return _sum_products(x, read(self.y, (batch, group, output, *windows)), over, self.precision)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        to_x = convolve_back(self.y, upstream, self.axes, self.precision) if self.x.tracked else None
        to_y = Convolve(self.x, upstream, self.axes, self.precision) if self.y.tracked else None
        return to_x, to_y

    def __str__(self) -> str:
        return f"convolve_weight[{_shown(self.axes)}{precision_note(self.precision)}]"


CONVOLUTIONS = (Convolve, ConvolveBack, ConvolveWeight)


def _strides(axis: Sliding) -> Dim:
    """Return the number of strides that cover an axis."""
    return axis.extent if axis.stride == 1 else -(-known_extent(axis) // axis.stride)


def known_extent(axis: Sliding) -> int:
    if not isinstance(axis.extent, int):
        raise ShapeError(
            f"convolution: windows {axis.stride} apart over an axis of {axis.extent} elements, a size that varies; "
            "fix the size of the axis, or use a stride of 1"
        )
    return axis.extent


def convolve_back(y: Value, w: Value, axes: Windows, precision: Precision = "highest") -> Value:
    """Compute the gradient of a convolution for its input, (batch, groups, channels, *extents)."""
    if any(a.stride > 1 for a in axes) and all(a.dilation == 1 and isinstance(a.extent, int) for a in axes):
        return _gradient_by_phases(y, w, axes, precision)
    back = ConvolveBack(y, _transposed(w), axes, precision)
    result = reshape(back, (*back.shape[:3], *[_strides(a) * a.stride for a in axes]))
    for n, axis in enumerate(axes):
        result = narrow(result, 3 + n, 0, axis.extent)
    return result


class PhaseRange(NamedTuple):
    """Consecutive phases (positions within a stride, padding included) that meet the same number of taps."""

    first: int
    end: int
    taps: int


def _phases(axis: Sliding) -> list[PhaseRange]:
    """Group the phases of strided windows by the number of taps they meet.

    >>> _phases(Sliding(8, 4, 3, 2, 1))
    [PhaseRange(first=0, end=1, taps=2), PhaseRange(first=1, end=2, taps=1)]
    """
    few, more = divmod(axis.taps, axis.stride)
    found = [PhaseRange(0, more, few + 1), PhaseRange(more, axis.stride, few)]
    return [phases for phases in found if phases.first < phases.end]


def _gradient_by_phases(y: Value, w: Value, axes: Windows, precision: Precision) -> Value:
    """Compute the input gradient of a strided convolution as one product for all phases with equally many taps.

    These phases are channels of a result that has one element for each stride.
    """
    coarse = []
    for a in axes:
        first, last = a.padding // a.stride, (known_extent(a) - 1 + a.padding) // a.stride
        coarse.append(Sliding(last - first + 1, a.count, 0, 1, first))

    def part(chosen: tuple[PhaseRange, ...]) -> Value:
        """Compute (batch, groups, channels, *phases, *strides) for some phases of the first axes."""
        if len(chosen) < len(axes):
            parts = [part((*chosen, phases)) for phases in _phases(axes[len(chosen)])]
            return cat(parts, 3 + len(chosen))
        return _phase_product(y, w, axes, tuple(coarse), chosen, precision)

    result = part(())
    rank = len(axes)
    order = [n for a in range(rank) for n in (3 + rank + a, 3 + a)]
    result = permute(result, (0, 1, 2, *order))
    result = reshape(result, (*result.shape[:3], *[c.extent * a.stride for a, c in zip(axes, coarse, strict=True)]))
    for n, axis in enumerate(axes):
        result = narrow(result, 3 + n, axis.padding % axis.stride, axis.extent)
    return result


def _phase_product(
    y: Value, w: Value, axes: Windows, coarse: Windows, chosen: tuple[PhaseRange, ...], precision: Precision
) -> Value:
    groups, outputs, channels = w.shape[:3]
    counts = [phases.end - phases.first for phases in chosen]
    extents = [c.extent for c in coarse]
    if any(phases.taps == 0 for phases in chosen):
        return fill(0.0, (y.shape[0], groups, channels, *counts, *extents), y.dtype, y.device)
    taps = [phases.taps * a.stride for phases, a in zip(chosen, axes, strict=True)]
    w = pad(w, [(0, 0)] * 3 + [(0, n - a.taps) for n, a in zip(taps, axes, strict=True)])
    split = [n for phases, a in zip(chosen, axes, strict=True) for n in (phases.taps, a.stride)]
    w = reshape(w, (groups, outputs, channels, *split))
    for n, phases in enumerate(chosen):
        w = narrow(w, 4 + 2 * n, phases.first, phases.end - phases.first)
    tap_positions = range(3, w.type.rank)
    w = permute(w, (0, 1, 2, *tap_positions[1::2], *tap_positions[::2]))
    w = reshape(w, (groups, outputs, product((channels, *counts)), *[phases.taps for phases in chosen]))
    windows = tuple([c.replaced(taps=phases.taps) for c, phases in zip(coarse, chosen, strict=True)])
    return reshape(ConvolveBack(y, _transposed(w), windows, precision), (*y.shape[:2], channels, *counts, *extents))


def _transposed(w: Value) -> Value:
    """Transpose outputs and channels of weights."""
    return permute(w, (0, 2, 1, *range(3, w.type.rank)))


def _shown(axes: Windows) -> str:
    return " x ".join(map(str, axes))
