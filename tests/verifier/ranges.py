"""Proves that positions are in range: under the conditions under which an element is read.

What is not chosen is not read, so a read is looked at with the conditions of the choices around it:

    where((i - 1 >= 0) & (i - 1 < 4), x[i - 1], 0)      ->      x[i - 1] is read where 0 <= i - 1 < 4

The bounds of positions (`position.py`) decide most; then what each condition says, which is linear; then, where indices
have few values together, all of them are gone through. What depends on data is in range only if a condition says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from tilegrad.ir.functions import FUNCTIONS
from tilegrad.ir.position import bounds, linear
from tilegrad.ir.scalar import (
    TRUE,
    Apply,
    Const,
    Expr,
    Index,
    Read,
    Reduce,
    Scan,
    Symbol,
    apply,
    const_array,
    facts,
    free,
    parts,
    size,
    walk,
)
from tilegrad.ir.size import Dim, Size, known

Conditions: TypeAlias = frozenset[Expr]
"""A conjunction of conditions."""

MAX_VISITS = 4000
"""Parts of an expression, each with its conditions, that are looked at before it is given up."""
FEW_VALUES, MAX_VALUES = 1 << 12, 1 << 18
"""Values of all indices of a position together, up to which each is tried: first of all, or if nothing else helps."""
SIZES = (2, 3, 5, 8)
"""Sizes that stand for symbols where all values are tried."""
OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


class Unproved(NamedTuple):
    """A read that may be out of range, for all that is known."""

    read: Read
    axis: int

    @property
    def depends_on_data(self) -> bool:
        """Whether its position is known only when the program runs."""
        return facts(self.read.position[self.axis]).data

    def __str__(self) -> str:
        return f"{self.read} along axis {self.axis} of {tuple(self.read.source.shape)}"


def unproved(e: Expr) -> list[Unproved]:
    """The reads of an expression that are not proved to be in range.

    >>> from tilegrad.ir.dtype import float32
    >>> from tilegrad.ir.graph import Input, TensorType
    >>> from tilegrad.ir.scalar import const, where
    >>> x, i = Input(TensorType(float32, (4,)), "x"), Index("i", 6)
    >>> shifted = Read(x, (i - 1,), float32)
    >>> print(*unproved(shifted))
    x[(i + -1)] along axis 0 of (4,)
    >>> unproved(where((i - 1 >= 0) & (i - 1 < 4), shifted, const(0.0, float32)))
    []
    """
    doubtful = {read for read in facts(e).reads if any(True for _ in _outside(read, frozenset()))}
    if not doubtful:
        return []
    found: dict[Unproved, None] = {}
    for read, holds in _in_context(e, doubtful):
        found.update(dict.fromkeys(_outside(read, holds)))
    return list(found)


def _outside(read: Read, holds: Conditions) -> Iterator[Unproved]:
    for axis, (at, extent) in enumerate(zip(read.position, read.source.shape, strict=True)):
        if not in_range(at, extent, holds):
            yield Unproved(read, axis)


def _in_context(root: Expr, wanted: set[Read]) -> Iterator[tuple[Read, Conditions]]:
    """The wanted reads in an expression, each with what holds where it is read."""
    stack: list[tuple[Expr, Conditions]] = [(root, frozenset())]
    seen: set[tuple[Expr, Conditions]] = set()
    places = {read for w in wanted for p in w.position for read in facts(p).reads}

    def told(c: Expr | None) -> Conditions:
        """Keep the parts of a condition that concern positions: others would only tell apart what is equal."""
        return frozenset([x for x in conjuncts(c) if all(read in places for read in facts(x).reads)])

    def inner(e: Expr, holds: Conditions) -> list[tuple[Expr, Conditions]]:
        match e:
            case Apply("where", (c, x, y)):
                return [(c, holds), (x, holds | told(c)), (y, holds | told(negated(c)))]
            case Reduce(_, index, body) | Scan(_, index, body, _):
                left = frozenset([c for c in holds if index not in facts(c).indices])
                return [(part, holds if part is not body else left) for part in parts(e)]
        return [(part, holds) for part in parts(e)]

    while stack and len(seen) <= MAX_VISITS:
        at = stack.pop()
        e, holds = at
        if at in seen or not any(read in wanted for read in facts(e).reads):
            continue
        seen.add(at)
        if isinstance(e, Read) and e in wanted:
            yield e, holds
        stack += inner(e, holds)
    if stack:  # overlapping writes: each doubles the contexts of what was there before
        yield from _in_common_context(root, wanted, inner)


def _in_common_context(
    root: Expr, wanted: set[Read], inner: Callable[[Expr, Conditions], list[tuple[Expr, Conditions]]]
) -> Iterator[tuple[Read, Conditions]]:
    """The wanted reads in an expression, each with what holds wherever it is read."""
    common: dict[Expr, Conditions] = {root: frozenset()}
    for e in reversed(walk(root)):
        for part, holds in inner(e, common[e]):
            common[part] = common[part] & holds if part in common else holds
    yield from ((read, common[read]) for read in wanted)


def conjuncts(c: Expr | None) -> Conditions:
    match c:
        case None:
            return frozenset()
        case Apply("bitand", (x, y)):
            return conjuncts(x) | conjuncts(y)
        case Apply("invert", (x,)):
            return conjuncts(negated(x)) or frozenset([c])
    return frozenset([c] if c is not TRUE else [])


def negated(c: Expr) -> Expr | None:
    """The negation of a condition; None for other kinds of conditions."""
    match c:
        case Apply("invert", (x,)):
            return x
        case Apply(fn, (x, y)) if fn in OPPOSITE and not x.dtype.is_float:
            return apply(OPPOSITE[fn], x, y)
        case Apply("bitor", (x, y)):
            one, other = negated(x), negated(y)
            return one & other if one is not None and other is not None else one or other
    return None


def in_range(at: Expr, extent: Dim, holds: Conditions = frozenset()) -> bool:
    """Whether 0 <= at < extent, wherever all conditions hold."""
    low, high = bounds(at)
    if low is not None and high is not None and _natural(low) and _natural(extent - 1 - high):
        return True
    if _by_trying(at, extent, holds, FEW_VALUES):
        return True
    if _least(at, holds) >= 0 and _least(size(extent) - 1 - at, holds) >= 0:
        return True
    return _by_trying(at, extent, holds, MAX_VALUES)


def _natural(x: Dim) -> bool:
    low = bounds(size(x))[0] if isinstance(x, Size) else x
    return _number(low) >= 0


def _number(x: Dim | None) -> float:
    """A lower bound as a number: names of sizes are 2 or more."""
    if x is None:
        return -math.inf
    if not isinstance(x, Size):
        return x
    if any(c < 0 for names, c in x.terms.items() if names):
        return -math.inf
    return x.value(dict.fromkeys(x.names(), 2))


def _least(e: Expr, holds: Conditions, depth: int = 3) -> float:
    """A number that an expression is not below, where the conditions hold."""
    least = max(_number(bounds(e)[0]), _least_of_terms(e, holds, depth))
    for c in holds:
        for least_of in _not_below_zero(c):
            least = max(least, _number(bounds(e - least_of)[0]), _least_of_terms(e - least_of, holds, 0))
    return least


def _least_of_terms(e: Expr, holds: Conditions, depth: int) -> float:
    """The same, from what is known of quotients, choices and extremes in a sum."""
    match e:
        case Apply("minimum", (x, y)) if depth:
            return min(_least(x, holds, depth - 1), _least(y, holds, depth - 1))
        case Apply("maximum", (x, y)) if depth:
            return max(_least(x, holds, depth - 1), _least(y, holds, depth - 1))
        case Apply("where", (c, x, y)) if depth:
            one = _least(x, holds | conjuncts(c), depth - 1)
            return min(one, _least(y, holds | conjuncts(negated(c)), depth - 1))
        case Apply("floordiv", (x, Const(c))) if depth and c > 0:
            low = _least(x, holds, depth - 1)
            return low // c if math.isfinite(low) else low
    total = linear(e)
    if not depth or (len(total) == 1 and next(iter(total)) == (e,)):
        return -math.inf
    least = 0.0
    for term, factor in total.items():
        if not term:
            least += factor
        elif len(term) > 1:
            return -math.inf
        else:
            (x,) = term
            least += factor * _least(x, holds, depth - 1) if factor > 0 else -factor * _least(-x, holds, depth - 1)
    return least


def _not_below_zero(c: Expr) -> list[Expr]:
    """An expression that is not negative where a condition holds."""
    match c:
        case Apply(fn, (x, y)) if x.dtype.is_integer and fn in OPPOSITE and x.dtype is y.dtype and x.dtype.bits == 64:
            if fn in ("lt", "le"):
                return [y - x - (fn == "lt")]
            if fn in ("gt", "ge"):
                return [x - y - (fn == "gt")]
            return [x - y, y - x] if fn == "eq" else []
    return []


def _by_trying(at: Expr, extent: Dim, holds: Conditions, most: int) -> bool:
    """Goes through all values of the indices of a position, with the conditions that are about them alone; where sizes
    vary, for a few of them.
    """
    if facts(at).data:
        return False
    about = [c for c in holds if not facts(c).data]
    names = _names([at, size(extent), *about])
    indices = sorted({i for e in (at, *about) for i in free(e)}, key=lambda i: i.name)
    names |= {name for i in indices if isinstance(i.extent, Size) for name in i.extent.names()}
    near = [i for i in indices if i in facts(at).indices]
    for chosen in (indices, near):
        inside = [c for c in about if free(c) <= set(chosen)]
        many = [dict.fromkeys(names, n) for n in (SIZES if names else (0,))]
        if all(math.prod(known(i.extent, sizes) for i in chosen) <= most for sizes in many) and all(
            _holds_for(at, extent, inside, chosen, sizes) for sizes in many
        ):
            return True
    return False


def _holds_for(at: Expr, extent: Dim, about: list[Expr], indices: list[Index], sizes: dict[str, int]) -> bool:
    """Whether a position is in range for all values of its indices that conditions allow."""
    places, *conditions = values([at, *about], indices, sizes)
    inside = (places >= 0) & (places < known(extent, sizes))
    for condition in conditions:
        inside = inside | ~condition
    return bool(inside.all())


def _names(exprs: Iterable[Expr]) -> set[str]:
    return {e.name for e in walk(*exprs) if isinstance(e, Symbol)}


def values(roots: list[Expr], indices: Iterable[Index], sizes: Mapping[str, int]) -> list[np.ndarray]:
    """The values of expressions without data, for all values of indices."""
    indices = list(indices)
    grid = np.indices([known(i.extent, sizes) for i in indices], sparse=True)
    made: dict[Expr, np.ndarray] = dict(zip(indices, grid, strict=True))
    shape = np.broadcast_shapes(*[a.shape for a in grid]) if len(grid) else ()
    for e in walk(*roots):
        match e:
            case Const():
                made[e] = const_array(e)
            case Symbol(name):
                made[e] = np.int64(sizes[name])
            case Apply("cast", (x,), dtype):
                made[e] = made[x].astype(dtype.numpy)
            case Apply(fn, args):
                made[e] = np.asarray(FUNCTIONS[fn].evaluate(*[made[a] for a in args]))
    return [np.broadcast_to(made[e], shape) for e in roots]
