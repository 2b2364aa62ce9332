"""Means, variances, norms and log-sum-exp, composed of other ops.

Half precision is computed in float32 and converted at the end.
"""

from __future__ import annotations

import math

from ..ir.dtype import bool_
from ..ir.graph import Value
from ..ir.size import product
from .arithmetic import absolute, add, div, square, sub
from .broadcasting import Axes, fill, normal_axes, reduce_sum, require, reshape
from .cast import cast, detach, widened
from .comparison import eq, isfinite, ne
from .control import where
from .creation import size_number
from .exponential import exp, log, power, sqrt
from .reduction import amax, amin


def mean(x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    require("f", x.dtype, "mean")
    return cast(_mean(widened(x), normal_axes(axes, x.type.rank, "mean"), keepdim), x.dtype)


def _mean(x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
    count = product(x.shape[axis] for axis in axes)
    return div(reduce_sum(x, axes, keepdim), size_number(count, x.dtype, x.device)) if axes else x


def var_mean(x: Value, axes: Axes = None, correction: float = 1, keepdim: bool = False) -> tuple[Value, Value]:
    """Return the variance, by squared deviations, and the mean.

    The sum of squares is divided by the number of elements minus `correction`.
    """
    require("f", x.dtype, "var")
    wide, found = widened(x), normal_axes(axes, x.type.rank, "var")
    middle = _mean(wide, found, True)
    squares = reduce_sum(square(sub(wide, middle)), found, keepdim)
    count = product(x.shape[axis] for axis in found)
    if isinstance(count, int):
        divisor = fill(max(0.0, count - correction), (), wide.dtype, x.device)
    else:
        divisor = sub(size_number(count, wide.dtype, x.device), float(correction))
    outer = middle if keepdim else reshape(middle, squares.shape)
    return cast(div(squares, divisor), x.dtype), cast(outer, x.dtype)


def var(x: Value, axes: Axes = None, correction: float = 1, keepdim: bool = False) -> Value:
    return var_mean(x, axes, correction, keepdim)[0]


def std_mean(x: Value, axes: Axes = None, correction: float = 1, keepdim: bool = False) -> tuple[Value, Value]:
    """Return the standard deviation (without a gradient where it is 0) and the mean."""
    variance, middle = var_mean(widened(x), axes, correction, keepdim)
    return cast(_root(variance), x.dtype), cast(middle, x.dtype)


def std(x: Value, axes: Axes = None, correction: float = 1, keepdim: bool = False) -> Value:
    return std_mean(x, axes, correction, keepdim)[0]


def _root(x: Value) -> Value:
    """Compute the square root with gradient 0 at 0."""
    zero = eq(x, 0.0)
    return where(zero, 0.0, sqrt(where(zero, 1.0, x)))


def norm(x: Value, order: float = 2.0, axes: Axes = None, keepdim: bool = False) -> Value:
    """Compute the vector norm; orders of infinity give the largest (smallest) magnitude."""
    require("f", x.dtype, "norm")
    wide, found = widened(x), normal_axes(axes, x.type.rank, "norm")
    return cast(_norm(wide, order, found, keepdim), x.dtype)


def _norm(x: Value, order: float, axes: tuple[int, ...], keepdim: bool) -> Value:
    if order == 2:
        return _root(reduce_sum(square(x), axes, keepdim))
    size = absolute(x)
    if order == 1:
        return reduce_sum(size, axes, keepdim)
    if order == 0:
        # an unused branch contributes a gradient of zeros
        return reduce_sum(where(fill(False, (), bool_, x.device), x, cast(ne(x, 0.0), x.dtype)), axes, keepdim)
    if math.isinf(order):
        return (amax if order > 0 else amin)(size, axes, keepdim)
    if order < 1:
        zero = eq(x, 0.0)
        powers = where(zero, 0.0 if order > 0 else math.inf, power(where(zero, 1.0, size), order))
    else:
        powers = power(size, order)
    total = reduce_sum(powers, axes, keepdim)
    none = eq(total, 0.0)
    return where(none, 0.0, power(where(none, 1.0, total), 1 / order))


def logsumexp(x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    """Compute the log of the sum of exp(x), with the maximum subtracted to avoid overflow."""
    require("f", x.dtype, "logsumexp")
    wide, found = widened(x), normal_axes(axes, x.type.rank, "logsumexp")
    if not found or any(x.shape[axis] == 0 for axis in found):
        return log(reduce_sum(exp(x), found, keepdim)) if found else x
    greatest = detach(amax(wide, found, keepdim=True))
    shift = where(isfinite(greatest), greatest, 0.0)
    logarithm = log(reduce_sum(exp(sub(wide, shift)), found, keepdim))
    return cast(add(logarithm, shift if keepdim else reshape(shift, logarithm.shape)), x.dtype)
