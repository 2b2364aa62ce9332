"""Affine analysis: how integers, masks and addresses grow along an axis of a tile, what divides them, and their bounds.

    x + i // 16 * 4096 + i % 16        step 1 along the axis of i, in vectors of 4, 8 or 16 elements

Quotients and remainders have no constant step. But if vectors begin at multiples of their length, and the
dividend does, and the divisor is such a multiple too, no vector crosses a border.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce, wraps
from math import gcd
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from ..ir import tile as ir
from ..ir.tile_access import assigned_name, count_assignments, statements
from ..ir.tile_types import Types

Method = TypeVar("Method", bound=Callable[..., Any])
ABSENT_AXIS = -(1 << 30)
"""An axis that no tile has."""


class Growth(NamedTuple):
    """The growth of a value along an axis, by vectors of adjacent elements."""

    step: int | None
    """Step from element to element of a vector; None: not constant."""
    divisor: int
    """Divisor of the value at the start of each vector; 0: the value is 0, or the address of a parameter."""

    def is_multiple(self, n: int) -> bool:
        return self.divisor % n == 0

    @property
    def alignment(self) -> int:
        """The largest power of two that divides the start of each vector."""
        return power_of_two(self.divisor)


class Interval(NamedTuple):
    """The least and greatest value of an integer; None: unknown."""

    low: int | None
    high: int | None


Tiles: TypeAlias = Sequence[ir.Tile]
Growths: TypeAlias = Sequence[Growth]
Loops: TypeAlias = tuple[ir.For, ...]
Sum: TypeAlias = Mapping[ir.Tile, int]
"""A sum of terms with their factors."""
ONE = ir.Literal(1)
"""The term of constants."""
UNIFORM, UNKNOWN = Growth(0, 1), Growth(None, 1)
ANY = Interval(None, None)


def power_of_two(n: int) -> int:
    """Return the largest power of two that divides a number."""
    return n & -n or 1 << 30


def memoised(question: Method) -> Method:
    """Memoise a method that analyses expressions in `self.memo`, which keeps them alive."""
    called = question.__name__

    @wraps(question)
    def wrapper(self: Any, x: ir.Tile, *arguments: Any) -> Any:
        key = (called, x.name if isinstance(x, ir.Name) else id(x), *arguments)
        known = self.memo.get(key)
        if known is None:
            known = self.memo[key] = question(self, x, *arguments), x
        return known[0]

    return cast(Method, wrapper)


class Affine:
    """Analyses the integer expressions of one kernel.

    Axes count from the last, -1, as in broadcasting. `lanes` is the length of vectors that begin at multiples of it; 0:
    the axis as a whole. The answers for typical elements ignore jumps between rows: `i // 13 * 24 + i % 13` has step 1.

    >>> i, x = ir.Arange(0, 64), Affine(Types({}), {}, {})
    >>> x.growth(i // 16 * 4096 + i % 16, -1, 8), x.growth(i // 16 * 4096 + i % 16, -1, 32)
    (Growth(step=1, divisor=8), Growth(step=None, divisor=16))
    >>> x.interval(i * 3 + 1)
    Interval(low=1, high=190)
    """

    def __init__(self, types: Types, definitions: Mapping[str, ir.Tile], loops: Mapping[str, Loops]) -> None:
        self.types = types
        self.definitions = dict(definitions)
        """Expressions of names that are assigned once."""
        self.loops = dict(loops)
        """Loops by their counters; several loops may have one counter."""
        self.divisors: dict[str, int] = {}
        """Divisors of numbers and addresses that are assigned several times."""
        self.memo: dict[tuple[Any, ...], tuple[Any, ir.Tile]] = {}

    def find_divisors(self, kernel: ir.Kernel) -> None:
        """Find divisors of numbers and addresses that are assigned several times, as in a loop: `p += 64`."""
        values = self._reassigned(kernel)
        found = dict.fromkeys(values, 0)
        while found != self.divisors:
            self.divisors = found
            self.memo.clear()
            found = {name: gcd(*map(self.divisor, given)) for name, given in values.items()}

    def _reassigned(self, kernel: ir.Kernel) -> dict[str, list[ir.Tile]]:
        """Return numbers and addresses that are assigned several times, with what their divisors follow from."""
        numbers = [p.name for p in kernel.parameters if not p.pointer]
        values: dict[str, list[ir.Tile]] = {}
        for s in statements(kernel.body):
            name = assigned_name(s)
            if not name or name in self.definitions or name in self.loops or self.types.variables[name].shape:
                continue
            known = values.setdefault(name, [ONE] if name in numbers else [])
            match s:
                case ir.Assign(_, value):
                    known.append(value)
                case ir.For(_, start, _, step):
                    known += [start, step]
                case _:
                    known.append(ONE)
        return values

    def define(self, name: str, value: ir.Tile) -> None:
        """Add the expression of a name."""
        if self.definitions.get(name) is not value:
            self.definitions[name] = value
            self.memo.clear()

    def enter(self, loop: ir.For) -> None:
        """Enter a loop: until the next one with its counter, the bounds of the counter are those of this loop."""
        self.loops[loop.index] = (loop,)
        self.memo.clear()

    def add(self, loop: ir.For) -> None:
        """Add a loop to those with its counter; bounds and divisors of the counter hold in all of them."""
        self.loops[loop.index] = (*self.loops.get(loop.index, ()), loop)
        self.memo.clear()

    def resolved(self, x: ir.Tile) -> ir.Tile:
        """Return the expression of a name, if it is known."""
        while isinstance(x, ir.Name) and x.name in self.definitions:
            x = self.definitions[x.name]
        return x

    @memoised
    def expanded(self, x: ir.Tile) -> ir.Tile:
        """Inline the names in an expression."""
        if isinstance(x, ir.Name):
            return self.expanded(self.definitions[x.name]) if x.name in self.definitions else x
        from ..ir.tile_rewrite import map_operands  # simple kernels do not need it

        return map_operands(x, self.expanded)

    @memoised
    def expanded_size(self, x: ir.Tile) -> int:
        """Return the number of nodes of an expression with its names inlined."""
        if isinstance(x, ir.Name):
            return self.expanded_size(self.definitions[x.name]) if x.name in self.definitions else 1
        return 1 + sum(map(self.expanded_size, ir.parts(x)))

    # --- sums of terms ---------------------------------------------------------------------------

    @memoised
    def linear(self, x: ir.Tile) -> Sum:
        """Return an integer or address as a sum: terms with their factors, a constant as the factor of 1.

        >>> i, affine = ir.Arange(4, 8), Affine(Types({}), {}, {})
        >>> print(*(f"{factor} * {term}" for term, factor in affine.linear(i * 3 + ir.ProgramId(0) - 2).items()))
        3 * tl.arange(0, 4) 10 * 1 1 * tl.program_id(0)
        """
        match self.resolved(x):
            case ir.Literal(int(value)):
                return {ONE: value} if value else {}
            case ir.Arange(start, stop):
                return add_sums({ir.Arange(0, stop - start): 1}, {ONE: start})
            case ir.BroadcastTo(y) | ir.ExpandDims(y) | ir.Full(_, y):
                return self.linear(y)
            case ir.Cast(y, dtype) if dtype.is_integer and (isinstance(y, ir.Literal) or self._is_integer(y)):
                return self.linear(y)
            case ir.Apply("mul", (y, ir.Literal(int(by)))) | ir.Apply("mul", (ir.Literal(int(by)), y)):
                return add_sums({}, self.linear(y), by)
            case ir.Apply("add" | "sub" as fn, (y, z)):
                return add_sums(self.linear(y), self.linear(z), 1 if fn == "add" else -1)
        return {self.resolved(x): 1}

    def first(self, x: ir.Tile) -> Sum:
        """Return the first element of an integer tile, or of addresses, as a sum."""
        return {term: factor for term, factor in self.linear(x).items() if not isinstance(term, ir.Arange)}

    def distance(self, one: ir.Tile, other: ir.Tile) -> int | None:
        """Return the constant distance of the first elements of two tiles, if it is known."""
        left = add_sums(self.first(other), self.first(one), -1)
        return left.get(ONE, 0) if not left.keys() - {ONE} else None

    def _is_integer(self, x: ir.Tile) -> bool:
        return self.types.of(x).dtype.is_integer

    # --- growth ----------------------------------------------------------------------------------

    def step(self, x: ir.Tile, axis: int = -1, lanes: int = 0, typical: bool = False) -> int | None:
        """Return the constant step of an integer or address along an axis, or None."""
        return self.growth(x, axis, lanes, typical).step

    def is_vector(self, x: ir.Tile, axis: int, lanes: int) -> bool:
        """Return whether vectors of elements are contiguous and aligned."""
        growth = self.growth(x, axis, lanes)
        return growth.step == 1 and growth.is_multiple(lanes)

    def divisor(self, x: ir.Tile) -> int:
        """Return a divisor of the first element of an integer tile (of an address: in elements)."""
        return self.growth(x, None).divisor

    def growth(self, x: ir.Tile, axis: int | None, lanes: int = 0, typical: bool = False) -> Growth:
        """Return the growth along an axis; `None`: only the first element of the tile is looked at."""
        if isinstance(x, ir.Literal):
            return Growth(0, abs(int(x.value)) if float(x.value).is_integer() else 1)
        key = (x.name if isinstance(x, ir.Name) else id(x), axis, lanes, typical)
        known = self.memo.get(key)
        if known is None:
            rule = GROWTH_RULES.get(type(x), Affine._growth_of_other)
            known = self.memo[key] = rule(self, x, axis, lanes, typical), x
        return known[0]

    def _varies(self, x: ir.Tile, axis: int | None) -> bool:
        """Whether a tile has several elements along an axis."""
        shape = self.types.of(x).shape
        return axis is not None and -axis <= len(shape) and shape[axis] > 1

    def _growth_of_other(self, x: ir.Tile, axis: int | None, lanes: int, typical: bool) -> Growth:
        return UNKNOWN if self._varies(x, axis) else UNIFORM

    def _growth_of_name(self, x: ir.Name, axis: int | None, lanes: int, typical: bool) -> Growth:
        name = x.name
        if name in self.definitions:
            return self.growth(self.definitions[name], axis, lanes, typical)
        if name in self.loops:
            return Growth(0, gcd(*(self.divisor(x) for loop in self.loops[name] for x in (loop.start, loop.step))))
        if name in self.divisors:
            return Growth(0, self.divisors[name])
        t = self.types.of(x)
        return Growth(0, 0) if t.pointer and not t.shape else self._growth_of_other(x, axis, lanes, typical)

    def _growth_of_range(self, x: ir.Arange, axis: int | None, lanes: int, typical: bool) -> Growth:
        if self._varies(x, axis):
            return Growth(1, gcd(x.start, lanes))
        return Growth(0, abs(x.start) if axis is None or x.stop == x.start + 1 else 1)

    def _growth_of_cast(self, x: ir.Cast, axis: int | None, lanes: int, typical: bool) -> Growth:
        inner = self.growth(x.x, axis, lanes, typical)
        if x.dtype.is_integer and self._is_integer(x.x):
            return inner
        return UNIFORM if inner.step == 0 else UNKNOWN

    def _growth_of_function(self, x: ir.Apply, axis: int | None, lanes: int, typical: bool) -> Growth:
        parts = [self.growth(a, axis, lanes, typical) for a in x.args]
        return GROWTH_OF_FUNCTIONS.get(x.fn, _growth_of_any)(x.args, parts, lanes, typical)

    def _growth_of_rearranged(self, x: Any, axis: int | None, lanes: int, typical: bool) -> Growth:
        return self.growth(ir.parts(x)[0], _source_axis(x, axis, len(self.types.of(x).shape)), lanes, typical)

    # --- bounds ----------------------------------------------------------------------------------

    def is_nonnegative(self, x: ir.Tile) -> bool:
        """Return whether an integer is known to be non-negative."""
        low = self.interval(x).low
        return low is not None and low >= 0

    @memoised
    def interval(self, x: ir.Tile, first: bool = False) -> Interval:
        """Return the bounds of the elements of an integer tile, or of its `first` one, unless it may overflow."""
        if isinstance(x, ir.Literal):
            return Interval(x.value, x.value) if type(x.value) is int else ANY
        t = self.types.of(x)
        if t.pointer or t.dtype.kind != "int":
            return Interval(0, None) if t.dtype.kind == "uint" and not t.pointer else ANY
        low, high = self._interval(x, first)
        fits = -(1 << t.dtype.bits - 1) <= (low or 0), (high or 0) < 1 << t.dtype.bits - 1
        return Interval(low if fits[0] else None, high if fits[1] else None)

    def _interval(self, x: ir.Tile, first: bool) -> Interval:
        match x:
            case ir.Name(name) if name in self.definitions:
                return self.interval(self.definitions[name], first)
            case ir.Name(name) if name in self.loops:
                return reduce(_union, map(self._interval_of_counter, self.loops[name]))
            case ir.ProgramId() | ir.NumPrograms():
                return Interval(0, (1 << 31) - 1)
            case ir.Arange(start, stop):
                return Interval(start, start if first else stop - 1)
            case ir.Cast(y) | ir.Full(_, y) | ir.ExpandDims(y) | ir.BroadcastTo(y) | ir.Trans(y):
                return self.interval(y, first)
            case ir.Apply(fn, args):
                return _interval_of(fn, [self.interval(y, first) for y in args])
        return ANY

    def _interval_of_counter(self, loop: ir.For) -> Interval:
        match loop:
            case ir.For(_, ir.Literal(int(start)), ir.Literal(int(stop)), ir.Literal(int(step))) if step > 0:
                return Interval(start, start + max(0, stop - start - 1) // step * step)
        rises = self.is_nonnegative(loop.step)
        return Interval(self.interval(loop.start).low if rises else None, None)


def once_assigned(kernel: ir.Kernel) -> tuple[dict[str, ir.Tile], dict[str, Loops]]:
    """Return the expressions of the names that are assigned once, and the loops by their counters."""
    values: dict[str, ir.Tile] = {}
    loops: dict[str, Loops] = {}
    counts = count_assignments(kernel.body) + Counter(p.name for p in kernel.parameters)
    for s in statements(kernel.body):
        if isinstance(s, ir.Assign) and counts[s.name] == 1:
            values[s.name] = s.value
        elif isinstance(s, ir.For) and counts[s.index] == 1:
            loops[s.index] = (s,)
    return values, loops


def add_sums(x: Sum, y: Sum, times: int = 1) -> Sum:
    """Return x + times * y without terms that vanish."""
    made = {term: x.get(term, 0) + times * y.get(term, 0) for term in {**x, **y}}
    return {term: factor for term, factor in made.items() if factor}


def _source_axis(x: ir.Tile, axis: int | None, rank: int) -> int | None:
    """Return the axis of the operand of a rearranged tile that corresponds to one of the tile."""
    if axis is None or -axis > rank:
        return axis if axis is None else ABSENT_AXIS
    match x:
        case ir.ExpandDims(_, axes):
            return ABSENT_AXIS if rank + axis in axes else axis + sum(a > rank + axis for a in axes)
        case ir.Trans(_, permutation):
            return permutation[axis] - rank
    return axis


GROWTH_RULES: Mapping[type[ir.Tile], Callable[..., Growth]] = {
    ir.Name: Affine._growth_of_name,
    ir.Arange: Affine._growth_of_range,
    ir.Cast: Affine._growth_of_cast,
    ir.Apply: Affine._growth_of_function,
    **dict.fromkeys((ir.Full, ir.ExpandDims, ir.BroadcastTo, ir.Trans), Affine._growth_of_rearranged),
}


def _growth_of_any(args: Tiles, parts: Growths, lanes: int, typical: bool) -> Growth:
    """Return the growth of a function of which no more is known than that equal elements have equal results."""
    return UNIFORM if all(p.step == 0 for p in parts) else UNKNOWN


def _growth_of_sum(args: Tiles, parts: Growths, lanes: int, typical: bool, sign: int = 1) -> Growth:
    x, y = parts
    return Growth(_sum(x.step, y.step, sign), gcd(x.divisor, y.divisor))


def _growth_of_product(args: Tiles, parts: Growths, lanes: int, typical: bool) -> Growth:
    divisor = parts[0].divisor * parts[1].divisor
    for part, factor in ((parts[0], args[1]), (parts[1], args[0])):
        if part.step is not None and isinstance(factor, ir.Literal):
            return Growth(part.step * int(factor.value), divisor)
    return Growth(_growth_of_any(args, parts, lanes, typical).step, divisor)


def _growth_of_choice(args: Tiles, parts: Growths, lanes: int, typical: bool) -> Growth:
    """Return the growth of a function whose elements are among those of its last two operands, or remainders."""
    return Growth(_growth_of_any(args, parts, lanes, typical).step, gcd(*[p.divisor for p in parts[-2:]]))


def _growth_of_quotient(args: Tiles, parts: Growths, lanes: int, typical: bool, fn: str = "floordiv") -> Growth:
    if isinstance(args[1], ir.Literal) and int(args[1].value) > 0:
        return _divided(fn, parts[0], int(args[1].value), lanes, typical)
    return (_growth_of_any if fn == "floordiv" else _growth_of_choice)(args, parts, lanes, typical)


def _growth_of_comparison(args: Tiles, parts: Growths, lanes: int, typical: bool, rising: int = 0) -> Growth:
    """Return the growth of a comparison: vectors cross no border that is a multiple of them, if they begin at one."""
    x, y = parts[rising], parts[1 - rising]
    if x.step == 1 and y.step == 0 and lanes and x.is_multiple(lanes) and y.is_multiple(lanes):
        return UNIFORM
    return _growth_of_any(args, parts, lanes, typical)


GROWTH_OF_FUNCTIONS: Mapping[str, Callable[..., Growth]] = {
    "add": _growth_of_sum,
    "sub": partial(_growth_of_sum, sign=-1),
    "mul": _growth_of_product,
    "floordiv": _growth_of_quotient,
    "mod": partial(_growth_of_quotient, fn="mod"),
    **dict.fromkeys(("where", "minimum", "maximum"), _growth_of_choice),
    **dict.fromkeys(("lt", "ge"), _growth_of_comparison),
    **dict.fromkeys(("gt", "le"), partial(_growth_of_comparison, rising=1)),
}


def _divided(fn: str, x: Growth, divisor: int, lanes: int, typical: bool) -> Growth:
    """Return the growth of a quotient or remainder by a positive constant."""
    even = lanes > 0 and divisor % lanes == 0 and x.is_multiple(lanes) and x.step == 1
    if typical and x.step is not None:
        even |= 2 * abs(x.step) <= divisor
    if fn == "mod":
        return Growth(x.step if even or x.step == 0 else None, gcd(x.divisor, divisor))
    whole = x.divisor // divisor if x.is_multiple(divisor) else 1
    return Growth(0 if even or x.step == 0 else None, whole)


def _interval_of(fn: str, args: Sequence[Interval]) -> Interval:
    """Return the bounds of a function of integers."""
    match fn, args:
        case "add", [(a, b), (c, d)]:
            return Interval(_sum(a, c), _sum(b, d))
        case "sub", [(a, b), (c, d)]:
            return Interval(_sum(a, d, -1), _sum(b, c, -1))
        case "mul", [x, y]:
            return _interval_of_product(x, y)
        case "minimum" | "maximum", [x, y]:
            return _extreme_of(fn, x, y)
        case "where", [_, x, y]:
            return _union(x, y)
        case "floordiv" | "mod", [x, y]:
            return _interval_of_quotient(fn, x, y)
        case "inside", [_, (_, end), _]:
            return Interval(0, None if end is None else end - 1)
    return ANY


def _interval_of_product(x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = x, y
    if a is None or c is None:
        return ANY
    if b is None or d is None:
        return Interval(a * c, None) if a >= 0 and c >= 0 else ANY
    ends = [a * c, a * d, b * c, b * d]
    return Interval(min(ends), max(ends))


def _interval_of_quotient(fn: str, x: Interval, y: Interval) -> Interval:
    """Return the bounds of a quotient, rounded down, or of its remainder."""
    match fn, x, y:
        case "floordiv", (a, b), (int(c), d) if c == d and c > 0:
            return Interval(None if a is None else a // c, None if b is None else b // c)
        case "floordiv", (int(a), b), (int(c), _) if a >= 0 and c >= 0:
            return Interval(0, b)
        case "mod", (a, b), (int(c), d) if c >= 0:
            inside = c == d and a is not None and b is not None and 0 <= a and b < c
            return Interval(a, b) if inside else Interval(0, None if d is None else d - 1)
    return ANY


def _union(x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = x, y
    return Interval(None if a is None or c is None else min(a, c), None if b is None or d is None else max(b, d))


def _sum(x: int | None, y: int | None, sign: int = 1) -> int | None:
    return None if x is None or y is None else x + sign * y


def _extreme_of(fn: str, x: Interval, y: Interval) -> Interval:
    lows, highs = ([n for n in ends if n is not None] for ends in zip(x, y, strict=True))
    if fn == "minimum":
        return Interval(min(lows) if len(lows) == 2 else None, min(highs, default=None))
    return Interval(max(lows, default=None), max(highs) if len(highs) == 2 else None)
