"""Find one guard for each expression, where emitting it once under each of its guards takes too long.

Writes to overlapping parts of a tensor ask for what was there before under two guards each: a chain of them would be
emitted 2**n times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ..ir.scalar import FALSE, TRUE, Apply, Expr, Read, Reduce, Scan, apply, walk
from .guards import beyond

Guarded: TypeAlias = Iterable[tuple[Expr, Expr]]
"""Operands of an expression, each with the condition under which it is wanted."""


def common_guards(root: Expr, guard: Expr, guarded: Callable[[Expr, Expr], Guarded]) -> dict[Expr, Expr]:
    """Find one guard for each expression below a root: it holds wherever one of its readers wants the expression.

    `guarded` lists the operands of an expression that is wanted under a condition.
    """
    found = {root: guard}
    for e in reversed(walk(root)):
        own = found.get(e)
        if own is None:
            continue
        for x, inner in _operands(e, own, guarded):
            known = found.get(x)
            found[x] = inner if known is None else either(known, inner)
    return found


def _operands(e: Expr, guard: Expr, guarded: Callable[[Expr, Expr], Guarded]) -> Guarded:
    match e:
        case Reduce(_, index, body) | Scan(_, index, body):
            return [(body, beyond(guard, index))]
        case Read(_, position):
            return [(x, TRUE) for x in position]
    return guarded(e, guard)


def either(x: Expr, y: Expr) -> Expr:
    """Combine two guards to one that holds where either of them does.

    >>> from ..ir.scalar import Index, const
    >>> i = Index("i", 26)
    >>> few, even = i < 3, apply("eq", i % 2, const(0, i.dtype))
    >>> either(few & even, apply("invert", few)) is TRUE, either(few, few & even) is few
    (False, True)
    >>> print(either(even & few, even & apply("invert", few)))
    ((i % 2) == 0)
    """
    left, right = conditions(x), conditions(y)
    both = [c for c in left if c in right]
    rest, other = [c for c in left if c not in both], [c for c in right if c not in both]
    if rest and other and not (len(rest) == len(other) == 1 and _excludes(rest[0], other[0])):
        both.append(apply("bitor", _all(rest), _all(other)))
    return _all(both)


def _excludes(x: Expr, y: Expr) -> bool:
    """Whether one condition is that the other does not hold."""
    return any(isinstance(a, Apply) and a.fn == "invert" and _plain(a.args[0]) is b for a, b in ((x, y), (y, x)))


def conditions(guard: Expr) -> list[Expr]:
    """List the conditions that all hold where a guard holds, each once."""
    found: dict[Expr, None] = {}
    stack = [guard]
    while stack:
        match _plain(stack.pop()):
            case Apply("bitand", (x, y)):
                stack += (y, x)
            case condition if condition is not TRUE:
                found[condition] = None
    return list(found)


def _plain(condition: Expr) -> Expr:
    """Drop a selection between true and false."""
    while isinstance(condition, Apply) and condition.fn == "where" and condition.args[1:] == (TRUE, FALSE):
        condition = condition.args[0]
    return condition


def _all(conditions: list[Expr]) -> Expr:
    found: Expr = TRUE
    for condition in conditions:
        found = condition if found is TRUE else apply("bitand", found, condition)
    return found
