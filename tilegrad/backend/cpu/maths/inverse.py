"""asin, acos, atan, atan2."""

from __future__ import annotations

from .exponential import table
from .trigonometric import sign_of
from .vector import Vector, absolute, bits_of, copysign, fma, from_bits, polynomial, square_root, where

MAX_ADDENDS = {"float": 1e38, "double": 1e307}
"""Magnitudes up to which the sum of two numbers is finite, by element."""
TAN_EIGHTH = 0.41421356237309503
"""tan(pi/8): the polynomial of atan is accurate up to here."""


def asin(x: Vector) -> Vector:
    """Above 1/2 by the half angle: pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    size = absolute(x)
    near = size <= 0.5
    s, curve = _arc(size, near)
    high, low = table(x)["pi/2"][:2]
    far = high - (2.0 * s - fma(curve, -2.0, low))
    return copysign(where(near, s + curve, far), x)


def acos(x: Vector) -> Vector:
    size = absolute(x)
    near = size <= 0.5
    s, curve = _arc(size, near)
    high, low = table(x)["pi/2"][:2]
    s_signed, curve_signed = copysign(s, x), from_bits(bits_of(curve) ^ sign_of(x))
    middle = high - (s_signed - (low - curve_signed))
    angle = 2.0 * (s + curve)
    far = where(x < 0.0, 2.0 * high - (2.0 * s - fma(curve, -2.0, 2.0 * low)), angle)
    return where(near, middle, far)


def _arc(size: Vector, near: Vector) -> tuple[Vector, Vector]:
    """s and asin(s) - s, where s is the argument itself or that of the half angle; NaN above 1."""
    half = (1.0 - size) * 0.5
    square = where(near, size * size, half)
    s = where(near, size, square_root(half))
    return s, s * square * polynomial(square, table(size)["asin"])


def atan(x: Vector) -> Vector:
    return copysign(arc_tangent(absolute(x), x.like(1.0)), x)


def atan2(y: Vector, x: Vector) -> Vector:
    """Return the angle of (x, y), by the quotient in the first octants; zeros and infinities as in C99."""
    rise, run = absolute(y), absolute(x)
    rise, run = _scaled(rise, run)
    angle = arc_tangent(rise, run)
    angle = where(rise.equals(0.0), where(run.equals(run), 0.0, run), angle)
    high, low = table(x)["pi/2"][:2]
    left = 2.0 * high - (angle - 2.0 * low)
    return copysign(where(bits_of(x) < 0, left, angle), y)


def _scaled(rise: Vector, run: Vector) -> tuple[Vector, Vector]:
    """Scale both so that their sum cannot overflow; two infinities become two ones."""
    both = run.equals(float("inf")) & rise.equals(float("inf"))
    rise, run = where(both, 1.0, rise), where(both, 1.0, run)
    great = where(rise > run, rise, run) > MAX_ADDENDS[rise.element]
    return where(great, rise * 0.25, rise), where(great, run * 0.25, run)


def arc_tangent(rise: Vector, run: Vector) -> Vector:
    """atan(rise / run) of nonnegative numbers with one division: rotated by 0, pi/4 or pi/2, the quotient is at most
    tan(pi/8).
    """
    low = rise < TAN_EIGHTH * run
    steep = run < TAN_EIGHTH * rise
    above = where(steep, -run, where(low, rise, rise - run))
    below = where(steep, rise, where(low, run, rise + run))
    t = above / below
    square = t * t
    high, rest = table(rise)["pi/2"][:2]
    base = where(steep, rise.like(high), where(low, rise.like(0.0), high / 2))
    base_rest = where(steep, rise.like(rest), where(low, rise.like(0.0), rest / 2))
    return base + (t + fma(t * square, polynomial(square, table(rise)["atan"]), base_rest))
