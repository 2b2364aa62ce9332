"""Recompute large intermediates in their readers instead of storing them.

Where arithmetic is cheap beside memory traffic, a large intermediate of a few functions is not worth its bytes: the
float32 exponentials of a softmax over a vocabulary take four times the memory of the bfloat16 logits. Readers recompute
it from the logits and from sums along rows, which are small and stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import Value
from ..ir.position import digits
from ..ir.scalar import Apply, Expr, Position, Read, facts, rebuild, size, substitute, walk
from ..ir.size import product
from .group import Group, GroupMember
from .inline import estimated_size, weight_of

MIN_RECOMPUTED_BYTES = 1 << 22
"""Bytes from which on a tensor does not stay in a cache until it is read."""
MAX_RECOMPUTED_WEIGHT = 20
"""Largest weight that is recomputed: two expensive functions and some cheap ones take about as long as reading an
element.
"""
MIN_REDUCTION_RATIO = 16
"""Smallest ratio of an intermediate to the sums that it is recomputed from."""


def recompute_intermediates(groups: Sequence[Group], outputs: frozenset[Value]) -> list[Group]:
    """Recompute such intermediates in the groups that read them."""
    found = list(groups)
    for n, value in [(n, v) for n, g in enumerate(groups) if g.kind == "rows" for v in g.stored]:
        group = found[n]
        if value in outputs or estimated_size(value.type.bytes) < MIN_RECOMPUTED_BYTES:
            continue
        readers = [m for m, g in enumerate(found) if m != n and value in g.needs()]
        member = next(m for m in group.members if m.value is value)
        made = _from_memory(group, member)
        if made is None or not readers or not all(_may_compute(found[m], value) for m in readers):
            continue
        expr, sums = made
        kept = {*group.stored, *sums} - {value}
        if kept:
            found[n] = group.replaced(stored=tuple([v for v in group.values() if v in kept]))
            for m in readers:
                found[m] = _with(found[m], member, expr)
    return found


def _from_memory(group: Group, member: GroupMember) -> tuple[Expr, set[Value]] | None:
    """Return the element of a member in terms of memory, and the sums of the group that must be stored for it."""
    known: dict[Value, Expr] = {}
    for other in group.members:
        if other is member:
            break
        if not facts(other.expr).loops:
            known[other.value] = _inside(other.expr, known)
    if facts(member.expr).loops:
        return None
    expr = _inside(member.expr, known)
    own = set(group.values())
    sums = {e.source for e in facts(expr).reads if e.source in own}
    others = {e.source for e in facts(expr).reads} - own
    size = estimated_size(product(member.value.shape))
    if any(estimated_size(product(v.shape)) * MIN_REDUCTION_RATIO > size for v in sums):
        return None
    bytes = sum(
        estimated_size(v.type.bytes) for v in others if estimated_size(product(v.shape)) * MIN_REDUCTION_RATIO > size
    )
    effort = sum(weight_of(e.fn) for e in walk(expr) if isinstance(e, Apply) and e.dtype.is_float)
    return (
        (expr, sums) if bytes <= estimated_size(member.value.type.bytes) and effort <= MAX_RECOMPUTED_WEIGHT else None
    )


def _inside(expr: Expr, known: dict[Value, Expr]) -> Expr:
    """Substitute members, which are read at their own positions, into an expression."""
    return rebuild((expr,), lambda e: known.get(e.source) if isinstance(e, Read) else None)[0]


def _may_compute(group: Group, value: Value) -> bool:
    """Whether a group is elementwise and reads each element about once."""
    space = estimated_size(product(i.extent for i in (*group.rows, *group.columns)))
    return group.kind in ("map", "rows") and space <= estimated_size(product(value.shape))


def _with(group: Group, member: GroupMember, expr: Expr) -> Group:
    """Add a recomputed member to a group."""

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, Read) or e.source is not member.value:
            return None
        return substitute(expr, _indices_at(member.position, e.position))

    exprs = rebuild(tuple([m.expr for m in group.members]), change)
    members = tuple([GroupMember(m.value, m.position, e) for m, e in zip(group.members, exprs, strict=True)])
    return group.replaced(members=members)  # type: ignore[no-any-return]


def _indices_at(position: Position, at: Position) -> dict[Expr, Expr]:
    """Solve for the indices of a position at a given place: digits of a number where it combines several."""
    found: dict[Expr, Expr] = {}
    for p, place in zip(position, at, strict=True):
        made = digits(p)
        assert made is not None, "each element of what is stored has one place"
        for n, (index, step) in enumerate(made):
            digit = place // step
            found[index] = digit if n == len(made) - 1 else digit % size(index.extent)
    return found
