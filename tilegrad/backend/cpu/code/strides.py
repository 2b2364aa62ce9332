"""Stride analysis: how integers and addresses grow along an axis of a tile, to find contiguous vectors.

Quotients and remainders have no constant stride. But if vectors begin at multiples of their length, and the dividend
does, and the divisor is such a multiple too, no vector crosses a border: `i // 32 * 4096 + i % 32` is contiguous in
vectors of 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ir import tile as ir

if TYPE_CHECKING:
    from .elements import ElementEvaluator


def step(e: ElementEvaluator, x: ir.Tile, axis: int, local: bool, lanes: int) -> int | None:
    """Stride of an integer or address along an axis, if it is constant.

    `local`: except where a quotient changes; `lanes`: within aligned vectors of this length. Shared subexpressions are
    analysed once (`ElementEvaluator.step`).
    """
    if isinstance(x, ir.Literal | ir.ProgramId | ir.NumPrograms):
        return 0
    shape = e.types.of(x).shape
    if len(shape) < -axis or shape[axis] == 1:
        return 0
    match x:
        case ir.Arange():
            return 1
        case ir.Name(name):
            return e.step(e.inlined[name], axis, local, lanes) if name in e.inlined else None
        case ir.Cast(y, target):
            return e.step(y, axis, local, lanes) if target.is_integer else None
        case ir.Full():
            return 0
        case ir.Expand(y, axes):
            place = len(shape) + axis
            return 0 if place in axes else e.step(y, axis + sum(a > place for a in axes), local, lanes)
        case ir.BroadcastTo(y, _):
            return e.step(y, axis, local, lanes)
        case ir.Apply("add" | "sub" as fn, (y, z)):
            one, two = e.step(y, axis, local, lanes), e.step(z, axis, local, lanes)
            return None if one is None or two is None else one + two if fn == "add" else one - two
        case ir.Apply("mul", (y, z)):
            y, z = (z, y) if isinstance(y, ir.Literal) else (y, z)
            one, two = e.step(y, axis, local, lanes), e.step(z, axis, local, lanes)
            if one == 0 and two == 0:
                return 0
            return one * int(z.value) if isinstance(z, ir.Literal) and one is not None else None
        case ir.Apply("mod" | "floordiv" as fn, (y, ir.Literal(divisor))) if local or _has_no_border(
            e, y, axis, lanes, divisor
        ):
            return e.step(y, axis, local, lanes) if fn == "mod" else 0
        case ir.Apply(_, args):
            return 0 if all(e.step(a, axis, local, lanes) == 0 for a in args) else None
    return None


def _has_no_border(e: ElementEvaluator, x: ir.Tile, axis: int, lanes: int, divisor: object) -> bool:
    """Whether a quotient is the same for all lanes of an aligned vector."""
    if not lanes or not isinstance(divisor, int) or divisor <= 0 or divisor % lanes:
        return False
    return e.step(x, axis, lanes=lanes) == 1 and _is_multiple(e, x, axis, lanes)


def _is_multiple(e: ElementEvaluator, x: ir.Tile, axis: int | None, n: int) -> bool:
    """Whether an integer is a multiple of n if the index along an axis is (None: always)."""
    match x:
        case ir.Literal(value):
            return isinstance(value, int) and value % n == 0
        case ir.Arange(start, _):
            return axis is not None and start % n == 0
        case ir.Name(name) if name in e.inlined:
            return _is_multiple(e, e.inlined[name], axis, n)
        case ir.Name(name) if name in e.ranges.values:
            return _is_multiple(e, e.ranges.values[name], None, n)
        case ir.Name(name):
            return e.multiples.get(name, 1) % n == 0
        case ir.Cast(y, _) | ir.BroadcastTo(y, _):
            return _is_multiple(e, y, axis, n)
        case ir.Expand(y, axes):
            place = len(e.types.of(x).shape) + (axis or 0)
            inner = None if axis is None or place in axes else axis + sum(a > place for a in axes)
            return _is_multiple(e, y, inner, n)
        case ir.Apply("add" | "sub", (y, z)):
            return _is_multiple(e, y, axis, n) and _is_multiple(e, z, axis, n)
        case ir.Apply("mul", (y, z)):
            return _is_multiple(e, y, axis, n) or _is_multiple(e, z, axis, n)
    return False
