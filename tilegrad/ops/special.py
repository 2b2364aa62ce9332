"""Special functions: log-gamma and its derivatives, Bessel functions, inverse error function, nextafter.

Elements are computed in float64 for every type: the series lose more digits than float32 has to spare.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import final

from ..errors import ArgumentError
from ..ir.dtype import float64, int16, int32, int64
from ..ir.graph import Value
from ..ir.scalar import Expr, apply, bitcast, const, where
from ..ir.scalar import cast as cast_element
from .arithmetic import add, mul, square
from .base import Binary, Unary
from .comparison import ne
from .control import where as choose
from .exponential import exp

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)
"""Bernoulli numbers B2, B4, B6, ..."""
ASYMPTOTIC_FROM = 10
"""Argument from which the asymptotic series in 1 / x is accurate; smaller arguments are shifted up."""

BESSEL_SERIES_UP_TO, SERIES_TERMS, ASYMPTOTIC_TERMS = 15.0, 50, 26
"""Argument up to which Bessel functions use the power series, its number of terms, and that of the asymptotic series.
"""


class _InFloat64(Unary):
    takes = "f"
    cost = "expensive"

    def scalar(self, *elements: Expr) -> Expr:
        (x,) = elements
        return cast_element(self.exact(cast_element(x, float64)), x.dtype)

    @abstractmethod
    def exact(self, x: Expr) -> Expr:
        """Compute the function of one float64 element."""


def _number(x: float) -> Expr:
    return const(x, float64)


def _shift_up(x: Expr) -> tuple[Expr, Expr]:
    """Shift an argument to at least `ASYMPTOTIC_FROM`; return it and whether it was shifted."""
    near = x < ASYMPTOTIC_FROM
    return where(near, x + ASYMPTOTIC_FROM, x), near


def _abs_sin_pi(x: Expr) -> Expr:
    """Compute |sin(pi x)| from the exact fractional part of x."""
    return apply("sin", (x - apply("floor", x)) * math.pi)


@final
class Lgamma(_InFloat64):
    """log|gamma(x)| by Stirling's series, below 1/2 by the reflection formula."""

    def exact(self, x: Expr) -> Expr:
        mirrored = x < 0.5
        z = where(mirrored, 1.0 - x, x)
        y, near = _shift_up(z)
        product = z
        for k in range(1, ASYMPTOTIC_FROM):
            product = product * (z + float(k))
        inverse = 1.0 / y
        series: Expr = _number(0.0)
        for k, b in reversed(list(enumerate(BERNOULLI, 1))):
            series = series * (inverse * inverse) + b / (2 * k * (2 * k - 1))
        large = (y - 0.5) * apply("log", y) - y + (series * inverse + 0.5 * math.log(2 * math.pi))
        value = large - where(near, apply("log", product), _number(0.0))
        value = where(apply("isinf", x), _number(math.inf), value)
        other = math.log(math.pi) - apply("log", apply("abs", _abs_sin_pi(x))) - value
        return where(mirrored & (x > -math.inf), other, value)

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, Digamma(self.x))


@final
class Digamma(_InFloat64):
    """Derivative of log gamma(x)."""

    def exact(self, x: Expr) -> Expr:
        mirrored = x < 0.0
        z = where(mirrored, 1.0 - x, x)
        y, near = _shift_up(z)
        inverse = 1.0 / y
        series: Expr = _number(0.0)
        for k, b in reversed(list(enumerate(BERNOULLI, 1))):
            series = (series + b / (2 * k)) * (inverse * inverse)
        passed: Expr = _number(0.0)
        for k in range(ASYMPTOTIC_FROM):
            passed = passed + 1.0 / (z + float(k))
        value = apply("log", y) - inverse * 0.5 - series - where(near, passed, _number(0.0))
        part = x - apply("floor", x)
        other = value - math.pi / apply("tan", part * math.pi)
        other = where(apply("eq", part, _number(0.0)), _number(math.nan), other)
        poles = apply("copysign", _number(math.inf), -x)
        return where(mirrored, other, where(apply("eq", x, _number(0.0)), poles, value))

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, Polygamma(self.x, 1))


@final
class Polygamma(_InFloat64):
    """Derivative of order n + 1 of log gamma(x), n at least 1; by reflection for negative x."""

    x: Value
    n: int

    def exact(self, x: Expr) -> Expr:
        n, sign = self.n, (-1.0) ** (self.n + 1)
        mirrored = x <= -1.0
        z = where(mirrored, 1.0 - x, x)
        y, near = _shift_up(z)
        inverse = 1.0 / y
        series: Expr = _number(0.0)
        for k, b in reversed(list(enumerate(BERNOULLI, 1))):
            factor = b * math.factorial(2 * k + n - 1) / math.factorial(2 * k)
            series = (series + factor) * (inverse * inverse)
        series = series + math.factorial(n - 1) + inverse * (0.5 * math.factorial(n))
        passed: Expr = _number(0.0)
        for k in range(ASYMPTOTIC_FROM):
            passed = passed + _power(1.0 / (z + float(k)), n + 1)
        value = (series * _power(inverse, n) + where(near, passed * float(math.factorial(n)), _number(0.0))) * sign
        part = x - apply("floor", x)  # the cotangent has period pi: use the fractional part of x
        cotangent = apply("cos", part * math.pi) / _abs_sin_pi(x)
        slope: Expr = _number(0.0)
        for factor in reversed(_cotangent_derivative(n)):
            slope = slope * cotangent + factor
        reflected = (-1.0) ** n * value - slope * math.pi ** (n + 1)
        return where(mirrored, where(apply("eq", part, _number(0.0)), _number(sign * math.inf), reflected), value)

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, Polygamma(self.x, self.n + 1))


