"""Interval analysis of a kernel's integers, for cheaper divisions and range checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ....ir import tile as ir
from ....ir.dtype import int32, int64
from ....ir.tile_types import Types
from ..emit import Builder, LlvmValue, constant

Interval: TypeAlias = tuple[int, int]
"""Least and greatest value."""

LIMITS = {int32: 31, int64: 63}


class IntegerRanges:
    """Intervals of integer expressions; a name is known while it stands for one expression."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self.values: dict[str, ir.Tile] = {}
        """Definitions of names."""
        self._counters: dict[str, Interval] = {}
        self._known: dict[int, tuple[ir.Tile, Interval | None]] = {}

    def set_counter(self, name: str, start: int, stop: int) -> None:
        """Set the interval of a loop counter."""
        self._counters[name] = (start, max(start, stop - 1))
        self._known = {}

    def of(self, x: ir.Tile) -> Interval | None:
        """Interval of an expression; None if it is unknown or may overflow."""
        if isinstance(x, ir.Literal):
            return (x.value, x.value) if type(x.value) is int else None
        known = self._known.get(id(x))
        if known is None:
            bits = LIMITS.get(self.types.of(x).dtype)
            found = self._of(x) if bits and not self.types.of(x).pointer else None
            fits = found is not None and bits and -1 << bits <= found[0] and found[1] < 1 << bits
            known = self._known[id(x)] = (x, found if fits else None)
        return known[1]

    def _of(self, x: ir.Tile) -> Interval | None:
        match x:
            case ir.Name(name):
                return self.of(self.values[name]) if name in self.values else self._counters.get(name)
            case ir.ProgramId() | ir.NumPrograms():
                return 0, (1 << 31) - 1
            case ir.Arange(start, stop):
                return start, stop - 1
            case ir.Expand(y, _) | ir.BroadcastTo(y, _) | ir.Cast(y, _) | ir.Full(_, y, _):
                return self.of(y)
            case ir.Apply(fn, (y, z)):
                one, two = self.of(y), self.of(z)
                return None if one is None or two is None else _interval_of(fn, one, two)
        return None

    def has_one_break(self, x: ir.Tile, lanes: int, step: Callable[[ir.Tile], int | None]) -> bool:
        """Whether consecutive elements have at most one break: all quotients change at the same positions."""
        found = [
            y for y in self._varying_subexpressions(x, step) if isinstance(y, ir.Apply) and y.fn in ("floordiv", "mod")
        ]
        divisors = [y.args[1].value if isinstance(y.args[1], ir.Literal) else 0 for y in found]
        least = min(divisors, default=0)
        if least < lanes or any(divisor % least for divisor in divisors):
            return False
        dividends = [self._dividend(y) for y in found]
        return all(y == dividends[0] for y in dividends)

    def _dividend(self, x: ir.Tile) -> ir.Tile:
        """The dividend of the innermost remainder."""
        while isinstance(x, ir.Apply) and x.fn in ("floordiv", "mod"):
            x = x.args[0]
            while isinstance(x, ir.Name) and isinstance(self.values.get(x.name), ir.Apply):
                named = self.values[x.name]
                if not isinstance(named, ir.Apply) or named.fn not in ("floordiv", "mod"):
                    return x
                x = named
        return x

    def _varying_subexpressions(self, x: ir.Tile, step: Callable[[ir.Tile], int | None]) -> list[ir.Tile]:
        """Subexpressions that vary along the last axis, through names."""
        found: dict[int, ir.Tile] = {}
        stack = [x]
        while stack:
            x = stack.pop()
            if id(x) not in found and step(x) != 0:
                found[id(x)] = x
                stack += [self.values[x.name]] if isinstance(x, ir.Name) and x.name in self.values else ir.parts(x)
        return list(found.values())

    def matched_range_check(self, x: ir.Tile) -> tuple[ir.Tile, int] | None:
        """Match `(x >= 0) & (x < n)`: return x and n."""
        match x:
            case ir.Apply("bitand", (ir.Apply("ge", (y, ir.Literal(0))), ir.Apply("lt", (z, ir.Literal(int() as n))))):
                if y == z and n > 0 and self.types.of(y).dtype in LIMITS:
                    return y, n
        return None


def _interval_of(fn: str, x: Interval, y: Interval) -> Interval | None:
    match fn:
        case "add":
            return x[0] + y[0], x[1] + y[1]
        case "sub":
            return x[0] - y[1], x[1] - y[0]
        case "mul":
            ends = [a * b for a in x for b in y]
            return min(ends), max(ends)
        case "minimum" | "maximum":
            chosen = min if fn == "minimum" else max
            return chosen(x[0], y[0]), chosen(x[1], y[1])
        case "floordiv" if y[0] == y[1] > 0:
            return x[0] // y[0], x[1] // y[0]
        case "mod" if y[0] == y[1] > 0:
            return (0, y[0] - 1) if x[0] < 0 or x[1] >= y[0] else x
    return None


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
    """A factor and a shift that divide the numbers up to `max_dividend`.

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
