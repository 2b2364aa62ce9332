"""Cheaper code for particular expressions: a table of functions, each of which emits code or declines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import copysign, sqrt
from typing import TYPE_CHECKING, TypeAlias

from ....ir import tile as ir
from ....ir.dtype import float32, int32, int64
from ....ir.tile_types import TileType
from ..elementary import one_plus_erf
from ..emit import Builder, LlvmValue, constant
from .position import Position

if TYPE_CHECKING:
    from .elements import ElementEvaluator

Peephole: TypeAlias = "Callable[[ElementEvaluator, ir.Apply, Position, TileType], LlvmValue | None]"
"""Emits an expression at a position, or declines with None."""


def simpler(e: ElementEvaluator, x: ir.Apply, at: Position, t: TileType) -> LlvmValue | None:
    """Emit an expression by the first peephole that applies."""
    for peephole in PEEPHOLES.get(x.fn, ()):
        if (found := peephole(e, x, at, t)) is not None:
            return found
    return None


def _natural_division(e: ElementEvaluator, x: ir.Apply, at: Position, t: TileType) -> LlvmValue | None:
    """Divide a natural number by a constant: multiply and shift."""
    match x.args:
        case (y, ir.Literal(int() as divisor)) if divisor > 0:
            low, high = e.affine.interval(y)
            if low is not None and low >= 0 and high is not None and e.types.of(y).dtype is t.dtype:
                return divide_by_constant(e.b, x.fn, e.operand(y, at, t.shape, t.dtype), divisor, high)
    return None


def _split_index(e: ElementEvaluator, x: ir.Apply, at: Position, t: TileType) -> LlvmValue | None:
    """Add the uniform part of an int32 index of two axes once for all lanes."""
    if not at.lanes or len(t.shape) != 2 or t.dtype is not int32:
        return None
    uniform, varying = e.split_offset(x, at)
    if varying is None or varying.type.element != "i32":
        return None
    return e.b.op("add", e.b.splat(e.b.convert("trunc", uniform, "i32"), at.lanes), varying)


def _normal_distribution(e: ElementEvaluator, x: ir.Apply, at: Position, t: TileType) -> LlvmValue | None:
    """1 + erf(y sqrt(1/2)), as in gelu, by one formula."""
    match x.args:
        case (ir.Apply("erf", (ir.Apply("mul", (y, ir.Literal(factor))),)), ir.Literal(1)):
            if t.dtype is float32 and factor == sqrt(0.5):
                return one_plus_erf(e.b, e.operand(y, at, t.shape, float32))
    return None


def _range_check(e: ElementEvaluator, x: ir.Apply, at: Position, t: TileType) -> LlvmValue | None:
    """`(y >= 0) & (y < n)` by one unsigned comparison."""
    match x.args:
        case (ir.Apply("ge", (y, ir.Literal(0))), ir.Apply("lt", (z, ir.Literal(int(n))))):
            if y == z and n > 0 and e.types.of(y).dtype in (int32, int64):
                value = e.operand(y, at, t.shape, e.types.of(y).dtype)
                return e.b.compare("ult", value, constant(n, value.type))
    return None


def _masked_load(e: ElementEvaluator, x: ir.Apply, at: Position, t: TileType) -> LlvmValue | None:
    """`where(mask, load, 0)`, where the load has this mask already."""
    match x.args:
        case (condition, ir.Name(name), ir.Literal(number)) if number == 0 and copysign(1, number) > 0:
            load = e.inlined.get(name)
            if isinstance(load, ir.Load) and load.other is None and load.mask == condition:
                if e.types.of(load).shape == t.shape:
                    return e.evaluate(load, at, t.dtype)
    return None


PEEPHOLES: Mapping[str, tuple[Peephole, ...]] = {
    "floordiv": (_natural_division,),
    "mod": (_natural_division,),
    "add": (_split_index, _normal_distribution),
    "bitand": (_range_check,),
    "where": (_masked_load,),
}
"""The peepholes of each function, in the order in which they are tried."""


def divide_by_constant(b: Builder, fn: str, x: LlvmValue, divisor: int, max_dividend: int) -> LlvmValue:
    """Divide numbers from 0 to `max_dividend` by a constant: quotient (floordiv) or remainder (mod).

    The division becomes a multiplication and a shift, as long as the product does not overflow.
    """
    if divisor & (divisor - 1) == 0:
        if fn == "mod":
            return b.op("and", x, constant(divisor - 1, x.type))
        shift = divisor.bit_length() - 1
        return b.op("lshr", x, constant(shift, x.type)) if shift else x
    scale = _scale(divisor, max_dividend, x.type.bits)
    if scale is None:
        return b.op("udiv" if fn == "floordiv" else "urem", x, constant(divisor, x.type))
    factor, shift = scale
    quotient = b.op("lshr", b.op("mul", x, constant(factor, x.type)), constant(shift, x.type))
    return quotient if fn == "floordiv" else b.op("sub", x, b.op("mul", quotient, constant(divisor, x.type)))


def _scale(divisor: int, max_dividend: int, bits: int) -> tuple[int, int] | None:
    """Return a factor and a shift that divide the numbers up to `max_dividend`.

    >>> _scale(9, 255, 32)
    (57, 9)
    >>> all(x * 57 >> 9 == x // 9 for x in range(256))
    True
    """
    for shift in range(bits):
        factor = -(-(1 << shift) // divisor)
        if (factor * divisor - (1 << shift)) * max_dividend < 1 << shift:
            return (factor, shift) if factor * max_dividend < 1 << bits else None
    return None
