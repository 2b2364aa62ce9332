"""Proves of a kernel that every access is in range, and that what it stores it stores whole.

An element of a tile is an expression of the scalar language: `program_id` and the lanes of an `arange` are indices, and
so are the turns of a loop; what is loaded is data. So offsets and masks are positions and conditions, and `ranges.py`
says whether they fit. All values of all indices are tried where they are few enough: then the answer is sure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tests.verifier.ranges import Conditions, conjuncts, in_range, negated, values
from tilegrad.ir.dtype import bool_, int64
from tilegrad.ir.position import bounds, flat_position, linear, row_major
from tilegrad.ir.scalar import Apply as Applied
from tilegrad.ir.scalar import Expr, Index, Position, Read, apply, const, facts, free, size, where
from tilegrad.ir.tile import (
    Apply,
    Arange,
    Assign,
    Atomic,
    BroadcastTo,
    Cast,
    ExpandDims,
    For,
    Full,
    If,
    Kernel,
    Literal,
    Load,
    Name,
    NumPrograms,
    ProgramId,
    Reshape,
    Statement,
    Store,
    Tile,
    Trans,
    While,
)
from tilegrad.ir.tile_access import roots, statements, walk
from tilegrad.ir.tile_checker import check

MAX_PLACES = 1 << 18
"""Most places that are enumerated to see whether a buffer is written completely."""
NOWHERE = const(0, int64)


class Access(NamedTuple):
    """An access with its position and its conditions."""

    name: str
    offset: Expr
    holds: Conditions
    stores: bool
    text: str


class Verdict(NamedTuple):
    """`wrong` is proved to be wrong; `open` is what is not proved."""

    wrong: tuple[str, ...]
    open: tuple[str, ...]


def verdict(
    kernel: Kernel,
    numbers: Mapping[str, int],
    counts: Mapping[str, int],
    grid: Sequence[int],
    fresh: Collection[str] | None = None,
) -> Verdict:
    """Verify a launch: `numbers` are its sizes, `counts` the elements of its buffers; `fresh` buffers (default: all)
    hold no data yet.

    >>> from tilegrad.ir.tile_parser import parse
    >>> kernel = parse('''
    ... def iota(out: "*i32", n: "i32"):
    ...     i = tl.program_id(0) * 4 + tl.arange(0, 4)
    ...     tl.store(out + i, i, mask=i < n)
    ... ''')
    >>> verdict(kernel, {"n": 6}, {"out": 6}, (2,))
    Verdict(wrong=(), open=())
    >>> verdict(kernel, {"n": 7}, {"out": 6}, (2,)).wrong
    ('store out[((program0 * 4) + lane0)] of 6',)
    >>> verdict(kernel, {"n": 5}, {"out": 6}, (2,)).wrong
    ('out is not written whole',)
    """
    found = list(_Reading(kernel, numbers, grid).accesses())
    wrong: list[str] = []
    left: list[str] = []
    for access in found:
        count = counts[access.name]
        if not in_range(access.offset, count, access.holds):
            (wrong if _is_outside(access, count) else left).append(f"{access.text}[{access.offset}] of {count}")
    for name in sorted({a.name for a in found if a.stores and (fresh is None or a.name in fresh)}):
        whole = _is_written(name, [a for a in found if a.name == name and a.stores], counts[name])
        if not whole:
            (left if whole is None else wrong).append(f"{name} is not written whole")
    return Verdict(tuple(dict.fromkeys(wrong)), tuple(dict.fromkeys(left)))


def _indices(access: Access) -> list[Index]:
    return sorted({i for e in (access.offset, *access.holds) for i in free(e)}, key=lambda i: i.name)


def _places(access: Access) -> np.ndarray | None:
    """All offsets that are reached; None if there are too many, or if it depends on data."""
    indices = _indices(access)
    if any(facts(e).data for e in (access.offset, *access.holds)):
        return None
    if math.prod(int(i.extent) for i in indices) > MAX_PLACES:  # type: ignore[call-overload]
        return None
    offsets, *conditions = values([access.offset, *access.holds], indices, {})
    reached = np.ones(offsets.shape, np.bool_)
    for condition in conditions:
        reached &= condition
    return offsets[reached]


def _is_outside(access: Access, count: int) -> bool:
    places = _places(access)
    return places is not None and bool(((places < 0) | (places >= count)).any())


def _is_written(name: str, stores: list[Access], count: int) -> bool | None:
    """Whether all elements of a buffer are stored; None: that is not known."""
    seen = np.zeros(count, np.bool_) if count <= MAX_PLACES else None
    for access in stores:
        if covers(access.offset, access.holds, count):
            return True
    for access in stores:
        places = _places(access)
        if places is None or seen is None:
            return None
        seen[places[(places >= 0) & (places < count)]] = True
    return bool(seen.all()) if seen is not None else None


def covers(offset: Expr, holds: Conditions, count: int) -> bool:
    """Whether a sum of indices times steps reaches all numbers below a count: each step goes no further than what is
    reached without it. A condition that ends what is reached so far leaves it whole.

    >>> p, i = Index("p", 4), Index("i", 8)
    >>> covers(p * 8 + i, frozenset(), 32), covers(p * 8 + i, frozenset({p * 8 + i < 30}), 30)
    (True, True)
    >>> covers(p * 9 + i, frozenset(), 35), covers(p * 8 + i, frozenset({i < 7}), 32)
    (False, False)
    """
    terms = sorted(linear(offset).items(), key=lambda item: item[1])
    left, reached, sum_so_far = set(holds), 1, const(0, int64)
    for term, step in terms:
        if len(term) != 1 or step <= 0:
            return False
        (e,) = term
        span = _span(e)
        if span is None or step * span.step > reached:
            return False
        sum_so_far = sum_so_far + e * step
        reached += step * span.last
        for c in list(left):
            if isinstance(c, Applied) and c.fn == "lt" and c.args[0] * _factor(c.args[0], sum_so_far) is sum_so_far:
                limit = bounds(c.args[1])
                if type(limit[0]) is int and limit[0] == limit[1]:
                    reached = min(reached, limit[0] * _factor(c.args[0], sum_so_far))
                    left.remove(c)
    return not left and reached >= count


class _Span(NamedTuple):
    """A number that goes from 0 to `last` in steps of at most `step`."""

    last: int
    step: int


def _span(e: Expr) -> _Span | None:
    match e:
        case Index(_, int(extent)):
            return _Span(extent - 1, 1)
        case Applied("minimum", (x, y)):
            total = linear(x)
            limit = linear(y)
            if set(limit) <= {()} and len(total) == 1:
                (((i,), factor),) = total.items()
                if isinstance(i, Index) and type(i.extent) is int and limit.get((), 0) <= factor * (i.extent - 1):
                    return _Span(limit.get((), 0), factor)
    return None


def _factor(x: Expr, whole: Expr) -> int:
    """The factor between two expressions by their first terms."""
    one, other = linear(x), linear(whole)
    common = next((t for t in one if t in other), None)
    return max(1, other[common] // one[common]) if common is not None and one[common] else 1


class _Unknown(Exception):
    """A pointer that is not followed."""


class _Reading:
    """A kernel being read: what its variables are."""

    def __init__(self, kernel: Kernel, numbers: Mapping[str, int], grid: Sequence[int]) -> None:
        self.kernel, self.types, self.numbers = kernel, check(kernel), numbers
        self.grid = (*grid, 1, 1)[:3]
        self.pointers = {p.name for p in kernel.parameters if p.pointer}
        assigned = [s.name for s in statements(kernel.body) if isinstance(s, Assign | Atomic) and s.name]
        self.once: dict[str, Tile] = {}
        for s in statements(kernel.body):
            if isinstance(s, Assign) and assigned.count(s.name) == 1:
                self.once[s.name] = s.value
        self.loops: dict[str, Expr] = {}
        self.known: dict[tuple[int, Position], Expr] = {}
        self.kept: list[Tile] = []

    def accesses(self) -> Iterator[Access]:
        yield from self.block(self.kernel.body, frozenset())

    def block(self, body: tuple[Statement, ...], holds: Conditions) -> Iterator[Access]:
        for s in body:
            for x in walk(*roots(s)):
                if isinstance(x, Load):
                    yield self.access(x.pointer, x.mask, holds, False)
            match s:
                case Store(pointer, _, mask):
                    yield self.access(pointer, mask, holds, True)
                case Atomic(_, pointer, _, mask):
                    yield self.access(pointer, mask, holds, False)
                case For(index, start, stop, step, inner):
                    yield from self.block(inner, holds | self.turns(index, start, stop, step))
                case While(_, inner):
                    yield from self.block(inner, holds | {self.data("while", s, (), bool_)})
                case If(condition, then, otherwise):
                    c = self.element(condition, ())
                    yield from self.block(then, holds | conjuncts(c))
                    yield from self.block(
                        otherwise, holds | (conjuncts(negated(c)) or {self.data("else", s, (), bool_)})
                    )

    def turns(self, name: str, start: Tile, stop: Tile, step: Tile) -> Conditions:
        """The index of a loop from now on, with its conditions."""
        self.known.clear()
        begin, end, by = (self.element(x, ()) for x in (start, stop, step))
        first, last, stride = (_number(e) for e in (begin, end, by))
        if first is not None and last is not None and stride is not None:
            count = max(0, -(-(last - first) // stride))
            at = Index(f"turn{len(self.loops)}", count)
            self.loops[name] = begin + (at * stride if count > 1 else NOWHERE)
            return frozenset() if count else frozenset([const(False, bool_)])
        self.loops[name] = at = self.data("turn", start, (), int64)
        return conjuncts((at >= begin) & (at < end))

    def access(self, pointer: Tile, mask: Tile | None, holds: Conditions, stores: bool) -> Access:
        lanes = _lanes(self.types.of(pointer).shape)
        if mask is not None:
            holds = holds | conjuncts(self.met(mask, lanes))
        word = "store" if stores else "load"
        try:
            name, offset = self.place(pointer, lanes)
        except _Unknown:
            name = next(x.name for x in walk(pointer) if isinstance(x, Name) and self.types.of(x).pointer)
            name = name if name in self.pointers else min(self.pointers)
            offset = self.data("pointer", pointer, lanes, int64)
        return Access(name, offset, holds, stores, f"{word} {name}")

    def place(self, x: Tile, at: Position) -> tuple[str, Expr]:
        """The parameter that an element of a tile of pointers points into, and where."""
        match x:
            case Name(name) if name in self.pointers:
                return name, NOWHERE
            case Name(name) if name in self.once:
                return self.place(self.once[name], at)
            case Apply("add" | "sub" as fn, (y, z)):
                pointer, distance = (y, z) if self.types.of(y).pointer else (z, y)
                name, offset = self.place(pointer, self.within(pointer, at))
                return name, apply(fn, offset, self.met(distance, at))
            case ExpandDims() | BroadcastTo() | Reshape() | Trans():
                return self.place(x.x, self.inside(x, at))
        raise _Unknown

    def met(self, x: Tile, at: Position) -> Expr:
        """The element of a tile that broadcasts to a position."""
        return self.element(x, self.within(x, at))

    def within(self, x: Tile, at: Position) -> Position:
        shape = self.types.of(x).shape
        return tuple([NOWHERE if n == 1 else p for n, p in zip(shape, at[len(at) - len(shape) :], strict=True)])

    def inside(self, x: Tile, at: Position) -> Position:
        """The position in its operand of the element of a rearranged tile."""
        match x:
            case ExpandDims(_, axes):
                return tuple([p for n, p in enumerate(at) if n not in axes])
            case BroadcastTo(y, _):
                return self.within(y, at)
            case Trans(_, permutation):
                return tuple([at[permutation.index(n)] for n in range(len(at))])
            case Reshape(y, shape):
                flat, inner = flat_position(at, row_major(shape)), self.types.of(y).shape
                steps = row_major(inner)
                return tuple([flat // size(s) % size(n) for s, n in zip(steps, inner, strict=True)])
        raise AssertionError(x)

    def element(self, x: Tile, at: Position) -> Expr:
        key = (id(x), at)
        if key not in self.known:
            self.kept.append(x)
            self.known[key] = self.element_of(x, at)
        return self.known[key]

    def element_of(self, x: Tile, at: Position) -> Expr:
        match x:
            case Literal(value):
                return const(
                    value, bool_ if isinstance(value, bool) else int64 if isinstance(value, int) else _dtype(x, self)
                )
            case Name(name) if name in self.numbers:
                return const(self.numbers[name], int64)
            case Name(name) if name in self.loops:
                return self.loops[name]
            case Name(name) if name in self.once and not self.types.of(x).pointer:
                return self.element(self.once[name], at)
            case ProgramId(axis):
                return Index(f"program{axis}", self.grid[axis]) if self.grid[axis] > 1 else NOWHERE
            case NumPrograms(axis):
                return const(self.grid[axis], int64)
            case Arange(start, _):
                return at[0] + start
            case Full(_, value, _):
                return self.element(value, ())
            case Cast(y, dtype) if dtype.is_integer and self.types.of(y).dtype.is_integer:
                return self.element(y, at)
            case ExpandDims() | BroadcastTo() | Reshape() | Trans():
                return self.element(x.x, self.inside(x, at))
            case Apply(fn, args) if all(_is_whole(self, a) for a in args):
                return self.applied(fn, [self.met(a, at) for a in args])
        return self.data(type(x).__name__, x, at, _dtype(x, self))

    def applied(self, fn: str, args: list[Expr]) -> Expr:
        if fn == "where":
            return where(args[0], args[1], args[2])
        return apply(fn, *args)

    def data(self, kind: str, x: object, at: Position, dtype: object) -> Expr:
        """A value that is known only at run time."""
        if isinstance(x, Tile):
            self.kept.append(x)
        return Read(f"%{kind}{id(x)}", at, dtype)


def _dtype(x: Tile, reading: _Reading) -> object:
    dtype = reading.types.of(x).dtype
    return int64 if dtype.is_integer else dtype


def _is_whole(reading: _Reading, x: Tile) -> bool:
    return not reading.types.of(x).dtype.is_float


def _number(e: Expr) -> int | None:
    return int(e.value) if hasattr(e, "value") else None


def _lanes(shape: Sequence[int]) -> Position:
    return tuple([Index(f"lane{n}", extent) if extent > 1 else NOWHERE for n, extent in enumerate(shape)])
