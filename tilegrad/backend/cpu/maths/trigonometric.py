"""sin, cos, tan.

Range reduction subtracts the nearest multiple of pi/2 (the number of quarter turns) in three parts by fma; two
polynomials give the sine and cosine of the remainder, and the quarter turns choose between them and the sign. That is
accurate up to 2^17 in float32 and 2^30 in float64. Vectors with a larger element take a branch in which each element's
product with 2/pi is formed in long integers.
"""

from __future__ import annotations

import math

from ..emit import LlvmValue, Type
from .coefficients import TWO_OVER_PI
from .exponential import mantissa_bits, rounded, table
from .rare import unless
from .vector import Vector, absolute, bits_of, convert, fma, from_bits, polynomial, two_sum, where

FAR = {"float": 2.0**17, "double": 2.0**30}
"""Magnitude from which on the reduction in three parts loses digits."""


def sin(x: Vector) -> Vector:
    size, quarter, r, rest = _reduced(x)
    near = from_bits(bits_of(rotated(r, rest, quarter)) ^ sign_of(x))
    return unless(size < FAR[x.element], near, "sin", [x], sin_by_integers)


def cos(x: Vector) -> Vector:
    size, quarter, r, rest = _reduced(x)
    return unless(size < FAR[x.element], rotated(r, rest, quarter + 1), "cos", [x], cos_by_integers)


def tan(x: Vector) -> Vector:
    """Return the tangent, in float64 only."""
    size, quarter, r, rest = _reduced(x)
    near = from_bits(bits_of(tangent(r, rest, quarter)) ^ sign_of(x))
    return unless(size < FAR[x.element], near, "tan", [x], tan_by_integers)


def sin_by_integers(x: Vector) -> Vector:
    r, rest, quarter = quarter_periods(x)
    return _nan_unless_finite(x, from_bits(bits_of(convert(rotated(r, rest, quarter), x.element)) ^ sign_of(x)))


def cos_by_integers(x: Vector) -> Vector:
    r, rest, quarter = quarter_periods(x)
    return _nan_unless_finite(x, convert(rotated(r, rest, quarter + 1), x.element))


def tan_by_integers(x: Vector) -> Vector:
    r, rest, quarter = quarter_periods(x)
    return _nan_unless_finite(x, from_bits(bits_of(tangent(r, rest, quarter)) ^ sign_of(x)))


def _nan_unless_finite(x: Vector, value: Vector) -> Vector:
    return where(absolute(x) < float("inf"), value, float("nan"))


# The parts.


def _reduced(x: Vector) -> tuple[Vector, Vector, Vector, Vector | None]:
    """|x|, the number of quarter turns, and the remainder; in float64 with its rounding error."""
    size = absolute(x)
    n, quarter = rounded(size, table(x)["2/pi"][0], 0)
    first, second, third = table(x)["pi/2"]
    exact = fma(n, -first, size)
    if x.element == "float":
        return size, quarter, fma(n, -third, fma(n, -second, exact)), None
    product = n * -second
    middle, lost = two_sum(exact, product)
    lost = lost + fma(n, -second, -product)
    r, lost_last = two_sum(middle, n * -third)
    return size, quarter, r, lost + lost_last


def _sine_and_cosine(r: Vector, rest: Vector | None) -> tuple[Vector, Vector]:
    """Sine and cosine of r + rest."""
    square = r * r
    cube = r * square
    curve = polynomial(square, table(r)["sin"])
    bend = fma(square, polynomial(square, table(r)["cos"]), -0.5)
    if rest is None:
        return fma(cube, curve, r), fma(square, bend, 1.0)
    return r + fma(cube, curve, rest), 1.0 + fma(square, bend, -(r * rest))


def _odd(quarter: Vector) -> Vector:
    return (quarter << (quarter.bits - 1)) < 0


def rotated(r: Vector, rest: Vector | None, quarter: Vector) -> Vector:
    """sin(r + rest + quarter pi/2); bits of `quarter` above the two lowest are ignored."""
    sine, cosine = _sine_and_cosine(r, rest)
    value = where(_odd(quarter), cosine, sine)
    return from_bits(bits_of(value) ^ ((quarter & 2) << (quarter.bits - 2)))


def tangent(r: Vector, rest: Vector | None, quarter: Vector) -> Vector:
    sine, cosine = _sine_and_cosine(r, rest)
    odd = _odd(quarter)
    return where(odd, -cosine, sine) / where(odd, sine, cosine)


def sign_of(x: Vector) -> Vector:
    """Return the sign bit."""
    return bits_of(x) & -(1 << (x.bits - 1))


def quarter_periods(x: Vector) -> tuple[Vector, Vector | None, Vector]:
    """|x| less the nearest number of quarter turns, in float64 (of a float64 with its rounding error), and that number
    modulo 4.

    |x| is m 2^e, m an integer. Of the 1280 bits of 2/pi after the point, those are used whose products with m 2^e have
    weights from 2 down to 2^-126 (2^-190): higher bits make whole turns, lower bits are negligible.
    """
    shift = mantissa_bits(x)
    window, words = (128, 256) if shift == 23 else (192, 1280)
    bits = bits_of(x)
    m = ((bits & ((1 << shift) - 1)) | (1 << shift)).converted("zext", f"i{window}")
    field = bits.shift_in_zeros(shift) & ((1 << (x.bits - 1 - shift)) - 1)
    e = (field - ((1 << (x.bits - 2 - shift)) - 1 + shift)).converted("sext", f"i{words}")
    two_over_pi = e.of(LlvmValue(str(TWO_OVER_PI >> (1280 - words)), Type(f"i{words}")))
    product = m * two_over_pi.shift_in_zeros((words + 2 - window) - e).converted("trunc", f"i{window}")
    quarter = (product + (1 << (window - 3))).shift_in_zeros(window - 2).converted("trunc", "i64")
    fraction = product << 2
    if shift == 23:
        top = fraction.shift_in_zeros(window - 64).converted("trunc", "i64")
        return convert(top, "double") * (math.pi / 2**65), None, quarter
    return *_times_half_pi(fraction), quarter


def _times_half_pi(fraction: Vector) -> tuple[Vector, Vector]:
    """Multiply a signed fraction of 192 bits by pi/2: its upper 128 bits are added in four exact pieces."""
    pieces = [convert(_piece(fraction, 192 - 32 * k), "double") * 2.0 ** (-32 * k) for k in (2, 3, 4)]
    top = (fraction >> 160).converted("trunc", "i64")
    first = convert(top, "double") * 2.0**-32
    high = first + pieces[0]
    low = (first - high) + pieces[0] + (pieces[1] + pieces[2])
    total = high + low
    low = (high - total) + low
    half_pi, half_pi_rest, _ = table(high)["pi/2"]
    r = total * half_pi
    return r, fma(total, half_pi, -r) + fma(total, half_pi_rest, low * half_pi)


def _piece(fraction: Vector, position: int) -> Vector:
    """32 bits from a position on, as a nonnegative integer."""
    return fraction.shift_in_zeros(position).converted("trunc", "i64") & 0xFFFFFFFF
