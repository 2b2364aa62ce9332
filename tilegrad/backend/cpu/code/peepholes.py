"""Cheaper code for particular expressions: a table of functions, each of which emits code or declines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import copysign, sqrt
from typing import TYPE_CHECKING, TypeAlias

from ....ir import tile as ir
from ....ir.dtype import float32, int32
from ....ir.tile_types import TileType
from ..elementary import one_plus_erf
from ..emit import LlvmValue, constant
from .position import Position
from .ranges import divide_by_constant

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
            span = e.ranges.of(y)
            if span is not None and span[0] >= 0 and e.types.of(y).dtype is t.dtype:
                return divide_by_constant(e.b, x.fn, e.operand(y, at, t.shape, t.dtype), divisor, span[1])
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
    between = e.ranges.matched_range_check(x)
    if between is None:
        return None
    value = e.operand(between[0], at, t.shape, e.types.of(between[0]).dtype)
    return e.b.compare("ult", value, constant(between[1], value.type))


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
