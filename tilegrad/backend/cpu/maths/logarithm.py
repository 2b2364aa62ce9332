"""Logarithms and the inverses of the hyperbolic functions: log, log2, log10, log1p, asinh, acosh, atanh.

x = 2^e (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), so that near 1 the exponent is 0 and nothing cancels.
"""

from __future__ import annotations

from .exponential import bias, mantissa_bits, table
from .vector import Vector, absolute, bits_of, convert, copysign, fma, from_bits, polynomial, square_root, where

INFINITY = float("inf")
NAN = float("nan")
_LN2 = 0.6931471805599453
"""Natural logarithm of 2, rounded to float64."""
GREAT = 2.0**60
"""Magnitude from which on adding 1 changes nothing; its square is far from overflow."""
_HALF_ROOT = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCD}
"""The bits of sqrt(1/2)."""


def log(x: Vector) -> Vector:
    e, f = split_any(x)
    high, low = table(x)["ln(2)"]
    return at_the_ends(x, fma(e, high, f + fma(e, low, bend(f))))


def log2(x: Vector) -> Vector:
    return at_the_ends(x, in_base(x, "log2(e)", (1.0, 0.0)))


def log10(x: Vector) -> Vector:
    high, low = table(x)["log10(2) short"]
    return at_the_ends(x, in_base(x, "log10(e)", (high, low)))


def log1p(x: Vector) -> Vector:
    """Return the logarithm of u = 1 + x, with the rounding error of the sum added to the fraction."""
    u = x + 1.0
    kept = u - 1.0
    lost = (1.0 - (u - kept)) + (x - kept)
    exponent, f = split(u)
    last = offset(x) + 60  # beyond 2^60 the rounding error is negligible, and its scale would overflow
    bounded = where(exponent > last, last, exponent)
    f = fma(lost, from_bits((bias(x) + offset(x) - bounded) << mantissa_bits(x)), f)
    e = floating(exponent, x)
    high, low = table(x)["ln(2)"]
    result = at_the_ends(x, fma(e, high, f + fma(e, low, bend(f))), -1.0)
    return where(absolute(x) < 2.0 ** -(mantissa_bits(x) + 2), x, result)


def asinh(x: Vector) -> Vector:
    """log(|x| + sqrt(x² + 1)); log(2 |x|) where adding 1 changes nothing."""
    size = absolute(x)
    square = size * size
    great = size > GREAT
    usual = size + square / (square_root(square + 1.0) + 1.0)
    result = log1p(where(great, size, usual)) + where(great, x.like(_LN2), 0.0)
    return copysign(result, x)


def acosh(x: Vector) -> Vector:
    """log(x + sqrt(x² - 1)), by t = x - 1."""
    t = x - 1.0
    great = x > GREAT
    result = log1p(where(great, x, t + square_root(t * (t + 2.0)))) + where(great, x.like(_LN2), 0.0)
    return where(x < 1.0, NAN, result)


def atanh(x: Vector) -> Vector:
    """log((1 + |x|) / (1 - |x|)) / 2."""
    size = absolute(x)
    twice = size + size
    result = log1p(twice + twice * size / (1.0 - size)) * 0.5
    return copysign(where(size > 1.0, NAN, result), x)


# Parts.


def split(x: Vector) -> tuple[Vector, Vector]:
    """e + offset, an integer, and f of a positive normal number."""
    shift = mantissa_bits(x)
    zero = offset(x) << shift
    moved = bits_of(x) + (zero - _HALF_ROOT[x.element])
    exponent = moved.shift_in_zeros(shift) if zero else moved >> shift
    mantissa = bits_of(x) - (exponent << shift)
    return exponent, from_bits(mantissa + zero if zero else mantissa) - 1.0


def offset(x: Vector) -> int:
    """Offset that keeps float64 exponents positive: before AVX-512 there is neither a signed shift nor a conversion."""
    return 0 if x.element == "float" else bias(x)


def floating(exponent: Vector, x: Vector) -> Vector:
    """Convert e to a float; in 64 bits through the bits of 2^52 + e + offset."""
    if x.element == "float":
        return convert(exponent, "float")
    return from_bits(exponent | 0x4330000000000000) - (2.0**52 + offset(x))


def split_any(x: Vector) -> tuple[Vector, Vector]:
    """e, a float, and f of a positive number, denormals included."""
    shift = mantissa_bits(x)
    small = x < 2.0 ** (1 - bias(x))
    exponent, f = split(where(small, x * 2.0**shift, x))
    e = floating(exponent, x)
    return where(small, e - float(shift), e), f


def bend(f: Vector) -> Vector:
    """log(1 + f) - f; in float64 by s = f / (2 + f), whose series needs half as many terms."""
    if f.element == "float":
        return fma(f, polynomial(f, table(f)["log"]), -0.5) * (f * f)
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    return fma(s, fma(z, polynomial(z, table(f)["log"]), half_square), -half_square)


def in_base(x: Vector, factor: str, unit: tuple[float, float]) -> Vector:
    """e * unit + factor * log(1 + f), with the rounding errors of the product and the sum."""
    e, f = split_any(x)
    bent = bend(f)
    natural = f + bent
    rest = bent - (natural - f)
    high, low = table(x)[factor]
    scaled = natural * high
    scaled_rest = fma(natural, high, -scaled) + fma(natural, low, rest * high)
    whole = e * unit[0]
    total = whole + scaled
    return total + ((scaled - (total - whole)) + fma(e, unit[1], scaled_rest))


def at_the_ends(x: Vector, result: Vector, pole: float = 0.0) -> Vector:
    """-infinity at the pole, NaN left of it; infinity and NaN are returned unchanged."""
    inside = where(x < INFINITY, result, x)
    return where(x > pole, inside, where(x.equals(pole), x.like(-INFINITY), NAN))
