"""Decompose positions into linear forms of indices, and conditions into ranges of linear forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ....errors import CompileError
from ....ir.dtype import int64
from ....ir.position import bounds, linear
from ....ir.scalar import Apply, Const, Expr, Index, Read, const
from ....ir.size import Dim

Form: TypeAlias = "dict[Index | None, int]"
"""A linear form by index; the number under None is its start."""
FormRange: TypeAlias = "tuple[Form, int]"
"""A form that has to be at least 0 and less than an extent."""

UNBOUNDED = 1 << 62
"""Extent of a range without an upper end."""


class NotTranslated(CompileError):
    """An expression that the interpreter does not run."""


def static(x: Dim) -> int:
    """Return a size that is a number."""
    if not isinstance(x, int):
        raise NotTranslated
    return x


def affine_form(e: Expr) -> Form | None:
    """Return an int64 expression as a linear form of indices, or None."""
    form: Form = {}
    for product, factor in linear(e).items():
        if not product:
            form[None] = factor
        elif len(product) == 1 and isinstance(product[0], Index):
            form[product[0]] = factor
        else:
            return None
    return form


def split_form(e: Expr) -> tuple[Form, Expr]:
    """Split an int64 expression into a linear form of indices and the rest.

    >>> i, j = Index("i", 4), Index("j", 6)
    >>> form, rest = split_form(i * 8 + j // 4 + 3)
    >>> print(form[i], form[None], rest)
    8 3 (j // 4)
    """
    form: Form = {}
    rest: Expr = const(0, int64)
    for product, factor in linear(e).items():
        if not product:
            form[None] = factor
        elif len(product) == 1 and isinstance(product[0], Index):
            form[product[0]] = factor
        else:
            term = product[0]
            for other in product[1:]:
                term = term * other
            rest = rest + term * factor
    return form, rest


def is_inside(p: Expr, extent: int) -> bool:
    """Whether a position is surely inside of an axis."""
    if isinstance(p, Index):
        return static(p.extent) <= extent
    low, high = bounds(p)
    return type(low) is int and type(high) is int and low >= 0 and high < extent


class MergedReads(NamedTuple):
    """A choice between elements at linear forms: `default`, overwritten by each read in the range of its guards."""

    default: Const | None
    """None: the reads cover all positions."""
    reads: list[tuple[Read, list[FormRange]]]


def merged_reads(e: Apply) -> MergedReads | None:
    """Return a choice by ranges of positions (a padded or concatenated tensor) as reads in order, or None."""
    default: Const | None = None
    reads: list[tuple[Read, list[FormRange]]] = []
    stack: list[tuple[Expr, list[FormRange]]] = [(e, [])]
    while stack:
        part, guards = stack.pop()
        match part:
            case Apply("where", (condition, x, y)):
                own = condition_ranges(condition)
                if own is None:
                    return None
                stack += [(x, [*guards, *own]), (y, guards)]
            case Read():
                reads.append((part, guards))
            case Const() if not guards and not reads and default is None:
                default = part
            case _:
                return None
    return MergedReads(default, reads) if reads else None


def condition_ranges(condition: Expr) -> list[FormRange] | None:
    """Return a condition on positions as ranges of linear forms, all of which have to hold, or None."""
    ranges: list[FormRange] = []
    stack = [condition]
    while stack:
        part = stack.pop()
        match part:
            case Apply("bitand", (x, y)):
                stack += [x, y]
            case Apply("lt" | "le" | "gt" | "ge" as fn, (x, y)) if x.dtype is int64:
                less, more = (x, y) if fn in ("lt", "le") else (y, x)
                form = affine_form(more - less - (1 if fn in ("lt", "gt") else 0))
                if form is None:
                    return None
                _add_range(ranges, form)
            case _:
                return None
    return ranges


def _add_range(ranges: list[FormRange], form: Form) -> None:
    """Add that a form is at least 0; with an opposite one it makes one range."""
    for n, (other, extent) in enumerate(ranges):
        if extent == UNBOUNDED and all(form.get(i, 0) == -other.get(i, 0) for i in {*form, *other} - {None}):
            ranges[n] = other, other.get(None, 0) + form.get(None, 0) + 1
            return
    ranges.append((form, UNBOUNDED))


def without_repetition(ranges: Sequence[FormRange]) -> tuple[FormRange, ...]:
    """Leave out ranges that are in the list already, also as the opposite of another.

    >>> i = Index("i", 9)
    >>> len(without_repetition([({i: 1, None: -2}, 4), ({i: -1, None: 5}, 4), ({i: 1}, 4)]))
    2
    """
    kept: dict[object, FormRange] = {}
    for form, extent in ranges:
        terms = {index: step for index, step in form.items() if step}
        opposite = {index: -step for index, step in terms.items()}
        start = extent - 1 - form.get(None, 0)
        opposite.pop(None, None)
        if start:
            opposite[None] = start
        keys = [(frozenset(terms.items()), extent), (frozenset(opposite.items()), extent)]
        if not any(key in kept for key in keys):
            kept[keys[0]] = form, extent
    return tuple(kept.values())
