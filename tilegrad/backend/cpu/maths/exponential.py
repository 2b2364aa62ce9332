"""Exponentials and functions derived from them: exp, exp2, expm1, sigmoid, tanh, sinh, cosh.

e^x = 2^n e^r with n the integer nearest to x log2(e), so that |r| <= ln(2)/2, where a short polynomial suffices. Adding
1.5 * 2^(mantissa bits) rounds to an integer and leaves it in the low bits of the sum: one fma multiplies, rounds and
converts. The exponent bias is added in the same constant.
"""

from __future__ import annotations

from . import coefficients
from .vector import (
    Number,
    Vector,
    absolute,
    at_least,
    at_most,
    bits_of,
    copysign,
    fma,
    from_bits,
    polynomial,
    where,
)

TANH_NEAR = 0.55
"""tanh(0.55) is 1/2: above it 1 - t loses no bits."""


def table(x: Vector) -> dict[str, tuple[float, ...]]:
    if x.element == "float":
        return coefficients.SINGLE
    return coefficients.MIXED if x.for_float32 else coefficients.DOUBLE


def mantissa_bits(x: Vector) -> int:
    return 23 if x.element == "float" else 52


def bias(x: Vector) -> int:
    return 127 if x.element == "float" else 1023


def rounded(x: Vector, factor: Number, offset: int) -> tuple[Vector, Vector]:
    """Return the integer n nearest to x * factor, and an integer whose low bits are n + offset."""
    magic = 1.5 * 2 ** mantissa_bits(x) + offset
    moved = fma(x, factor, magic)
    return moved - magic, bits_of(moved)


def remainder(x: Vector, n: Vector) -> Vector:
    """x - n ln(2)."""
    high, low = table(x)["ln(2)"]
    return fma(n, -low, fma(n, -high, x))


def minus_one(r: Vector) -> Vector:
    """e^r - 1 for a remainder, with a relative error as small as that of e^r."""
    return fma(r * r, polynomial(r, table(r)["exp"]), r)


def power_of_two(exponent: Vector) -> Vector:
    """2^(k - bias), where k is in the low bits and 0 < k < 2 bias + 1; higher bits are shifted out."""
    return from_bits(exponent << (52 if exponent.bits == 64 else 23))


def scaled(x: Vector, exponent: Vector) -> Vector:
    """x * 2^(k - 2 bias) in two steps, so that denormals are rounded once and overflow gives infinity."""
    half = exponent.shift_in_zeros(1)
    return x * power_of_two(half) * power_of_two(exponent - half)


def exp_core(
    x: Vector, low: Number | None, high: Number | None, doubling: int = 0, rest: Vector | None = None
) -> Vector:
    """e^(x + rest) 2^doubling; below `low` and above `high`, if given, the result is 0 or infinity."""
    if high is not None:
        x = at_most(x, high)
    if low is not None:
        x = at_least(x, low)
    n, k = rounded(x, table(x)["log2(e)"][0], bias(x) if x.for_float32 else 2 * bias(x))
    r = remainder(x, n)
    p = minus_one(r if rest is None else r + rest) + 1.0
    if x.for_float32:  # float64 has enough exponents
        return p * power_of_two(k)
    return scaled(p, k + doubling if doubling else k)


def lowest(x: Vector) -> float:
    """Bound at and below which e^x is 0, chosen so that both scaling factors are 0 and no denormal occurs.

    Denormals are several times slower, and half of the scores in a causal tile are e^-infinity.
    """
    if x.for_float32:
        return -104.0
    return -176.0 if x.element == "float" else -1418.0


def highest(x: Vector) -> float:
    """Bound above which e^x is infinite; 2^n does not overflow yet."""
    return 89.0 if x.element == "float" or x.for_float32 else 710.0


def exp(x: Vector) -> Vector:
    return exp_core(x, lowest(x), highest(x))


def exp2(x: Vector) -> Vector:
    x = at_least(at_most(x, bias(x) + 2.0), -(bias(x) + mantissa_bits(x) + 2.0))
    n, k = rounded(x, 1.0, 2 * bias(x))
    r = x - n
    if x.element == "float":
        return scaled(fma(r, polynomial(r, table(x)["exp2"]), 1.0), k)
    return scaled(minus_one(r * table(x)["ln(2)"][0]) + 1.0, k)


def expm1(x: Vector) -> Vector:
    """2^n (e^r - 1) + (2^n - 1), at half the size: 2^128 would overflow."""
    y = at_least(at_most(x, highest(x)), -2.0 * mantissa_bits(x))
    n, k = rounded(y, table(x)["log2(e)"][0], bias(x) - 1)
    half = power_of_two(k)
    result = fma(half, minus_one(remainder(y, n)), half - 0.5) * 2.0
    return where(absolute(x) < 2.0 ** -(mantissa_bits(x) + 2), x, result)


def sigmoid(x: Vector) -> Vector:
    """1 / (1 + e^-x), computed from e = e^-|x|, which cannot overflow; left of 0 it is e / (1 + e) = e - e e / (1 + e).

    That form rounds e / (1 + e) in the smaller term: two instructions more, and the error stays below 2 ULP.
    """
    e = exp_core(-absolute(x), lowest(x), None)
    right = 1.0 / (e + 1.0)
    return where(x < 0.0, fma(-e, e * right, e), right)


def tanh(x: Vector) -> Vector:
    """Evaluate an odd polynomial where tanh < 1/2, and 1 - 2 / (e^2|x| + 1) beyond."""
    size = absolute(x)
    y = at_most(size, 10.0 if x.element == "float" else 20.0)
    n, k = rounded(y, 2 * table(x)["log2(e)"][0], bias(x))
    e = (minus_one(remainder(y + y, n)) + 1.0) * power_of_two(k)
    far = 1.0 - 2.0 / (e + 1.0)
    square = size * size
    near = fma(size * square, polynomial(square, table(x)["tanh"]), size)
    return copysign(where(size < TANH_NEAR, near, far), x)


def sinh(x: Vector) -> Vector:
    """(e^|x| - e^-|x|) / 2 from e^|x| / 2, which does not overflow before the result; a polynomial up to 1."""
    size = absolute(x)
    half = exp_core(size, None, highest(x) + 1, -1)
    square = size * size
    near = fma(size * square, polynomial(square, table(x)["sinh"]), size)
    return copysign(where(size < 1.0, near, half - 0.25 / half), x)


def cosh(x: Vector) -> Vector:
    half = exp_core(absolute(x), None, highest(x) + 1, -1)
    return half + 0.25 / half
