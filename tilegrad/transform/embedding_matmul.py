"""Rewrite `table[i] @ w` as `(table @ w)[i]` when more rows are looked up than the table has, and the gradients
accordingly.

    table[index] @ w                       ->  (table @ w)[index]
    table[index]' @ y                      ->  table' @ s    (s: zeros with y added at index)
    zeros with (y @ w) added at index      ->  s @ w

Rows of the table that no index reads are set to zero before they are multiplied in a sum: their infinities and NaN must
not contribute.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..ir.dtype import bool_, float32, float64
from ..ir.graph import Graph, Value
from ..ir.size import Dim, known, product
from ..ops.broadcasting import expand, fill, reshape
from ..ops.contraction import Contract, letters
from ..ops.control import split_check, where
from ..ops.indexing import Gather, Scatter
from ..ops.movement import Permute, permute
from .rewrite import rewrite
from .simplify import constant_of

MULTIPLIES_PER_MOVE = 64
"""Multiplications that take as long as moving an element."""
SUMMED_TYPES = (float32, float64)
"""Element types that may be summed before they are multiplied; narrower ones would be rounded after each sum."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def embedding_matmul(graph: Graph) -> Graph:
    """Multiply the table instead of the rows that are read from it, where more rows are read than the table has.

    >>> from ..ir.dtype import int64
    >>> from ..ir.graph import Input, TensorType
    >>> table, w = Input(TensorType(float32, (256, 128)), "table"), Input(TensorType(float32, (128, 64)), "w")
    >>> i = Input(TensorType(int64, (2048,)), "i")
    >>> print(embedding_matmul(Graph((table, i, w), (Contract(Gather(table, (i,), (0,)), w, "ik,kj->ij"),))))
    graph(table: f32[256,128], i: i64[2048], w: f32[128,64])
      %0: f32[256,64] = contract[ak,kj->aj] table w
      %1: f32[2048,64] = gather[axes=(0)] %0 i
      return %1
    """
    return rewrite(graph, _multiplied_first)


def _multiplied_first(value: Value, busy: set[Value]) -> Value | None:
    match value:
        case Contract():
            for side in range(2):
                made = _multiply_table(value, side)
                if made is not None:
                    return made
        case Scatter():
            return _multiply_sums(value, busy)
    return None


class GatheredRows(NamedTuple):
    """Rows of a table as an operand of a product, with the letters of their axes."""

    table: Value
    entries: Value
    """Index of the row that each entry reads."""
    many: str
    """Letters of the axes of the entries."""
    rest: str


def _gathered(x: Value, of_x: str) -> GatheredRows | None:
    """Match rows gathered from a table, with permuted axes; None for anything else."""
    x, of_x = _unpermuted(x, of_x)
    if not isinstance(x, Gather) or x.axes != (0,):
        return None
    (index,) = x.indices
    rank = index.type.rank
    return GatheredRows(x.x, index, of_x[:rank], of_x[rank:])


def _unpermuted(x: Value, of_x: str) -> tuple[Value, str]:
    """Undo permutations of a value and of the letters of its axes."""
    while isinstance(x, Permute):
        of_x = "".join(of_x[x.axes.index(n)] for n in range(len(of_x)))
        x = x.x
    return x, of_x


def _pays(rows: Dim, index: Value, depths: Iterable[Dim]) -> bool:
    """Return whether the multiplications saved outweigh moving the results."""
    few, many, depth = (known(product(extents), {}) for extents in ((rows,), index.shape, depths))
    return (many - few) * depth >= MULTIPLIES_PER_MOVE * many


def _known(*values: Value) -> bool:
    return all(type(n) is int and n > 0 for v in values for n in v.shape)


