"""Rewrite the sum of a one-hot masked row as a gather.

The loss of a classifier is such a sum: the likelihood at the label, and 0 elsewhere. That form has a simple gradient;
computed so, the kernel would read a row of fifty thousand logits once more.
"""

from __future__ import annotations

from ..ir.scalar import Apply, Const, Expr, Index, Reduce, const, facts, rebuild, size, substitute, where

MIN_ROW_ELEMENTS = 4096
"""Shortest row that is reduced in a loop, in elements: a shorter one is in registers or caches anyway."""


def one_hot_to_gather(expr: Expr) -> Expr:
    """Replace one-hot sums in an expression by reads.

    >>> from ..ir.dtype import int64, float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ir.scalar import Read, apply, reduce, show
    >>> x, y = Input(TensorType(float32, (8, 9000)), "x"), Input(TensorType(int64, (8,)), "y")
    >>> i, k = Index("i", 8), Index("k", 9000)
    >>> there = apply("eq", Read(y, (i,), int64), k)
    >>> total = reduce("add", k, where(there, Read(x, (i, k), float32), const(0.0, float32)))
    >>> print(show(one_hot_to_gather(total), {}))
    where(((y[i] >= 0) & (y[i] < 9000)), x[i, y[i]], 0)
    """
    return rebuild((expr,), _of_sum)[0] if facts(expr).loops else expr


def _of_sum(e: Expr) -> Expr | None:
    match e:
        case Reduce(fn="add", index=index, body=Apply("neg", (x,))):
            found = _of_sum(Reduce("add", index, x, e.dtype))
            return None if found is None else -found
        case Reduce(fn="add", index=Index(extent=int(extent)) as index, body=Apply("where", (there, x, Const(0.0)))):
            place = _place(there, index)
            if extent < MIN_ROW_ELEMENTS or place is None:
                return None
            inside = (place >= 0) & (place < size(extent))
            return where(inside, substitute(x, {index: place}), const(0.0, e.dtype))
    return None


def _place(there: Expr, index: Index) -> Expr | None:
    """Solve a condition for an index, if it holds at one position."""
    match there:
        case Apply("eq", (x, y)):
            for one, other in ((x, y), (y, x)):
                if one is index and index not in facts(other).indices:
                    return other
    return None
