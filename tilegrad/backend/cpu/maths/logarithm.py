"""Logarithms: log, log2, log10, log1p.

x = 2^e m with m between sqrt(1/2) and sqrt(2), so that near 1 the exponent is 0 and nothing cancels.
"""

from __future__ import annotations

from .exponential import mantissa_bits, table
from .vector import Vector, bits_of, constant, convert, fma, from_bits, polynomial, where

INFINITY = float("inf")
NAN = float("nan")
_HALF_ROOT = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCD}
"""The bits of sqrt(1/2)."""


def split(x: Vector) -> tuple[Vector, Vector]:
    """A positive normal number as e and m - 1."""
    above = bits_of(x) - _HALF_ROOT[x.element]
    e = above >> mantissa_bits(x)
    m = from_bits(bits_of(x) - (e << mantissa_bits(x)))
    return convert(e, x.element), m - 1.0


def log(x: Vector) -> Vector:
    shift = mantissa_bits(x)
    small = x < 2.0 ** (-126 if shift == 23 else -1022)
    e, f = split(where(small, x * 2.0**shift, x))
    e = e - where(small, e.like(float(shift)), 0.0)
    high, low = table(x)["ln(2)"]
    square = f * f
    tail = fma(fma(f, polynomial(f, table(x)["log"]), -0.5), square, e * low)
    return at_the_ends(x, fma(e, high, f + tail))


def at_the_ends(x: Vector, result: Vector, argument_at_pole: float = 0.0) -> Vector:
    """-infinity at the pole, NaN left of it, infinity and NaN as they are."""
    finite = bits_of(x) - 1
    return where(
        x > argument_at_pole, where(x < INFINITY, result, x), where(x.equals(argument_at_pole), x.like(-INFINITY), NAN)
    )
