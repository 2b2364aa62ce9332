"""Functions that are lenient with NaN, or with rounding."""

from __future__ import annotations

import math

from ..ir.dtype import float64
from ..ir.graph import Value
from .arithmetic import absolute, add, div, maximum, minimum, mul, sub
from .base import Operand, pair
from .bits import logical_and, logical_not, logical_or
from .broadcasting import Axes, reduce_sum
from .cast import cast
from .comparison import eq, isfinite, isnan, le
from .control import where


def nan_to_num(x: Value, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Value:
    """Numbers in place of NaN and the infinities: if none are given, the greatest and the least finite one."""
    if not x.dtype.is_float:
        return x
    high = float(x.dtype.max) if posinf is None else posinf
    low = float(x.dtype.min) if neginf is None else neginf
    return where(isnan(x), nan, where(eq(x, math.inf), high, where(eq(x, -math.inf), low, x)))


def fmax(x: Operand, y: Operand) -> Value:
    """The greater of two elements, or the one that is not NaN."""
    a, b = pair(x, y)
    return where(isnan(b), a, where(isnan(a), b, maximum(a, b)))


def fmin(x: Operand, y: Operand) -> Value:
    """The less of two elements, or the one that is not NaN."""
    a, b = pair(x, y)
    return where(isnan(b), a, where(isnan(a), b, minimum(a, b)))


def nansum(x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    """The sum of what is not NaN."""
    return reduce_sum(where(isnan(x), 0.0, x) if x.dtype.is_float else x, axes, keepdim)


def nanmean(x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    """The mean of what is not NaN."""
    count = reduce_sum(cast(logical_not(isnan(x)), x.dtype), axes, keepdim)
    return div(nansum(x, axes, keepdim), count)


def isclose(x: Value, y: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Value:
    """Whether |x - y| <= atol + rtol * |y|, or both are the same infinity."""
    if not x.dtype.is_float:
        x, y = cast(x, float64), cast(y, float64)
    same = eq(x, y)
    if equal_nan:
        same = logical_or(same, logical_and(isnan(x), isnan(y)))
    near = le(absolute(sub(x, y)), add(mul(absolute(y), rtol), atol))
    return logical_or(same, logical_and(near, isfinite(y)))
