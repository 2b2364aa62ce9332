"""pow.

x^y = e^(y log x). The absolute error of y log x is the relative error of the result: in float64 the logarithm is a sum
of two numbers, with 11 extra bits. float32 is computed in float64, which has them.
"""

from __future__ import annotations

from .exponential import exp_core, highest, lowest, table
from .logarithm import INFINITY, NAN, log, split_any
from .trigonometric import sign_of
from .vector import (
    Vector,
    absolute,
    at_least,
    at_most,
    bits_of,
    convert,
    fma,
    from_bits,
    polynomial,
    truncated,
    where,
    widened,
)

EXPONENT_BOUND = 800.0
"""Magnitude of an exponent of e from which the result is 0 or infinite, in float64 too."""


def pow(x: Vector, y: Vector) -> Vector:
    """C99's special cases: pow(1, y) and pow(x, 0) are 1 even of NaN; a negative x has integer powers only."""
    single = x.element == "float"
    if single:
        x, y = widened(x), widened(y)
    size = absolute(x)
    if single:
        value = exp_core(log(size) * y, lowest(x), highest(x))
    else:
        value = _exponential(y, *_precise_log(size))
    value = where(size.equals(1.0), 1.0, value)
    half = y * 0.5
    whole = truncated(y).equals(y)
    odd = whole & truncated(half).differs(half)
    value = from_bits(bits_of(value) ^ (sign_of(x) & bits_of(where(odd, x.like(-0.0), 0.0))))
    outside = (x < 0.0) & (x > -INFINITY) & whole.equals(0)
    value = where(x.equals(1.0) | y.equals(0.0), 1.0, where(outside, NAN, value))
    return convert(value, "float") if single else value


def _exponential(y: Vector, high: Vector, low: Vector) -> Vector:
    """e^(y (high + low))."""
    product = y * high
    rest = fma(y, high, -product) + y * low
    rest = where(absolute(product) < EXPONENT_BOUND, rest, 0.0)
    return exp_core(at_least(at_most(product, highest(y)), lowest(y)), None, None, rest=rest)


def _precise_log(x: Vector) -> tuple[Vector, Vector]:
    """log(x), as e ln(2) + 2 atanh(s) with s = f / (2 + f); each step keeps its rounding error."""
    e, f = split_any(x)
    s, s_rest = _quotient(f)
    z = s * s
    z_rest = fma(s, s, -z) + 2.0 * s * s_rest
    third, third_rest = table(x)["2/3"]
    bend = z * polynomial(z, table(x)["log precise"])
    q = bend + third
    q_rest = (third - q) + bend + third_rest
    cube = z * s
    cube_rest = fma(z, s, -cube) + fma(z_rest, s, z * s_rest)
    series = cube * q
    series_rest = fma(cube, q, -series) + fma(cube, q_rest, cube_rest * q)
    twice = s + s
    sum_ = twice + series
    sum_rest = (twice - sum_) + series + fma(s_rest, 2.0, series_rest)
    unit, unit_rest = table(x)["ln(2) short"]
    whole = e * unit
    high = whole + sum_
    low = (whole - high) + sum_ + fma(e, unit_rest, sum_rest)
    high = where(x < INFINITY, high, x)
    return where(x.equals(0.0), -INFINITY, high), low


def _quotient(f: Vector) -> tuple[Vector, Vector]:
    """f / (2 + f) and its rounding error."""
    below = f + 2.0
    below_rest = f - (below - 2.0)
    inverse = 1.0 / below
    s = f * inverse
    lacking = fma(-s, below, f) - s * below_rest
    return s, lacking * inverse
