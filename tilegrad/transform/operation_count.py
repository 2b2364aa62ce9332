"""Count the operations that a value takes, from its element expression."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import Value
from ..ir.scalar import Apply, Expr, Index, Read, Reduce, Scan, parts
from ..ir.size import Dim, Size

TYPICAL_SIZE = 64
"""Assumed value of a symbolic size."""


def operations(value: Value) -> int:
    """Count the operations of all elements; each term of a contraction counts as two.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.contraction import matmul
    >>> x = Input(TensorType(float32, (4, 8)), "x")
    >>> operations(matmul(x, Input(TensorType(float32, (8, 16)), "w")))
    1024
    >>> from ..ops.sorting import sort
    >>> operations(sort(Input(TensorType(float32, (4, 0)), "x")).values)
    0
    """
    count = 1
    for extent in value.shape:
        count *= _known(extent)
    if not value.inputs or count == 0:
        return 0
    if value.opaque:
        return 16 * sum(element_count(x) for x in (*value.inputs, value))
    indices = tuple([Index(f"i{n}", extent) for n, extent in enumerate(value.shape)])
    element = value.element(indices, lambda x, at: Read(x, tuple(at), x.dtype))
    return count * _count([element])


def element_count(value: Value) -> int:
    """Count the elements of a value."""
    count = 1
    for extent in value.shape:
        count *= _known(extent)
    return count


def _known(extent: Dim) -> int:
    return extent.value(dict.fromkeys(extent.names(), TYPICAL_SIZE)) if isinstance(extent, Size) else extent


def _count(expressions: Sequence[Expr]) -> int:
    """Count the operations of expressions, common subexpressions once. Address arithmetic is free.

    >>> from ..ir.dtype import float32
    >>> from ..ir.scalar import Const
    >>> shared = Apply("exp", (Const(2.0, float32),), float32)
    >>> _count([Apply("mul", (shared, shared), float32)])
    2
    """
    total = 0
    seen: set[Expr] = set()
    stack = list(expressions)
    while stack:
        e = stack.pop()
        if e in seen or isinstance(e, Read):
            continue
        seen.add(e)
        if isinstance(e, Reduce | Scan):
            total += _known(e.index.extent) * (1 + _count([e.body]))
        else:
            total += isinstance(e, Apply) and e.fn != "cast"
            stack.extend(parts(e))
    return total
