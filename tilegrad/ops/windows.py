"""Diagonals, triangles and windows of tensors.

Diagonal <-> DiagonalEmbed        Unfold <-> Fold
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, final

from ..errors import ArgumentError, AxisError, ShapeError
from ..ir.graph import Reader, TensorType, Value
from ..ir.scalar import Expr, Position, apply, const, fresh_index, reduce, size
from ..ir.scalar import cast as cast_element
from ..ir.scalar import where as choose
from ..ir.size import Dim, Shape
from .arithmetic import sub
from .broadcasting import ZERO, StridedView, accumulator, exact_quotient, lower_bound, normal_axis, reshape, shown
from .comparison import ge, le
from .control import masked
from .creation import positions
from .movement import Movement, narrow, replaced

Item = TypeVar("Item")


@final
class Diagonal(StridedView):
    """Elements (i, i + offset) of two axes, as a new last axis."""

    x: Value
    offset: int
    axis1: int
    axis2: int
    length: Dim

    def infer(self) -> TensorType:
        others = tuple([n for k, n in enumerate(self.x.shape) if k not in (self.axis1, self.axis2)])
        return self.x.type.with_shape((*others, self.length))

    def strided(self, strides: Shape) -> tuple[Shape, Dim]:
        rest = [s for n, s in enumerate(strides) if n not in (self.axis1, self.axis2)]
        first = strides[self.axis2] * self.offset if self.offset > 0 else strides[self.axis1] * -self.offset
        return (*rest, strides[self.axis1] + strides[self.axis2]), first

    def element(self, position: Position, read: Reader) -> Expr:
        i = position[-1]
        row, column = i + max(-self.offset, 0), i + max(self.offset, 0)
        return read(self.x, _with_axes(position[:-1], {self.axis1: row, self.axis2: column}))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        rows, columns = self.x.shape[self.axis1], self.x.shape[self.axis2]
        return (DiagonalEmbed(upstream, self.offset, self.axis1, self.axis2, rows, columns),)


@final
class DiagonalEmbed(Movement):
    """The last axis as elements (i, i + offset) of two new axes, zeros elsewhere."""

    x: Value
    offset: int
    axis1: int
    axis2: int
    rows: Dim
    columns: Dim

    def infer(self) -> TensorType:
        others = self.x.shape[:-1]
        return self.x.type.with_shape(_with_axes(others, {self.axis1: self.rows, self.axis2: self.columns}))

    def element(self, position: Position, read: Reader) -> Expr:
        row, column = position[self.axis1], position[self.axis2]
        i = row if self.offset >= 0 else column
        others = tuple([p for n, p in enumerate(position) if n not in (self.axis1, self.axis2)])
        on = apply("eq", column - row, const(self.offset, column.dtype))
        return choose(on, read(self.x, (*others, i)), const(0, self.x.dtype))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (Diagonal(upstream, self.offset, self.axis1, self.axis2, self.x.shape[-1]),)


@final
class Unfold(StridedView):
    """Windows of `width` elements along an axis, `step` apart, with their elements as a new last axis."""

    x: Value
    axis: int
    width: Dim
    step: int
    windows: Dim

    def infer(self) -> TensorType:
        return self.x.type.with_shape((*replaced(self.x.shape, self.axis, self.windows), self.width))

    def strided(self, strides: Shape) -> tuple[Shape, Dim]:
        along = strides[self.axis]
        return (*strides[: self.axis], along * self.step, *strides[self.axis + 1 :], along), 0

    def element(self, position: Position, read: Reader) -> Expr:
        place = position[self.axis] * self.step + position[-1]
        return read(self.x, replaced(position[:-1], self.axis, place))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (Fold(upstream, self.axis, self.step, self.x.shape[self.axis]),)

    @property
    def are_disjoint(self) -> bool:
        """Whether windows do not overlap."""
        return self.windows == 1 or (isinstance(self.width, int) and self.step >= self.width)


@final
class Fold(Value):
    """Sum of windows along an axis, `step` apart; the last axis has the elements of a window."""

    x: Value
    axis: int
    step: int
    extent: Dim

    def infer(self) -> TensorType:
        return self.x.type.with_shape(replaced(self.x.shape[:-1], self.axis, self.extent))

    def element(self, position: Position, read: Reader) -> Expr:
        windows, dtype = self.x.shape[self.axis], self.x.dtype
        k = fresh_index(self.x.shape[-1])
        distance = position[self.axis] - k
        window = distance // self.step
        inside = (distance >= 0) & (window < size(windows))
        if self.step != 1:
            inside = inside & apply("eq", distance % self.step, ZERO)
        part = choose(inside, read(self.x, (*replaced(position, self.axis, window), k)), const(0, dtype))
        return cast_element(reduce("add", k, cast_element(part, accumulator(dtype))), dtype)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (Unfold(upstream, self.axis, self.x.shape[-1], self.step, self.x.shape[self.axis]),)


def _with_axes(others: tuple[Item, ...], added: dict[int, Item]) -> tuple[Item, ...]:
    """Insert items at positions of the result."""
    rest = iter(others)
    return tuple([added[n] if n in added else next(rest) for n in range(len(others) + len(added))])


def _two_axes(x: Value, axis1: int, axis2: int, op: str) -> tuple[int, int]:
    if x.type.rank < 2:
        raise ShapeError(f"{op}: {shown(x.shape)} has fewer than two axes")
    i, j = normal_axis(axis1, x.type.rank, op), normal_axis(axis2, x.type.rank, op)
    if i == j:
        raise AxisError(f"{op}: two different axes are needed, not {axis1} and {axis2}")
    return i, j


def diagonal(x: Value, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """Return a diagonal of two axes, as a new last axis; positive offsets are above the main one."""
    i, j = _two_axes(x, axis1, axis2, "diagonal")
    rows, columns = x.shape[i], x.shape[j]
    if isinstance(rows, int) and isinstance(columns, int):
        length: Dim = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    elif rows == columns and lower_bound(rows) >= abs(offset):
        length = rows - abs(offset)
    else:
        raise ShapeError(f"diagonal: the length of diagonal {offset} of {shown(x.shape)} is not known; fix the sizes")
    return Diagonal(x, offset, i, j, length)


def diagonal_embed(x: Value, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Value:
    """Return the last axis as a diagonal of two new axes, as small as possible."""
    if not x.shape:
        raise ShapeError("diag_embed: a tensor without axes has no diagonal; give it one axis")
    i = normal_axis(axis1, x.type.rank + 1, "diag_embed")
    j = normal_axis(axis2, x.type.rank + 1, "diag_embed")
    if i == j:
        raise AxisError(f"diag_embed: two different axes are needed, not {axis1} and {axis2}")
    extent = x.shape[-1] + abs(offset)
    return DiagonalEmbed(x, offset, i, j, extent, extent)


def diag(x: Value, offset: int = 0) -> Value:
    """Return the diagonal of a matrix, or the matrix with a vector on its diagonal."""
    if x.type.rank not in (1, 2):
        raise ShapeError(f"diag: takes a vector or a matrix, not {shown(x.shape)}")
    return diagonal_embed(x, offset) if x.type.rank == 1 else diagonal(x, offset)


def _distance(x: Value, op: str) -> Value:
    """Return column minus row."""
    if x.type.rank < 2:
        raise ShapeError(f"{op}: {shown(x.shape)} has fewer than two axes")
    rows, columns = x.shape[-2:]
    return sub(positions(columns, x.device), reshape(positions(rows, x.device), (rows, 1)))


def tril(x: Value, offset: int = 0) -> Value:
    """Return the elements on and below a diagonal, zeros above it."""
    return masked(le(_distance(x, "tril"), offset), x)


def triu(x: Value, offset: int = 0) -> Value:
    """Return the elements on and above a diagonal, zeros below it."""
    return masked(ge(_distance(x, "triu"), offset), x)


def unfold(x: Value, axis: int, width: int, step: int) -> Value:
    """Return all windows along an axis, with their elements as a new last axis."""
    if width < 0 or step <= 0:
        raise ArgumentError(f"unfold: windows of {width} elements, {step} apart")
    n = normal_axis(axis, x.type.rank, "unfold")
    extent = x.shape[n] if x.shape else 1
    if lower_bound(extent) < width:
        raise ShapeError(f"unfold: windows of {width} do not (always) fit in axis {axis} of {shown(x.shape)}")
    windows = (extent - width) // step + 1 if isinstance(extent, int) else exact_quotient(extent - width + step, step)
    if windows is None:
        raise ShapeError(f"unfold: how many windows {step} apart are in axis {axis} of {shown(x.shape)} is not known")
    if not x.shape:
        return narrow(reshape(x, (1,)), 0, 0, width)
    return Unfold(x, n, width, step, windows)
