"""Count the minimum work of a kernel: bytes to move, and floating-point operations.

Counted from the group that the kernel was made of: each element that is needed is read once and written once, each
value computed once. A function of one element (a product, an exponential) is one operation; selecting, converting and
moving are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..ir.dtype import FLOAT8, float32
from ..ir.graph import Value
from ..ir.scalar import Apply, Expr, Index, Read, Reduce, Scan, parts, walk
from ..ir.size import known
from ..ir.tile import Dot, Kernel
from ..ir.tile_access import expressions
from ..ir.tile_checker import check
from ..schedule.group import Group

MOVES = ("cast", "bitcast", "where")
"""Functions that perform no arithmetic."""


class Work(NamedTuple):
    """Bytes read and written, and operations."""

    read: int = 0
    written: int = 0
    operations: int = 0
    product: str = ""
    """The numbers that a matrix unit multiplies ("bfloat16", "tf32"); empty where multiply-adds do."""

    @property
    def bytes(self) -> int:
        return self.read + self.written

    def plus(self, other: Work) -> Work:
        return Work(
            self.read + other.read, self.written + other.written, self.operations + other.operations,
            self.product or other.product,
        )  # fmt: skip

    def each(self, count: int) -> Work:
        """Return the work of one of so many equal parts."""
        return self._replace(
            read=round(self.read / count), written=round(self.written / count),
            operations=round(self.operations / count),
        )  # fmt: skip


def work_of(group: Group, sizes: Mapping[str, int] = {}) -> Work:
    """Count the minimum work of the kernel of a group, for given values of the symbolic sizes.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Graph, Input, TensorType
    >>> from ..ops.broadcasting import reduce_sum
    >>> from ..ops.exponential import exp
    >>> from ..schedule.fuse import fuse
    >>> x = Input(TensorType(float32, (4, 8)), "x")
    >>> (group,) = fuse(Graph((x,), (reduce_sum(exp(x), (1,)),))).groups
    >>> work_of(group)
    Work(read=128, written=16, operations=64, product='')
    """
    written = sum(known(v.type.bytes, sizes) for v in group.stored)
    if group.kind == "opaque":
        inputs = dict.fromkeys(x for v in group.stored for x in v.inputs)
        return Work(sum(known(x.type.bytes, sizes) for x in inputs), written)
    exprs = [s.expr for s in group.stores]
    touched: dict[Value, int] = {}
    for e, indices in _free_indices(exprs).items():
        if isinstance(e, Read):
            touched[e.source] = touched.get(e.source, 0) + _count(indices, sizes)
    read = sum(min(n, known(x.type.count, sizes)) * x.dtype.bytes for x, n in touched.items())
    return Work(read, written, operations_of(exprs, sizes))


def product_of(kernel: Kernel) -> str:
    """Name the numbers that a kernel multiplies in products of matrices; empty for float32 as it is, and without any.

    >>> from ..ir.tile_parser import parse
    >>> product_of(parse('''
    ... def k(x: "*bf16", out: "*f32"):
    ...     i = tl.arange(0, 16)
    ...     v = tl.load(x + i[:, None] * 16 + i[None, :])
    ...     tl.store(out + i[:, None] * 16 + i[None, :], tl.dot(v, v))
    ... '''))
    'bfloat16'
    """
    dots = [e for e in expressions(*kernel.body) if isinstance(e, Dot)]
    if not dots:
        return ""
    dtype = check(kernel).of(dots[0].x).dtype
    if dtype is float32:
        return {"highest": "", "high": "tf32", "medium": "bfloat16"}[dots[0].precision]
    return "float8" if dtype in FLOAT8 else dtype.name.removeprefix("u")


def operations_of(exprs: Sequence[Expr], sizes: Mapping[str, int] = {}) -> int:
    """Count the floating-point operations of expressions over all values of their indices."""
    free = _free_indices(exprs)
    operations = 0
    for e, indices in free.items():
        match e:
            case Apply(fn) if e.dtype.is_float and fn not in MOVES:
                operations += _count(indices, sizes)
            case Reduce(fn, _, Reduce(inner)) if fn == inner:
                pass  # a sum over two axes adds each element once
            case Reduce(_, _, body) if body.dtype.is_float:
                operations += _count(free[body], sizes)
            case Scan(_, _, body, _) if body.dtype.is_float:
                operations += _count(free[body], sizes)
            case _:
                pass
    return operations


def _free_indices(exprs: Sequence[Expr]) -> dict[Expr, frozenset[Index]]:
    """Map every subexpression to the indices that it depends on."""
    free: dict[Expr, frozenset[Index]] = {}
    for e in walk(*exprs):
        inside: frozenset[Index] = frozenset().union(*(free[p] for p in parts(e)))
        match e:
            case Index():
                free[e] = frozenset((e,))
            case Reduce(_, index):
                free[e] = inside - {index}
            case Scan(_, index, _, at):
                free[e] = (inside - {index}) | free[at]
            case _:
                free[e] = inside
    return free


def _count(indices: frozenset[Index], sizes: Mapping[str, int]) -> int:
    total = 1
    for index in indices:
        total *= known(index.extent, sizes)
    return total
