"""Integers that are linear in the lane of a vector: base + lane * stride.

Offsets are kept in this form as long as possible. It tells contiguous memory from scattered memory, and whether a
mask is a comparison with a bound; and a sum that is written out from the outermost scope inwards leaves one addition
in the innermost loop. Offsets are computed in 64 bits: that those of a kernel do not overflow is a rule of the language.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from .emit import I64, Builder, Type, Value, constant, lane_constants


class Linear(NamedTuple):
    """The sum of some scalars with factors, a number, and `lane` for each lane."""

    terms: tuple[tuple[Value, int], ...] = ()
    number: int = 0
    lane: int | Value = 0

    @property
    def is_uniform(self) -> bool:
        return self.lane == 0

    @property
    def is_number(self) -> bool:
        return not self.terms and self.lane == 0

    @property
    def multiple(self) -> int:
        """A number that surely divides the base; 0 if the base is 0."""
        found = self.number
        for value, factor in self.terms:
            found = gcd(found, value.multiple * factor)
        return found

    @property
    def negative(self) -> bool:
        """Whether it can be negative."""
        lane = self.lane
        return (
            self.number < 0 or not isinstance(lane, int) or lane < 0 or any(v.negative or f < 0 for v, f in self.terms)
        )

    @property
    def base(self) -> Linear:
        """Its value in the first lane."""
        return self._replace(lane=0)


ZERO, LANE = Linear(), Linear(lane=1)


def number(value: int) -> Linear:
    return Linear(number=value)


def term(value: Value) -> Linear:
    """A scalar (i64) as a sum."""
    return Linear(number=int(value.text)) if value.is_constant else Linear(((value, 1),))


def add(b: Builder, x: Linear, y: Linear, sign: int = 1) -> Linear:
    """x + y, or with `sign` -1 x - y."""
    sums = dict(x.terms)
    for value, factor in y.terms:
        sums[value] = sums.get(value, 0) + sign * factor
    terms = tuple([(v, f) for v, f in sums.items() if f])
    if isinstance(x.lane, int) and isinstance(y.lane, int):
        return Linear(terms, x.number + sign * y.number, x.lane + sign * y.lane)
    left, right = (_stride(lane) for lane in (x.lane, y.lane))
    return Linear(terms, x.number + sign * y.number, b.op("add" if sign > 0 else "sub", left, right, "stride"))


def scale(x: Linear, factor: int) -> Linear:
    assert isinstance(x.lane, int)
    if factor == 0:
        return ZERO
    return Linear(tuple([(v, f * factor) for v, f in x.terms]), x.number * factor, x.lane * factor)


def multiply(b: Builder, x: Linear, y: Linear) -> Linear | None:
    """x * y, unless both vary along the lanes."""
    if y.is_number and isinstance(x.lane, int):
        return scale(x, y.number)
    if x.is_number and isinstance(y.lane, int):
        return scale(y, x.number)
    if not y.is_uniform:
        x, y = y, x
    if not y.is_uniform:
        return None
    factor = scalar(b, y)
    base = ZERO if x.base == ZERO else term(_product(b, scalar(b, x.base), factor))
    if x.is_uniform:
        return base
    lane = factor if x.lane == 1 else b.op("mul", _stride(x.lane), factor, "stride")
    return base._replace(lane=lane)


def _product(b: Builder, x: Value, y: Value) -> Value:
    made = b.op("mul", x, y, "product")
    made.multiple, made.negative = x.multiple * y.multiple, x.negative or y.negative
    return made


def _stride(lane: int | Value) -> Value:
    return constant(lane, I64) if isinstance(lane, int) else lane


def scalar(b: Builder, x: Linear, hint: str = "i") -> Value:
    """The base as an i64, summed from the outermost scope inwards."""
    total: Value | None = None
    for value, factor in sorted(x.terms, key=lambda t: t[0].level):
        part = value
        if factor != 1:
            part = b.op("mul", value, constant(factor, I64), "scaled")
            part.multiple, part.negative = abs(factor) * value.multiple, value.negative or factor < 0
        total = part if total is None else b.op("add", total, part, hint)
    if total is None:
        return constant(x.number, I64)
    if x.number:
        total = b.op("add", total, constant(x.number, I64), hint)
    if len(x.terms) > 1 or x.number:
        total.multiple, total.negative = x.multiple or 1, x.base.negative
    return total


def vector(b: Builder, x: Linear, lanes: int, element: str) -> Value:
    """All lanes as integers of a type; a scalar if they are equal."""
    base = b.convert("trunc", scalar(b, x), element) if element != "i64" else scalar(b, x)
    if element != "i64" and base.is_constant:
        base = constant(x.number, Type(element))
    if x.is_uniform or not lanes:
        return base
    spread = b.splat(base, lanes)
    if isinstance(x.lane, int):
        steps = lane_constants([n * x.lane for n in range(lanes)], element)
    else:
        stride = b.splat(b.convert("trunc", x.lane, element) if element != "i64" else x.lane, lanes)
        steps = b.op("mul", stride, lane_constants(range(lanes), element), "steps")
    return b.op("add", spread, steps, "lanes")


def address(b: Builder, pointer: Value, element: str, x: Linear) -> Value:
    """The address of the first lane, moved scope by scope: what varies inside is added last."""
    levels = sorted({v.level for v, _ in x.terms})
    for level in levels:
        part = Linear(tuple([t for t in x.terms if t[0].level == level]))
        pointer = b.offset(pointer, element, scalar(b, part))
    return b.offset(pointer, element, constant(x.number, I64)) if x.number else pointer


def divide(b: Builder, x: Linear, divisor: int, lanes: int) -> tuple[Linear, Linear] | None:
    """x // divisor and x % divisor, where they are linear again over so many lanes."""
    if divisor <= 0:
        return None
    if isinstance(x.lane, int) and all(f % divisor == 0 for _, f in x.terms) and x.lane % divisor == 0:
        quotient = Linear(
            tuple([(v, f // divisor) for v, f in x.terms]), x.number // divisor, x.lane // divisor
        )
        return quotient, number(x.number % divisor)
    if x.is_uniform:
        return _divided(b, x, divisor)
    if x.lane != 1 or not lanes:
        return None
    # All lanes lie in one multiple of the divisor if they start at a multiple of their number, which divides it.
    if divisor % lanes or x.multiple % lanes:
        return None
    quotient, rest = _divided(b, x.base, divisor)
    return quotient, rest._replace(lane=1)


def _divided(b: Builder, x: Linear, divisor: int) -> tuple[Linear, Linear]:
    if x.is_number:
        return number(x.number // divisor), number(x.number % divisor)
    whole, by = scalar(b, x), constant(divisor, I64)
    shared = gcd(x.multiple, divisor)
    if not x.base.negative:
        quotient, rest = b.op("udiv", whole, by, "quotient"), b.op("urem", whole, by, "rest")
    else:
        quotient, rest = floor_divided(b, whole, by)
    quotient.negative, rest.negative, rest.multiple = x.base.negative, False, shared
    return term(quotient), term(rest)


def floor_divided(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """Quotient and remainder of signed integers, rounded down; the divisor must not be 0."""
    zero, one = constant(0, x.type), constant(1, x.type)
    quotient, rest = b.op("sdiv", x, y, "quotient"), b.op("srem", x, y, "rest")
    opposed = b.compare("slt", b.op("xor", rest, y), zero)
    down = b.op("and", opposed, b.compare("ne", rest, zero), "down")
    return b.select(down, b.op("sub", quotient, one), quotient), b.select(down, b.op("add", rest, y), rest)
