"""Indices that are kept inside of an axis by the kernels that use them, and reported where they are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from ..ir.dtype import int64
from ..ir.graph import Reader, TensorType, Value
from ..ir.location import current_location
from ..ir.scalar import Expr, Position, apply, const, size
from ..ir.scalar import cast as cast_element
from ..ir.scalar import where as choose
from ..ir.size import Dim
from ..runtime.index_faults import number_of
from .broadcasting import require, reshape

Check: TypeAlias = tuple[int, bool]
"""The number of a place that is reported, and whether negative indices count from the end."""


@final
class Inside(Value):
    """Indices as positions on an axis; those outside become the nearest position, and whoever waits is told."""

    x: Value
    extent: Dim
    from_end: bool
    """Whether negative indices count from the end."""
    number: int
    """The place that is reported (`runtime/index_faults.py`)."""

    def infer(self) -> TensorType:
        require("i", self.x.dtype, "indexing")
        return self.x.type.with_dtype(int64)

    def element(self, position: Position, read: Reader) -> Expr:
        i, end = cast_element(read(self.x, position), int64), size(self.extent)
        if self.from_end:
            i = choose(i < 0, i + end, i)
        return apply("inside", i, end, const(self.number, int64))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)


def inside(x: Value, extent: Dim, axis: int, op: str, from_end: bool = True) -> Value:
    """Indices along an axis that kernels check when they use them."""
    return Inside(x, extent, from_end, number_of(op, axis, from_end, extent, current_location()))


def parted(index: Value) -> tuple[Value, Check | None]:
    """Indices as they were given, and how they are checked: for a kernel that does so itself."""
    return (index.x, (index.number, index.from_end)) if isinstance(index, Inside) else (index, None)


def checked(index: Value, extent: Dim, check: Check | None) -> Value:
    """The indices of `parted` as they were."""
    return index if check is None else Inside(index, extent, check[1], check[0])


def moved(index: Value, move: Callable[[Value], Value]) -> Value:
    """Indices in another shape; those that are checked stay so."""
    raw, check = parted(index)
    return move(raw) if check is None else checked(move(raw), index.extent, check)  # type: ignore[attr-defined]


def flat_index(index: Value) -> Value:
    """Indices in one row."""
    return moved(index, lambda x: reshape(x, (-1,)))
