"""Axes along which positions are divided are taken apart: what was `i // 2` and `i % 2` becomes two indices.

What pooling gives back is read for element `i` from window `i // 2`: neighbours in the result share what they read,
and no load runs along memory. Taken apart into `i = 2 * j + p`, of which `p` is a number, it does: only what is
stored lies two apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.position import linear
from ..ir.scalar import Apply, Const, Expr, Index, fresh_index, size, substituted, walk

MOST = 4
"""Phases of an axis that are computed one by one."""


def phases(rows: tuple[Index, ...], roots: Iterable[Expr]) -> dict[Index, tuple[Index, Index]]:
    """For rows that are divided by a small number everywhere the quotient and the remainder, as indices.

    >>> i = Index("i", 54)
    >>> [(str(i), q.extent, p.extent) for i, (q, p) in phases((i,), (i // 2 + i % 2,)).items()]
    [('i', 27, 2)]
    >>> phases((i,), (i // 2 + i % 3,)), phases((i,), (i + 1,)), phases((Index("j", 55),), (i // 2,))
    ({}, {}, {})
    """
    found: dict[Index, set[int]] = {}
    for e in walk(*roots):
        match e:
            case Apply("floordiv" | "mod", (x, Const(int(divisor)))):
                for product, factor in linear(x).items():
                    for i in product:
                        if isinstance(i, Index):
                            found.setdefault(i, set()).add(divisor if factor == 1 and len(product) == 1 else 0)
    taken = {}
    for i in rows:
        divisor, *others = found.get(i, {0})
        if not others and 1 < divisor <= MOST and type(i.extent) is int and i.extent % divisor == 0:
            taken[i] = (fresh_index(i.extent // divisor), fresh_index(divisor))
    return taken


def in_phases(rows: tuple[Index, ...], exprs: tuple[Expr, ...]) -> tuple[tuple[Index, ...], tuple[Expr, ...]]:
    """The rows and expressions with what was divided taken apart: remainders before all, quotients where it was."""
    taken = phases(rows, exprs)
    if not taken:
        return rows, exprs
    new: dict[Expr, Expr] = {i: q * size(p.extent) + p for i, (q, p) in taken.items()}
    first = min(rows.index(i) for i in taken)
    order = [*rows[:first], *[p for _, p in taken.values()], *[taken[i][0] if i in taken else i for i in rows[first:]]]
    return tuple(order), tuple(substituted(exprs, new))
