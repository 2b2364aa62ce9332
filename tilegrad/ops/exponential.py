"""Exponentials, logarithms, roots and powers."""

from __future__ import annotations

import math
from typing import final

from ..ir.graph import Value
from .arithmetic import add, clamp, div, mul, neg, reciprocal, square, sub
from .base import Binary, Operand, Unary, pair, zeros_like
from .bits import logical_and, logical_or
from .broadcasting import Fill
from .comparison import eq, ge, gt, isinf, le
from .control import where


@final
class Exp(Unary):
    fn = "exp"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, self)


@final
class Exp2(Unary):
    fn = "exp2"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, mul(self, math.log(2)))


@final
class Expm1(Unary):
    """exp(x) - 1, accurate for small x."""

    fn = "expm1"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, add(self, 1.0))


@final
class Log(Unary):
    fn = "log"

    def share_x(self, upstream: Value) -> Value | None:
        return div(upstream, self.x)


@final
class Log2(Unary):
    fn = "log2"

    def share_x(self, upstream: Value) -> Value | None:
        return div(upstream, mul(self.x, math.log(2)))


@final
class Log10(Unary):
    fn = "log10"

    def share_x(self, upstream: Value) -> Value | None:
        return div(upstream, mul(self.x, math.log(10)))


@final
class Log1p(Unary):
    """log(1 + x), accurate for small x."""

    fn = "log1p"

    def share_x(self, upstream: Value) -> Value | None:
        return div(upstream, add(self.x, 1.0))


@final
class Sqrt(Unary):
    fn = "sqrt"

    def share_x(self, upstream: Value) -> Value | None:
        return div(upstream, mul(self, 2.0))


@final
class Rsqrt(Unary):
    """1 / sqrt(x)."""

    fn = "rsqrt"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, mul(mul(self, mul(self, self)), -0.5))


@final
class Power(Binary):
    """x to the power y."""

    fn = "pow"
    cost = "expensive"

    def share_x(self, upstream: Value) -> Value | None:
        if isinstance(self.y, Fill) and not self.y.shape:
            n = self.y.value
            return zeros_like(upstream) if n == 0 else mul(upstream, mul(power(self.x, n - 1), n))
        less = where(eq(self.y, 0.0), 1.0, sub(self.y, 1.0))  # 0 times infinity would be NaN
        return mul(upstream, mul(self.y, power(self.x, less)))

    def share_y(self, upstream: Value) -> Value | None:
        at_zero = logical_and(eq(self.x, 0.0), ge(self.y, 0.0))
        return mul(upstream, where(at_zero, 0.0, mul(self, log(where(at_zero, 1.0, self.x)))))


def exp(x: Value) -> Value:
    return Exp(x)


def exp2(x: Value) -> Value:
    return Exp2(x)


def expm1(x: Value) -> Value:
    return Expm1(x)


def log(x: Value) -> Value:
    return Log(x)


def log2(x: Value) -> Value:
    return Log2(x)


def log10(x: Value) -> Value:
    return Log10(x)


def log1p(x: Value) -> Value:
    return Log1p(x)


def sqrt(x: Value) -> Value:
    return Sqrt(x)


def rsqrt(x: Value) -> Value:
    return Rsqrt(x)


def power(x: Operand, y: Operand) -> Value:
    """Raise x to the power y; small integer and half-integer exponents become products and roots."""
    if isinstance(x, Value) and not isinstance(y, Value):
        small = _small_power(x, y)
        if small is not None:
            return small
    return Power(*pair(x, y))


def _small_power(x: Value, n: float) -> Value | None:
    if n == 1:
        return x
    if n == 2:
        return square(x)
    if n == 3:
        return mul(square(x), x)
    if not x.dtype.is_float:
        return None
    match n:
        case 0.5:
            return sqrt(x)
        case -0.5:
            return rsqrt(x)
        case -1:
            return reciprocal(x)
        case -2:
            return reciprocal(square(x))
    return None


def logaddexp(x: Value, y: Value) -> Value:
    """Compute log(exp(x) + exp(y)) without overflow."""
    greater, less = _greater_and_gap(x, y)
    return add(greater, log1p(exp(less)))


def logaddexp2(x: Value, y: Value) -> Value:
    """Compute log2(2**x + 2**y) without overflow."""
    greater, less = _greater_and_gap(x, y)
    return add(greater, mul(log1p(exp2(less)), 1 / math.log(2)))


def _greater_and_gap(x: Value, y: Value) -> tuple[Value, Value]:
    """Return the greater operand and the distance of the other. Ties choose y: then derivatives of all orders are those
    of the smooth function.
    """
    distance = where(logical_and(eq(x, y), isinf(x)), 0.0, sub(x, y))
    above = gt(distance, 0.0)
    return where(above, x, y), where(above, neg(distance), distance)


def xlogy(x: Operand, y: Operand) -> Value:
    """Compute x * log(y), and 0 where x is 0 unless y is NaN."""
    a, b = pair(x, y)
    zero = logical_and(eq(a, 0.0), logical_or(le(b, 0.0), eq(b, math.inf)))
    return where(zero, 0.0, mul(a, log(where(zero, 1.0, b))))


def logit(x: Value, eps: float | None = None) -> Value:
    """Compute log(x / (1 - x)), the inverse of sigmoid; `eps` clamps x away from 0 and 1."""
    inner = x if eps is None else clamp(x, eps, 1 - eps)
    return log(div(inner, sub(1.0, inner)))
