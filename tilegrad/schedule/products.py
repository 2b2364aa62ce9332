"""Recognise matrix products among sums, and those that share an operand."""

from __future__ import annotations

from ..ir.dtype import FLOAT8, bfloat16, float16, float32, int8, int32, uint8
from ..ir.graph import Value
from ..ir.node import cache_fact
from ..ir.position import linear
from ..ir.precision import PRECISION_OF, Precision
from ..ir.scalar import Apply, Expr, Index, Read, Reduce, facts, substituted, walk
from .group import Group, Mapping

SHORT_TYPES = {float32: (float16, bfloat16, *FLOAT8), int32: (int8, uint8)}
"""Types that a dot multiplies without widening, by the type of its result."""
MAX_ACCUMULATORS = 4
"""Most accumulators that a kernel keeps at the same time."""


def operands(expr: Expr, rows: tuple[Index, ...], columns: tuple[Index, ...]) -> tuple[Expr, Expr] | None:
    """Return the two factors of a sum of products, if each has rows that the other has not."""
    loops = [e for e in walk(expr) if isinstance(e, Reduce)]
    if {e.fn for e in loops} != {"add"}:
        return None
    body = next(e for e in loops if not isinstance(e.body, Reduce))
    match body.body:
        case Apply(fn, (x, y)) as e if fn in PRECISION_OF:
            if not (e.dtype.is_float or _are_short(x, y)):
                return None
        case _:
            return None
    in_x, in_y = free_indices(x), free_indices(y)
    if not (set(columns) <= in_x and set(columns) <= in_y):
        return None
    if not (in_x - in_y) or not (in_y - in_x) or set(rows) - in_x - in_y:
        return None
    # the result lies along its last row: the operand that has it is the one that is read by vectors
    last_x, last_y = (
        max((n for n, i in enumerate(rows) if i in lone), default=0) for lone in (in_x - in_y, in_y - in_x)
    )
    return (x, y) if last_x < last_y else (y, x)


def _are_short(x: Expr, y: Expr) -> bool:
    """Whether both operands are integers of one 8-bit type."""
    match x, y:
        case Apply("cast", (Read() as a,), to), Apply("cast", (Read() as b,), _):
            return to is int32 and a.dtype is b.dtype and a.dtype in SHORT_TYPES[int32]
    return False


def precision_of(sums: Reduce) -> Precision:
    """Return the precision of nested sums of products."""
    body: Expr = sums
    while isinstance(body, Reduce):
        body = body.body
    assert isinstance(body, Apply)
    return PRECISION_OF[body.fn]


def strided_operands(factors: tuple[Expr, Expr], k: Index) -> tuple[bool, bool] | None:
    """Whether each operand is strided along the reduced axis; None if one of them is computed."""
    x, y = factors
    if not isinstance(x, Read) or not isinstance(y, Read):
        return None
    return tuple([linear(e.position[-1]).get((k,)) != 1 for e in (x, y)])  # type: ignore[return-value]


def free_indices(e: Expr) -> set[Index]:
    """Return the free indices of an expression without reductions."""
    return set(facts(e).indices)


def totals(group: Group) -> list[Reduce]:
    """Return the sums of products of a contraction, each by its outermost sum."""
    return [e for e, _ in _products(group)]


def _products(group: Group) -> list[tuple[Reduce, tuple[Expr, Expr]]]:
    """Return the sums of products of a contraction, each with its factors."""
    found: list[tuple[Reduce, tuple[Expr, Expr]]] | None = group.__dict__.get("_products")
    if found is None:
        sums = [e for e in walk(*(m.expr for m in group.members)) if isinstance(e, Reduce)]
        pairs = [(e, operands(e, group.rows, group.columns)) for e in sums if e.index is group.columns[0]]
        found = [(e, factors) for e, factors in pairs if factors is not None]
        cache_fact(group, "_products", found)
    return found


def shared_operand_mapping(a: Group, b: Group) -> Mapping | str:
    """Map the indices of two contractions that share an operand: one kernel reads and packs it once.

    The epilogue of one may read the result of the other, at the same position.
    """
    reason = "a matrix product reads its operands many times"
    if [i.extent for i in a.rows + a.columns] != [i.extent for i in b.rows + b.columns]:
        return reason
    ours, theirs = _products(a), _products(b)
    if len(a.columns) != len(b.columns) or len(ours) + len(theirs) > MAX_ACCUMULATORS:
        return reason
    if not any(_sources(x) == _sources(y) for x, y in zip(ours[0][1], theirs[0][1], strict=True)):
        return "they share no operand"
    mapping = dict(zip(a.rows + a.columns, b.rows + b.columns, strict=True))
    moved = [tuple(substituted(factors, mapping)) for _, factors in ours]  # type: ignore[arg-type]
    if not all(_alike(x, y) for x in moved for _, y in theirs):
        return "they share no operand"
    inside = {read for e, _ in theirs for read in facts(e).reads}
    for m in a.members:
        position = tuple(substituted(m.position, mapping))  # type: ignore[arg-type]
        for read in (read for other in b.members for read in facts(other.expr).reads if read.source is m.value):
            if read in inside or read.position != position:
                return reason
    return mapping


def _sources(e: Expr) -> set[Value]:
    return {read.source for read in facts(e).reads}


def _alike(x: tuple[Expr, ...], y: tuple[Expr, ...]) -> bool:
    """Whether two products have one operand in common, and the other runs along the same axes."""
    if [e.dtype for e in x] != [e.dtype for e in y]:
        return False
    same = (x[0] is y[0]) + (x[1] is y[1])
    return same == 1 and all(free_indices(a) == free_indices(b) for a, b in zip(x, y, strict=True))
