"""Trigonometric and hyperbolic functions, and the error function."""

from __future__ import annotations

import math
from typing import final

from ..ir.graph import Value
from .arithmetic import absolute, add, div, mul, neg, square, sub
from .base import Binary, Operand, Unary, pair
from .comparison import eq, lt
from .control import where
from .exponential import exp, rsqrt

SINC_SERIES_UP_TO, SINC_TERMS = 0.05, 5
"""Argument up to which sinc is a series, and its number of terms: the next one is below 3e-16 there."""


@final
class Sin(Unary):
    fn = "sin"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, cos(self.x))


@final
class Cos(Unary):
    fn = "cos"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, neg(sin(self.x)))


@final
class Tan(Unary):
    fn = "tan"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, add(square(self), 1.0))


@final
class Asin(Unary):
    fn = "asin"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, rsqrt(sub(1.0, square(self.x))))


@final
class Acos(Unary):
    fn = "acos"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, neg(rsqrt(sub(1.0, square(self.x)))))


@final
class Atan(Unary):
    fn = "atan"

    def share_x(self, upstream: Value) -> Value | None:
        return div(upstream, add(square(self.x), 1.0))


@final
class Atan2(Binary):
    """Angle of the point (y, x) in all four quadrants; here `x` is the first argument."""

    fn = "atan2"
    cost = "expensive"

    def _share(self, upstream: Value, other: Value) -> Value:
        norm = add(square(self.x), square(self.y))
        return mul(upstream, where(eq(norm, 0.0), 0.0, div(other, norm)))

    def share_x(self, upstream: Value) -> Value | None:
        return self._share(upstream, self.y)

    def share_y(self, upstream: Value) -> Value | None:
        return self._share(upstream, neg(self.x))


@final
class Sinh(Unary):
    fn = "sinh"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, cosh(self.x))


@final
class Cosh(Unary):
    fn = "cosh"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, sinh(self.x))


@final
class Tanh(Unary):
    fn = "tanh"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, sub(1.0, square(self)))


@final
class Asinh(Unary):
    fn = "asinh"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, rsqrt(add(square(self.x), 1.0)))


@final
class Acosh(Unary):
    fn = "acosh"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, rsqrt(sub(square(self.x), 1.0)))


@final
class Atanh(Unary):
    fn = "atanh"

    def share_x(self, upstream: Value) -> Value | None:
        return div(upstream, sub(1.0, square(self.x)))


@final
class Erf(Unary):
    """The error function."""

    fn = "erf"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, mul(exp(neg(square(self.x))), 2 / math.sqrt(math.pi)))


@final
class Erfc(Unary):
    """1 - erf(x), accurate for large x."""

    fn = "erfc"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, mul(exp(neg(square(self.x))), -2 / math.sqrt(math.pi)))


def sin(x: Value) -> Value:
    return Sin(x)


def cos(x: Value) -> Value:
    return Cos(x)


def tan(x: Value) -> Value:
    return Tan(x)


def asin(x: Value) -> Value:
    return Asin(x)


def acos(x: Value) -> Value:
    return Acos(x)


def atan(x: Value) -> Value:
    return Atan(x)


def atan2(y: Operand, x: Operand) -> Value:
    return Atan2(*pair(y, x))


def sinh(x: Value) -> Value:
    return Sinh(x)


def cosh(x: Value) -> Value:
    return Cosh(x)


def tanh(x: Value) -> Value:
    return Tanh(x)


def asinh(x: Value) -> Value:
    return Asinh(x)


def acosh(x: Value) -> Value:
    return Acosh(x)


def atanh(x: Value) -> Value:
    return Atanh(x)


def erf(x: Value) -> Value:
    return Erf(x)


def erfc(x: Value) -> Value:
    return Erfc(x)


def sinc(x: Value) -> Value:
    """Compute sin(pi x) / (pi x), and 1 at 0; near 0 by a series, as derivatives of the quotient lose digits."""
    near = lt(absolute(x), SINC_SERIES_UP_TO)
    angle = mul(where(near, 1.0, x), math.pi)
    z = square(mul(where(near, x, 0.0), math.pi))
    series: Value = mul(z, 0.0)
    for n in range(SINC_TERMS - 1, 0, -1):
        series = mul(z, add(series, (-1) ** n / math.factorial(2 * n + 1)))
    return where(near, add(series, 1.0), div(sin(angle), angle))


def deg2rad(x: Value) -> Value:
    return mul(x, math.pi / 180)


def rad2deg(x: Value) -> Value:
    return mul(x, 180 / math.pi)
