"""Split axes whose positions are divided: `i // 2` and `i % 2` become two indices.

The gradient of pooling reads window `i // 2` for element `i`: neighbours share what they read, and no load is
contiguous. Split into `i = 2 * j + p`, with a scalar `p`, loads are contiguous, and only stores have stride two.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.position import linear
from ..ir.scalar import Apply, Const, Expr, Index, fresh_index, size, substituted, walk

MAX_PHASES = 4
"""Most phases of an axis, which are unrolled."""


def phases(rows: tuple[Index, ...], roots: Iterable[Expr]) -> dict[Index, tuple[Index, Index]]:
    """Return the quotient and remainder indices of rows that are divided by a small number everywhere.

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
        if not others and 1 < divisor <= MAX_PHASES and type(i.extent) is int and i.extent % divisor == 0:
            taken[i] = (fresh_index(i.extent // divisor), fresh_index(divisor))
    return taken


def in_phases(rows: tuple[Index, ...], exprs: tuple[Expr, ...]) -> tuple[tuple[Index, ...], tuple[Expr, ...]]:
    """Split rows: remainders become outermost, quotients take the place of the row."""
    taken = phases(rows, exprs)
    if not taken:
        return rows, exprs
    new: dict[Expr, Expr] = {i: q * size(p.extent) + p for i, (q, p) in taken.items()}
    first = min(rows.index(i) for i in taken)
    order = [*rows[:first], *[p for _, p in taken.values()], *[taken[i][0] if i in taken else i for i in rows[first:]]]
    return tuple(order), tuple(substituted(exprs, new))
