"""Stride analysis: how integers and addresses grow along an axis of a tile, to find contiguous vectors.

Quotients and remainders have no constant stride. But if vectors begin at multiples of their length, and the dividend
does, and the divisor is such a multiple too, no vector crosses a border: `i // 32 * 4096 + i % 32` is contiguous in
vectors of 8.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....ir import tile as ir
from ....ir.tile_types import Types
from .ranges import IntegerRanges


class Strides:
    """Strides of the expressions of a kernel; `inlined` has the expressions of names that are evaluated in place."""

    def __init__(self, types: Types, inlined: Mapping[str, ir.Tile], ranges: IntegerRanges) -> None:
        self.types, self.inlined, self.ranges = types, inlined, ranges
        self.multiples: dict[str, int] = {}
        """Known divisors of loop counters."""
        self._known: dict[tuple[int, int, bool, int], tuple[int | None, ir.Tile]] = {}
        """Strides, with their expressions, which are kept alive here."""

    def forget(self) -> None:
        """Drop what is known: names may have other expressions."""
        self._known = {}

    def stride(self, x: ir.Tile, axis: int = -1, *, local: bool = False, lanes: int = 0) -> int | None:
        """Stride of an integer or address along an axis, if it is constant.

        `local`: except where a quotient changes; `lanes`: within aligned vectors of this length.
        """
        if isinstance(x, ir.Literal | ir.ProgramId | ir.NumPrograms):
            return 0
        key = (id(x), axis, local, lanes)
        if key not in self._known:
            self._known[key] = self._stride(x, axis, local, lanes), x
        return self._known[key][0]

    def _stride(self, x: ir.Tile, axis: int, local: bool, lanes: int) -> int | None:
        shape = self.types.of(x).shape
        if len(shape) < -axis or shape[axis] == 1:
            return 0
        match x:
            case ir.Arange():
                return 1
            case ir.Name(name) if name in self.inlined:
                return self.stride(self.inlined[name], axis, local=local, lanes=lanes)
            case ir.Cast(y, target) if target.is_integer:
                return self.stride(y, axis, local=local, lanes=lanes)
            case ir.Full():
                return 0
            case ir.Expand(y, axes):
                inner = _axis_before_expansion(len(shape), axis, axes)
                return 0 if inner is None else self.stride(y, inner, local=local, lanes=lanes)
            case ir.BroadcastTo(y, _):
                return self.stride(y, axis, local=local, lanes=lanes)
            case ir.Apply():
                return self._stride_of_function(x, axis, local, lanes)
        return None

    def _stride_of_function(self, x: ir.Apply, axis: int, local: bool, lanes: int) -> int | None:
        match x:
            case ir.Apply("mod" | "floordiv" as fn, (y, ir.Literal(divisor))) if local or self._has_no_border(
                y, axis, lanes, divisor
            ):
                return self.stride(y, axis, local=local, lanes=lanes) if fn == "mod" else 0
        strides = [self.stride(y, axis, local=local, lanes=lanes) for y in x.args]
        if x.fn in ("add", "sub"):
            return _stride_of_sum(x.fn, *strides)
        if all(stride == 0 for stride in strides):
            return 0
        if x.fn == "mul":
            for stride, factor in zip(strides, reversed(x.args), strict=True):
                if stride is not None and isinstance(factor, ir.Literal):
                    return stride * int(factor.value)
        return None

    def _has_no_border(self, x: ir.Tile, axis: int, lanes: int, divisor: object) -> bool:
        """Whether a quotient is the same for all lanes of an aligned vector."""
        if not lanes or not isinstance(divisor, int) or divisor <= 0 or divisor % lanes:
            return False
        return self.stride(x, axis, lanes=lanes) == 1 and self._is_multiple(x, axis, lanes)

    def _is_multiple(self, x: ir.Tile, axis: int | None, n: int) -> bool:
        """Whether an integer is a multiple of n if the index along an axis is (None: always)."""
        match x:
            case ir.Literal(value):
                return isinstance(value, int) and value % n == 0
            case ir.Arange(start, _):
                return axis is not None and start % n == 0
            case ir.Name(name):
                return self._is_name_multiple(name, axis, n)
            case ir.Cast(y, _) | ir.BroadcastTo(y, _):
                return self._is_multiple(y, axis, n)
            case ir.Expand(y, axes):
                inner = None if axis is None else _axis_before_expansion(len(self.types.of(x).shape), axis, axes)
                return self._is_multiple(y, inner, n)
            case ir.Apply("add" | "sub", args):
                return all(self._is_multiple(y, axis, n) for y in args)
            case ir.Apply("mul", args):
                return any(self._is_multiple(y, axis, n) for y in args)
        return False

    def _is_name_multiple(self, name: str, axis: int | None, n: int) -> bool:
        if name in self.inlined:
            return self._is_multiple(self.inlined[name], axis, n)
        if name in self.ranges.values:
            return self._is_multiple(self.ranges.values[name], None, n)
        return self.multiples.get(name, 1) % n == 0

    def has_one_break(self, pointer: ir.Tile, lanes: int) -> bool:
        """Whether a vector is contiguous with at most one break between two rows."""
        match pointer:
            case ir.Apply("add", (ir.Name() as base, offset)) if not self.types.of(base).shape:
                return self.stride(pointer, local=True) == 1 and self.ranges.has_one_break(offset, lanes, self.stride)
        return False


def _axis_before_expansion(rank: int, axis: int, axes: tuple[int, ...]) -> int | None:
    """The axis of the operand of an expansion, counted from the end; None if it is a new one."""
    place = rank + axis
    return None if place in axes else axis + sum(a > place for a in axes)


def _stride_of_sum(fn: str, one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return None
    return one + other if fn == "add" else one - other
