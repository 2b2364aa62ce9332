"""The error function."""

from __future__ import annotations

from .exponential import bias, power_of_two, rounded, table
from .vector import Vector, absolute, at_most, copysign, fma, polynomial, where


def erf(x: Vector) -> Vector:
    """An odd polynomial up to 1; beyond, 1 - 2^-q(x), which is 1 from 3.93 on."""
    size = absolute(x)
    square = size * size
    near = fma(size, polynomial(square, table(x)["erf"]), size)
    exponent = -polynomial(at_most(size, 3.93), table(x)["erfc"])
    n, k = rounded(exponent, 1.0, bias(x))
    r = exponent - n
    tail = fma(r, polynomial(r, table(x)["exp2"]), 1.0) * power_of_two(k)
    return copysign(where(size < 1.0, near, 1.0 - tail), x)
