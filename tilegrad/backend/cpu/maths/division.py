"""fmod: the exact remainder of truncated division.

If the quotient is below 2^23 (2^52), one division, one fma and one correction are exact. Vectors with a larger quotient
take a branch that divides integers, some bits per iteration.
"""

from __future__ import annotations

from .exponential import mantissa_bits, scaled
from .logarithm import INFINITY, NAN
from .rare import unless
from .vector import Vector, absolute, bits_of, convert, copysign, fma, truncated, where


def fmod(x: Vector, y: Vector) -> Vector:
    size, divisor = absolute(x), absolute(y)
    ratio = size / divisor
    quotient = truncated(ratio)
    rest = fma(-quotient, divisor, size)
    rest = where(rest < 0.0, rest + divisor, rest)  # the ratio may have been rounded up to an integer
    usual = (ratio < 2.0 ** mantissa_bits(x)) & (divisor < INFINITY)
    return unless(usual, copysign(rest, x), "fmod", [x, y], long_fmod)


def long_fmod(x: Vector, y: Vector) -> Vector:
    """Compute fmod by long division of the mantissas, for all arguments."""
    b = x.builder
    size, divisor = absolute(x), absolute(y)
    m, e = _integer_and_exponent(size)
    d, f = _integer_and_exponent(divisor)
    safe = where(d.equals(0), 1, d)
    step = 62 - mantissa_bits(x)
    first = ((e - f).value, m.binary("urem", m, safe).value)
    label, carried = b.open_while([("left", first[0]), ("rest", first[1])])
    left, rest = (m.of(value) for value in carried)
    b.enter_while((left > 0).value)
    taken = where(left > step, step, left)
    following = ((left - taken).value, m.binary("urem", rest << taken, safe).value)
    _, found = b.close_while(label, carried, first, following)
    value = where(size < divisor, size, _from_integer(m.of(found), f, x.element))
    defined = (size < INFINITY) & (divisor > 0.0)
    return copysign(where(y.differs(y), y, where(defined, value, NAN)), x)


def _integer_and_exponent(x: Vector) -> tuple[Vector, Vector]:
    """Integers m and e of 64 bits with x = m 2^(e - bias - mantissa bits); denormals have e = 1."""
    bits = bits_of(x)
    if x.bits == 32:
        bits = bits.converted("zext", "i64")
    shift = mantissa_bits(x)
    field = bits.shift_in_zeros(shift)
    below = bits & ((1 << shift) - 1)
    denormal = field.equals(0)
    return where(denormal, below, below | (1 << shift)), where(denormal, 1, field)


def _from_integer(m: Vector, e: Vector, element: str) -> Vector:
    value = convert(m, "double")
    if element == "float":
        return convert(scaled(value, e + (2 * 1023 - 150)), "float")
    return scaled(value, e + (2 * 1023 - 1075))
