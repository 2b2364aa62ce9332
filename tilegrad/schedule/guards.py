"""Conditions under which the reads of an expression are wanted: elements that a kernel must not touch are masked."""

from __future__ import annotations

from ..ir.dtype import float32
from ..ir.scalar import TRUE, Apply, Const, Expr, Index, apply, cast, const, facts, reduce, walk
from ..ir.size import Dim


def beyond(guard: Expr, index: Index) -> Expr:
    """Drop the conditions of a guard that depend on the index of a reduction: outside, the index is another one.

    >>> i, k = Index("i", 3), Index("k", 3)
    >>> of_i, of_k = i < 2, k < 2
    >>> beyond(of_i & of_k, k) is of_i
    True
    """
    if guard is TRUE or not any(part is index for part in walk(guard)):
        return guard
    match guard:
        case Apply("bitand", (x, y)):
            left, right = beyond(x, index), beyond(y, index)
            return right if left is TRUE else left if right is TRUE else apply("bitand", left, right)
    if sum(isinstance(part, Index) for part in walk(guard)) == 1 and not facts(guard).data:
        return TRUE
    # what is reduced serves all elements along the index: it is wanted where one of them wants it
    return apply("gt", reduce("maximum", index, cast(guard, float32)), const(0, float32))


def keeps_below(condition: Expr, index: Index, extent: Dim) -> bool:
    """Whether a condition implies that an index is below an extent.

    >>> i = Index("i", 26)
    >>> keeps_below(i // 2 < 12, i, 26), keeps_below(i // 2 < 14, i, 26)
    (True, False)
    >>> keeps_below(apply("bitand", i // 2 < 12, Index("j", 9) < 3), i, 26)
    True
    """
    match condition:
        case Apply("bitand", (x, y)):
            return keeps_below(x, index, extent) or keeps_below(y, index, extent)
        case Apply("lt", (Apply("floordiv", (x, Const(c))), Const(limit))):
            return x is index and type(extent) is int and limit * c <= extent
    return False