def _cotangent_derivative(n: int) -> list[float]:
    """Return the n-th derivative of the cotangent as a polynomial in the cotangent.

    >>> _cotangent_derivative(1), _cotangent_derivative(2)
    ([-1.0, 0.0, -1.0], [0.0, 2.0, 0.0, 2.0])
    """
    found = [0.0, 1.0]
    for _ in range(n):
        slope = [k * factor for k, factor in enumerate(found)][1:]  # chain rule: times the derivative of the cotangent
        found = [-a - b for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return [x + 0.0 for x in found]


@final
class BesselI(_InFloat64):
    """Modified Bessel function of the first kind, by its power series or asymptotic series."""

    x: Value
    order: int

    def exact(self, x: Expr) -> Expr:
        n, size = self.order, apply("abs", x)
        square = size * size * 0.25
        near: Expr = _number(0.0)
        for k in reversed(range(SERIES_TERMS)):
            near = near * square + 1 / (math.factorial(k) * math.factorial(k + n))
        near = near * _power(size * 0.5, n) if n else near
        inverse, far, factors = 1.0 / size, _number(0.0), [1.0]
        for k in range(1, ASYMPTOTIC_TERMS):
            factors.append(-factors[-1] * (4 * n * n - (2 * k - 1) ** 2) / (8 * k))
        for factor in reversed(factors):
            far = far * inverse + factor
        half = apply("exp", size * 0.5)  # squared, which overflows only if the result does
        far = half * (half * (far / apply("sqrt", size * (2 * math.pi))))
        far = where(apply("isinf", size), size, far)
        value = where(size < BESSEL_SERIES_UP_TO, near, far)
        return where(x < 0.0, -value, value) if n % 2 else value

    def share_x(self, upstream: Value) -> Value | None:
        above = BesselI(self.x, self.order + 1)
        if not self.order:
            return mul(upstream, above)
        return mul(upstream, mul(add(BesselI(self.x, self.order - 1), above), 0.5))


def _power(x: Expr, n: int) -> Expr:
    result = x
    for _ in range(n - 1):
        result = result * x
    return result


@final
class Erfinv(_InFloat64):
    """Inverse error function: an initial guess (Winitzki 2008), then Halley steps.

    For large |x| the steps use erfc, which keeps the digits that erf loses.
    """

    def exact(self, x: Expr) -> Expr:
        size = apply("abs", x)
        rest = 1.0 - size
        a = 0.147
        log = apply("log", rest * (1.0 + size))
        half = log * 0.5 + 2 / (math.pi * a)
        y = apply("sqrt", apply("sqrt", half * half - log / a) - half)
        for _ in range(3):
            miss = where(size < 0.5, apply("erf", y) - size, rest - apply("erfc", y))
            step = miss / (apply("exp", -(y * y)) * (2 / math.sqrt(math.pi)))
            y = y - step / (1.0 + y * step)
        y = where(apply("eq", rest, _number(0.0)), _number(math.inf), y)
        y = where(apply("eq", x, _number(0.0)), x, apply("copysign", y, x))
        return where(size > 1.0, _number(math.nan), y)

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, mul(exp(square(self)), math.sqrt(math.pi) / 2))


@final
class Nextafter(Binary):
    """Next representable number after x towards y."""

    takes = "f"

    def scalar(self, *elements: Expr) -> Expr:
        x, y = elements
        dtype = {16: int16, 32: int32, 64: int64}[x.dtype.bits]
        bits = bitcast(x, dtype)
        away = apply("eq", y > x, x > 0.0)
        moved = bitcast(bits + where(away, const(1, dtype), const(-1, dtype)), x.dtype)
        least = apply("copysign", bitcast(const(1, dtype), x.dtype), y)
        moved = where(apply("eq", x, const(0.0, x.dtype)), least, moved)
        moved = where(apply("eq", x, y), y, moved)
        return where(apply("isnan", x) | apply("isnan", y), const(math.nan, x.dtype), moved)

    def share_x(self, upstream: Value) -> Value | None:
        return choose(ne(self.x, self.y), upstream, 0)

    def share_y(self, upstream: Value) -> Value | None:
        return mul(upstream, 0)


def lgamma(x: Value) -> Value:
    return Lgamma(x)


def digamma(x: Value) -> Value:
    return Digamma(x)


def polygamma(n: int, x: Value) -> Value:
    """Return the n-th derivative of digamma."""
    if n < 0:
        raise ArgumentError(f"polygamma: n is {n}; derivatives are counted from 0")
    return Polygamma(x, n) if n else Digamma(x)


def erfinv(x: Value) -> Value:
    return Erfinv(x)


def nextafter(x: Value, y: Value) -> Value:
    return Nextafter(x, y)
