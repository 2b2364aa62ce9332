"""Analyse how integers, masks and addresses change along a vector, to allow vectorised accesses.

A vector is an aligned run of elements along one axis of a tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ....ir import tile as ir
from ....ir.tile_types import Types
from .memoised import Memo, memoised

ANY_MULTIPLE = 1 << 30
"""0 is a multiple of everything."""


_NONNEGATIVE_IF = dict.fromkeys(("add", "mul", "floordiv", "minimum"), slice(None))
_NONNEGATIVE_IF |= {"where": slice(1, None), "mod": slice(1, None), "inside": slice(0)}
"""Arguments of a function whose result is not negative if they are not."""


class Pattern(NamedTuple):
    """The step from element to element of a vector (None: not constant), and a power of two that divides the value at
    the start of a vector.
    """

    step: int | None
    multiple: int


CONSTANT = Pattern(0, 1)
UNKNOWN = Pattern(None, 1)


def power_of_two(n: int) -> int:
    """Return the largest power of two that divides a number."""
    return n & -n or ANY_MULTIPLE


class Patterns:
    """Analyses the expressions of one kernel."""

    def __init__(self, types: Types, meanings: Mapping[str, ir.Tile], strides: Mapping[str, tuple[ir.Tile, ir.Tile]]):
        self.types = types
        self.position_values = meanings
        """Expressions of names that depend on positions alone."""
        self.strides = strides
        """Start and step of loop indices."""
        self.memo: Memo = {}
        self._known: dict[tuple[str | int, int, int], tuple[Pattern, ir.Tile]] = {}
        """Memo by name or identity; keeps the expression alive."""

    def of(self, x: ir.Tile, axis: int, width: int) -> Pattern:
        """Return the pattern along an axis for vectors of `width` elements; the axis of a scalar is negative."""
        if isinstance(x, ir.Literal):
            return Pattern(0, power_of_two(int(x.value)) if float(x.value).is_integer() else 1)
        key = (x.name if isinstance(x, ir.Name) else id(x), axis, width)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._of(x, axis, width), x
        return known[0]

    def _of(self, x: ir.Tile, axis: int, width: int) -> Pattern:
        shape = self.types.of(x).shape
        along = 0 <= axis < len(shape) and shape[axis] > 1
        match x:
            case ir.Name(name):
                return self._name(name, axis, width)
            case ir.Arange(start) if along:
                return Pattern(1, min(power_of_two(start), power_of_two(width)))
            case ir.Arange():
                return _range_pattern(x)
            case ir.Cast(y, dtype):
                exact = dtype.is_integer and self._is_integer(y)
                return self.of(y, axis, width) if exact else self._even(y, axis, width)
            case ir.Apply(fn, args):
                return self._apply(fn, args, [self.of(a, self._inner(a, shape, axis), width) for a in args], width)
            case ir.Full(_, y) | ir.Expand(y) | ir.BroadcastTo(y) | ir.Trans(y):
                return self.of(y, self._source_axis(x, axis), width)
        return UNKNOWN if along else CONSTANT

    def _source_axis(self, x: ir.Tile, axis: int) -> int:
        """Return the axis of a rearranged tile that corresponds to one of the result; -1 if there is none."""
        match x:
            case ir.Expand(_, axes) if axis >= 0 and axis not in axes:
                return axis - sum(a < axis for a in axes)
            case ir.BroadcastTo(y, wide):
                return self._inner(y, wide, axis)
            case ir.Trans(_, permutation) if axis >= 0:
                return permutation[axis]
        return -1

    @memoised
    def typical_step(self, x: ir.Tile, axis: int) -> int | None:
        """Return the step between most adjacent elements, ignoring jumps at the end of rows; None if unknown.

        `i // 13 * 24 + i % 13` has step 1.
        """
        even = self.of(x, axis, 2).step
        if even is not None:
            return even
        shape = self.types.of(x).shape
        match x:
            case ir.Name(name) if name in self.position_values:
                return self.typical_step(self.position_values[name], axis)
            case ir.Cast(y) | ir.Full(_, y):
                return self.typical_step(y, axis)
            case ir.Expand(y, axes):
                return self.typical_step(y, axis - sum(a < axis for a in axes))
            case ir.BroadcastTo(y, wide):
                return self.typical_step(y, self._inner(y, wide, axis))
            case ir.Apply("floordiv" | "mod" as fn, (y, ir.Literal(divisor))):
                step = self.typical_step(y, self._inner(y, shape, axis))
                if step is None or 2 * abs(step) > abs(int(divisor)):
                    return None
                return step if fn == "mod" else 0
            case ir.Apply("add" | "sub" | "mul" as fn, args):
                steps = [self.typical_step(a, self._inner(a, shape, axis)) for a in args]
                return self._combine_steps(fn, args, steps)
        return None

    def _combine_steps(self, fn: str, args: tuple[ir.Tile, ...], steps: list[int | None]) -> int | None:
        first, second = steps
        if first is None or second is None:
            return None
        if fn != "mul":
            return first + second if fn == "add" else first - second
        for factor, step in ((args[0], second), (args[1], first)):
            if isinstance(factor, ir.Literal):
                return step * int(factor.value)
        return None

    def _inner(self, y: ir.Tile, shape: tuple[int, ...], axis: int) -> int:
        """Return the axis of a broadcast operand that corresponds to an axis of the result."""
        if isinstance(y, ir.Literal) or not 0 <= axis < len(shape):
            return -1
        own = self.types.of(y).shape
        place = axis - (len(shape) - len(own))
        return place if place >= 0 and own[place] == shape[axis] else -1

    def _is_integer(self, x: ir.Tile) -> bool:
        return self.types.of(x).dtype.is_integer

    def _even(self, x: ir.Tile, axis: int, width: int) -> Pattern:
        return CONSTANT if self.of(x, axis, width).step == 0 else UNKNOWN

    def _name(self, name: str, axis: int, width: int) -> Pattern:
        t = self.types.variables[name]
        if name in self.position_values:
            return self.of(self.position_values[name], axis, width)
        if name in self.strides:
            return Pattern(0, min(self.of(x, -1, width).multiple for x in self.strides[name]))
        if t.pointer and not t.shape:
            return Pattern(0, ANY_MULTIPLE)
        return UNKNOWN if 0 <= axis < len(t.shape) and t.shape[axis] > 1 else CONSTANT

    def _apply(self, fn: str, args: tuple[ir.Tile, ...], parts: list[Pattern], width: int) -> Pattern:
        steps, multiple = [p.step for p in parts], min(p.multiple for p in parts)
        even = all(step == 0 for step in steps)
        match fn, steps:
            case ("add", [int(s), int(t)]):
                return Pattern(s + t, multiple)
            case ("sub", [int(s), int(t)]):
                return Pattern(s - t, multiple)
            case ("mul", _):
                return _product_pattern(args, parts)
            case ("floordiv" | "mod", _) if isinstance(args[1], ir.Literal) and int(args[1].value) > 0:
                return self._divided(fn, parts[0], int(args[1].value), width)
            case ("where" | "minimum" | "maximum", _):
                return Pattern(0 if even else None, min(p.multiple for p in parts[-2:]))
            case ("lt" | "ge", [1, 0]) | ("gt" | "le", [0, 1]):
                return CONSTANT if multiple >= width else UNKNOWN
        return CONSTANT if even else UNKNOWN

    def _divided(self, fn: str, x: Pattern, divisor: int, width: int) -> Pattern:
        within = divisor % width == 0 and x.multiple >= width and x.step == 1
        if fn == "mod":
            return Pattern(1 if within else 0 if x.step == 0 else None, min(x.multiple, power_of_two(divisor)))
        exact = divisor == power_of_two(divisor) and x.multiple % divisor == 0
        return Pattern(0 if within or x.step == 0 else None, x.multiple // divisor if exact else 1)

    @memoised
    def is_nonnegative(self, x: ir.Tile) -> bool:
        """Return whether an integer is known to be non-negative."""
        match x:
            case ir.Literal(start) | ir.Arange(start, _):
                return start >= 0
            case ir.Name(name):
                first = self.position_values.get(name) or self.strides.get(name, (None,))[0]
                return first is not None and self.is_nonnegative(first)
            case ir.Apply("maximum", args):
                return any(map(self.is_nonnegative, args))
            case ir.Apply(fn, args) if fn in _NONNEGATIVE_IF:
                return all(map(self.is_nonnegative, args[_NONNEGATIVE_IF[fn]]))
            case ir.Cast(y, dtype):
                return dtype.is_integer and self._is_integer(y) and self.is_nonnegative(y)
            case ir.Expand(y) | ir.BroadcastTo(y) | ir.Trans(y) | ir.Full(_, y):
                return self.is_nonnegative(y)
        return isinstance(x, ir.ProgramId | ir.NumPrograms) or self.types.of(x).dtype.kind == "uint"


def _range_pattern(x: ir.Arange) -> Pattern:
    """Return the pattern of a range along an axis on which it does not vary."""
    return Pattern(0, power_of_two(x.start) if x.stop == x.start + 1 else 1)


def _product_pattern(args: tuple[ir.Tile, ...], parts: list[Pattern]) -> Pattern:
    multiple = min(ANY_MULTIPLE, parts[0].multiple * parts[1].multiple)
    for factor, step in ((args[0], parts[1].step), (args[1], parts[0].step)):
        if isinstance(factor, ir.Literal) and step is not None:
            return Pattern(step * int(factor.value), multiple)
    return Pattern(0 if parts[0].step == parts[1].step == 0 else None, multiple)
