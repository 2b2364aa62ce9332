"""The error function and its complement."""

from __future__ import annotations

from .exponential import bias, exp, exp_core, power_of_two, rounded, table
from .vector import Vector, absolute, at_most, copysign, fma, polynomial, where

MAX_NEAR_FLOAT, MAX_NEAR_DOUBLE, MAX_NEAR_COMPLEMENT = 0.875, 1.0, 0.75
"""Magnitudes up to which the polynomial near 0 is used: by erf in float32 and in float64, and by erfc."""


def erf(x: Vector) -> Vector:
    """Evaluate an odd polynomial near 0; beyond, 1 - erfc(|x|): erfc is below a sixth, so its errors hardly count."""
    if x.element == "double":
        size = absolute(x)
        return copysign(where(size < MAX_NEAR_DOUBLE, _near(size), 1.0 - _tail(size)), x)
    size = absolute(x)
    exponent = polynomial(at_most(size, 3.93), table(x)["erf tail"])
    n, k = rounded(exponent, 1.0, bias(x))
    r = exponent - n
    tail = fma(r, polynomial(r, table(x)["exp2 short"]), 1.0) * power_of_two(k)
    return copysign(where(size < MAX_NEAR_FLOAT, _near(size), 1.0 - tail), x)


def erfc(x: Vector) -> Vector:
    """Return the complementary error function, in float64 only."""
    size = absolute(x)
    tail = _tail(size)
    return where(size < MAX_NEAR_COMPLEMENT, 1.0 - copysign(_near(size), x), where(x < 0.0, 2.0 - tail, tail))


def one_plus_erf(x: Vector) -> Vector:
    """1 + erf(x sqrt(1/2)) in float32, to 1e-7: as accurate as the sum would be, in half the instructions.

    In a kernel with the derivative of gelu the exponential is shared.
    """
    size = at_most(absolute(x), 16.0)
    tail = exp(x * x * -0.5) * polynomial(size / (size + 4.0), table(x)["normal tail"])
    return where(x < 0.0, tail, 2.0 - tail)


def _near(size: Vector) -> Vector:
    return fma(size, polynomial(size * size, table(size)["erf"]), size)


def _tail(size: Vector) -> Vector:
    """erfc above 0.75: a polynomial of the slowly varying factor, times e^-x², with the rounding errors of x² and the
    quotient.
    """
    size = at_most(size, 11.0 if size.for_float32 else 27.5)
    below = fma(size, 2.0, 1.0)
    inverse = 1.0 / below
    above = polynomial((size - 3.0) / (size + 3.0), table(size)["erfc"])
    smooth = above * inverse
    square = size * size
    decay = exp_core(-square, None, None, rest=-fma(size, size, -square))
    if size.for_float32:
        return decay * smooth
    smooth_rest = fma(-smooth, below, fma(-smooth, fma(size, 2.0, 1.0 - below), above)) * inverse
    return fma(decay, smooth, decay * smooth_rest)