def _multiply_table(value: Contract, side: int) -> Value | None:
    """Multiply the table instead of gathered rows on one side of a product; None if neither applies or pays."""
    *axes, out = letters(value.equation)
    other, of_other = value.inputs[1 - side], axes[1 - side]
    rows = _gathered(value.inputs[side], axes[side])
    if rows is None or not _known(rows.table, rows.entries, other):
        return None
    extents = dict(zip(rows.rest, rows.table.shape[1:], strict=True))
    row = next(a for a in LETTERS if a not in value.equation)
    if set(rows.many) <= set(out) and not set(rows.many) & set(of_other):
        depths = [n for a, n in extents.items() if a not in out]
        if not _pays(rows.table.shape[0], rows.entries, depths):
            return None
        rest = "".join(a for a in out if a not in rows.many)
        made = _contract(value, side, (rows.table, row + rows.rest), (other, of_other), row + rest)
        found = Gather(made, (rows.entries,), (0,))
        return permute(found, [(rows.many + rest).index(a) for a in out])
    depths = [n for a, n in extents.items() if a not in of_other]
    if set(rows.many) & set(out) or not set(rows.many) <= set(of_other) or value.dtype not in SUMMED_TYPES:
        return None
    if not _pays(rows.table.shape[0], rows.entries, depths):
        return None
    summed, rest = _scatter_sum(rows.table.shape[0], rows.entries, rows.many, other, of_other)
    return _contract(
        value, side, (_zero_unread_rows(rows.table, rows.entries), row + rows.rest), (summed, row + rest), out
    )


def _contract(value: Contract, side: int, x: tuple[Value, str], y: tuple[Value, str], out: str) -> Value:
    """Contract x on one side with y on the other, with the precision of another contraction."""
    first, second = (x, y) if side == 0 else (y, x)
    return Contract(first[0], second[0], f"{first[1]},{second[1]}->{out}", value.precision)


def _scatter_sum(count: Dim, index: Value, many: str, y: Value, of_y: str) -> tuple[Value, str]:
    """Add up the rows of y for each row of the table, and return the letters of its axes. Entries are added in memory
    order.
    """
    y, of_y = _unpermuted(y, of_y)
    rest = "".join(a for a in of_y if a not in many)
    entries = "".join(a for a in of_y if a in many)
    index, check = split_check(index)
    index = permute(index, [many.index(a) for a in entries])
    y = permute(y, [of_y.index(a) for a in entries + rest])
    sizes = (count, *y.shape[len(many) :])
    return Scatter(fill(0.0, (), y.dtype, y.device), (index,), y, (0,), sizes, "add", (check,)), rest


def _zero_unread_rows(table: Value, index: Value) -> Value:
    """Set the rows of a table that no index reads to zero."""
    rows = table.shape[:1]
    nowhere, here = (fill(flag, shape, bool_, table.device) for flag, shape in ((False, ()), (True, index.shape)))
    index, check = split_check(index)
    there = Scatter(nowhere, (index,), here, (0,), rows, "", (check,))
    return where(expand(reshape(there, (*rows, *(1,) * (table.type.rank - 1))), table.shape), table, 0.0)


def _multiply_sums(value: Scatter, busy: set[Value]) -> Value | None:
    """Rewrite a scatter that adds rows of a product as a product of added rows; None if it does not apply or pay."""
    if value.fn != "add" or value.axes != (0,) or str(constant_of(value.base)) != "0.0":
        return None
    (index,), source = value.checked_indices, value.source
    made, names = _unpermuted(source, LETTERS[: source.type.rank])
    if not isinstance(made, Contract) or not _known(value, made, index) or _has_readers(source, busy):
        return None
    of_x, of_y, out = letters(made.equation)
    many = "".join(out[names.index(a)] for a in LETTERS[: index.type.rank])
    rest = "".join(out[names.index(a)] for a in LETTERS[index.type.rank : source.type.rank])
    side = 0 if set(many) <= set(of_x) else 1
    (of_many, of_other), other = (of_x, of_y) if side == 0 else (of_y, of_x), made.inputs[1 - side]
    if not set(many) <= set(of_many) or set(many) & set(of_other) or value.dtype not in SUMMED_TYPES:
        return None
    depths = [n for a, n in zip(of_other, other.shape, strict=True) if a not in of_many]
    if not _pays(value.sizes[0], index, depths):
        return None
    summed, others = _scatter_sum(value.sizes[0], index, many, made.inputs[side], of_many)
    row = next(a for a in LETTERS if a not in made.equation)
    return _zero_unread_rows(_contract(made, side, (summed, row + others), (other, of_other), row + rest), index)


def _has_readers(x: Value, busy: set[Value]) -> bool:
    """Return whether a value, or what it permutes, has several readers."""
    while isinstance(x, Permute) and x not in busy:
        x = x.x
    return x in busy
