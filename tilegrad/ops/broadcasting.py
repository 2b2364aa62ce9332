"""Broadcasting: constants, reshape, expand, and sums, which are the gradient of expand.

Every gradient of a broadcast op consists of these four ops, so they come before all others.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, ClassVar, TypeAlias, final

from ..errors import AxisError, DTypeError, ShapeError
from ..ir.dtype import DTYPES, FLOAT8, DType, bfloat16, float16, float32, int64
from ..ir.graph import Cost, Reader, TensorType, Value
from ..ir.position import flat_position, row_major
from ..ir.scalar import Expr, Position, cast, const, fresh_index, reduce, size
from ..ir.size import Dim, Shape, Size, product

Axes: TypeAlias = "int | Iterable[int] | None"
"""Axes of a tensor; negative ones count from the last, None means all."""

ZERO = const(0, int64)
KINDS = {d: {"bool": "b", "float": "f"}.get(d.kind, "i") for d in DTYPES} | dict.fromkeys(FLOAT8, "n")
"""Letter of the kind of each type; 8-bit types without arithmetic have their own."""
KIND_NAMES = {"b": "bool", "i": "integer", "f": "floating-point"}


# --- shapes and axes ---------------------------------------------------------------------------


def shown(shape: Shape) -> str:
    """Format a shape as Python does.

    >>> shown((2, 3)), shown((4,)), shown(())
    ('(2, 3)', '(4,)', '()')
    """
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def broadcast_shapes(*shapes: Shape, op: str = "broadcasting") -> Shape:
    """Broadcast shapes: extents are aligned at the last axis, and equal or 1.

    >>> broadcast_shapes((4, 1, 3), (2, 1)), broadcast_shapes((Size.named("n"), 1), (5,))
    ((4, 2, 3), (n, 5))
    """
    result: list[Dim] = []
    for n, extents in enumerate(zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)):
        extent: Dim = 1
        for other in extents:
            if extent == 1:
                extent = other
            elif other != 1 and other != extent:
                raise ShapeError(
                    f"{op}: shapes {' and '.join(map(shown, shapes))} do not fit: axis {-1 - n} has {extent} elements "
                    f"in one and {other} in another; make them equal, or one of them 1 (unsqueeze, reshape)"
                )
        result.append(extent)
    return tuple(reversed(result))


def align(position: Position, shape: Shape) -> Position:
    """Return the position in an input for a position in its broadcast shape."""
    if len(position) != len(shape):
        position = position[len(position) - len(shape) :]
    return tuple([ZERO if extent == 1 else p for p, extent in zip(position, shape, strict=True)])


def normal_axis(axis: int, rank: int, op: str = "this operation") -> int:
    """Normalise a negative axis. A tensor of rank 0 counts as having one axis, as in PyTorch."""
    if not -max(rank, 1) <= axis < max(rank, 1):
        there = f"-{rank} to {rank - 1}" if rank else "0 or -1, for a tensor without axes"
        raise AxisError(f"{op}: there is no axis {axis}; a tensor of {rank} axes takes {there}")
    return axis % max(rank, 1)


def normal_axes(axes: Axes, rank: int, op: str = "this operation") -> tuple[int, ...]:
    """Normalise axes: sorted, without duplicates."""
    if axes is None:
        return tuple(range(rank))
    listed = [axes] if isinstance(axes, int) else list(axes)
    found = [normal_axis(axis, rank, op) for axis in listed]
    if len(set(found)) != len(found):
        raise AxisError(f"{op}: axes {shown(tuple(listed))} name an axis of a tensor of {rank} axes twice")
    return tuple(sorted(found)) if rank else ()


def accumulator(dtype: DType) -> DType:
    """Return the type in which sums of a type are accumulated."""
    return float32 if dtype is float16 or dtype is bfloat16 else dtype


def require(takes: str, dtype: DType, op: str) -> None:
    """Raise an error for element types that an op does not take; `takes` has b(ool), i(nteger), f(loat)."""
    if KINDS[dtype] not in takes:
        names = " or ".join(KIND_NAMES[letter] for letter in takes)
        wanted = "float32" if "f" in takes else "int64" if "i" in takes else "bool"
        raise DTypeError(
            f"{op} takes {names} elements, not {dtype.name}; convert them first, as in x.to(tilegrad.{wanted})"
        )


def lower_bound(extent: Dim) -> float:
    """Return the smallest value of a size: symbolic sizes are at least 2.

    >>> n = Size.named("n")
    >>> lower_bound(n * 4 + 1), lower_bound(n - 3), lower_bound(7)
    (9, -1, 7)
    """
    if not isinstance(extent, Size):
        return extent
    if any(c < 0 for names, c in extent.terms.items() if names):
        return -math.inf
    return extent.value(dict.fromkeys(extent.names(), 2))


def number_key(number: float) -> float | str:
    """Return a key of a number that distinguishes -0.0 from 0.0 and for which NaN equals itself.

    >>> number_key(-0.0) == number_key(0.0), number_key(math.nan) == number_key(math.nan)
    (False, True)
    """
    return number.hex() if isinstance(number, float) else number


# --- the ops -----------------------------------------------------------------------------------


@final
class Fill(Value):
    """A tensor with all elements equal to one number."""

    cost: ClassVar[Cost] = "free"
    differentiable: ClassVar[bool] = False
    value: float
    declared: TensorType

    def infer(self) -> TensorType:
        return self.declared

    def element(self, position: Position, read: Reader) -> Expr:
        return const(self.value, self.declared.dtype)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return ()

    @property
    def attributes(self) -> tuple[Any, ...]:  # type: ignore[override]
        return number_key(self.value), self.declared

    def __str__(self) -> str:
        return f"fill[{self.value:g}]" if isinstance(self.value, float) else f"fill[{self.value}]"


class StridedView(Value):
    """Elements of a strided tensor at other strides."""

    cost: ClassVar[Cost] = "free"

    @abstractmethod
    def strided(self, strides: Shape) -> tuple[Shape, Dim] | None:
        """Return the strides of the view and the offset of its first element, for strides of its operand; None if
        elements would have to be moved.
        """

    @property
    def are_disjoint(self) -> bool:
        """Whether each element of the operand is one of the view at most once."""
        return True


@final
class Reshape(StridedView):
    """The same elements in row-major order, in another shape."""

    moves = True
    x: Value
    sizes: Shape

    def infer(self) -> TensorType:
        if product(self.sizes) != product(self.x.shape):
            raise ShapeError(
                f"reshape: {shown(self.x.shape)} has {product(self.x.shape)} elements, "
                f"{shown(self.sizes)} has {product(self.sizes)}; the numbers must agree (one size may be -1)"
            )
        return self.x.type.with_shape(self.sizes)

    def element(self, position: Position, read: Reader) -> Expr:
        return read(self.x, reshaped_position(position, self.sizes, self.x.shape))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (Reshape(upstream, self.x.shape),)

    def strided(self, strides: Shape) -> tuple[Shape, Dim] | None:
        found = reshaped_strides(self.x.shape, strides, self.sizes)
        return None if found is None else (found, 0)


@final
class Expand(StridedView):
    """Repeat axes of extent 1, and add leading axes."""

    moves = True
    x: Value
    sizes: Shape

    def infer(self) -> TensorType:
        have = (1,) * (len(self.sizes) - self.x.type.rank) + self.x.shape
        if len(have) != len(self.sizes) or any(a not in (1, b) for a, b in zip(have, self.sizes, strict=True)):
            raise ShapeError(
                f"expand: {shown(self.x.shape)} cannot become {shown(self.sizes)}: only axes of 1 element can be "
                "repeated, and new axes only be put in front"
            )
        return self.x.type.with_shape(self.sizes)

    def element(self, position: Position, read: Reader) -> Expr:
        return read(self.x, align(position, self.x.shape))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (sum_to(upstream, self.x.shape),)

    def strided(self, strides: Shape) -> tuple[Shape, Dim]:
        return repeated_strides(self.x.shape, strides, self.sizes), 0

    @property
    def are_disjoint(self) -> bool:
        return False


class Reduction(Value):
    """Reduce the elements along some axes to one."""

    fn: ClassVar[str]
    """The function of `REDUCERS` that runs over the axes."""
    takes: ClassVar[str] = "bif"
    empty: ClassVar[bool] = True
    """Whether a reduction of no elements has a result."""
    x: Value
    axes: tuple[int, ...]
    keepdim: bool = False

    def infer(self) -> TensorType:
        require(self.takes, self.x.dtype, self.op)
        shape = self.x.shape
        if not self.empty and any(shape[axis] == 0 for axis in self.axes):
            raise ShapeError(f"{self.op}: no elements along axes {shown(self.axes)} of {shown(shape)}, so no result")
        return TensorType(self.result_dtype, self.kept_shape if self.keepdim else self.left_shape, self.x.device)

    @property
    def result_dtype(self) -> DType:
        return self.x.dtype

    @property
    def kept_shape(self) -> Shape:
        return tuple([1 if n in self.axes else extent for n, extent in enumerate(self.x.shape)])

    @property
    def left_shape(self) -> Shape:
        return tuple([extent for n, extent in enumerate(self.x.shape) if n not in self.axes])

    @property
    def count(self) -> Dim:
        """Number of elements that are reduced to one."""
        return product(self.x.shape[axis] for axis in self.axes)

    def element(self, position: Position, read: Reader) -> Expr:
        over = {axis: fresh_index(self.x.shape[axis]) for axis in self.axes}
        outer = iter([p for n, p in enumerate(position) if n not in over] if self.keepdim else position)
        at = tuple([over[n] if n in over else next(outer) for n in range(self.x.type.rank)])
        result = cast(read(self.x, at), accumulator(self.x.dtype))
        for axis in reversed(self.axes):
            result = reduce(self.fn, over[axis], result)
        return cast(result, self.result_dtype)

    def kept(self, y: Value) -> Value:
        """Reshape a value of the result's shape to have the reduced axes with extent 1."""
        return y if self.keepdim else Reshape(y, self.kept_shape)

    def spread(self, y: Value) -> Value:
        """Expand a value of the result's shape to the shape of x."""
        return Expand(self.kept(y), self.x.shape)


@final
class Sum(Reduction):
    """The sum; half precision is accumulated in float32."""

    fn: ClassVar[str] = "add"
    takes: ClassVar[str] = "if"

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (self.spread(upstream),)


# --- builders ----------------------------------------------------------


def fill(value: float, shape: Shape, dtype: DType, device: str = "cpu") -> Value:
    return Fill(value, TensorType(dtype, shape, device))


def fill_like(x: Value, value: float) -> Value:
    """Return a constant of the type of another value."""
    return Fill(value, x.type)


def reshape(x: Value, sizes: Sequence[Dim]) -> Value:
    """Reshape a value; one size may be -1 and is inferred."""
    wanted = tuple(sizes)
    if -1 in wanted:
        wanted = _completed(x, wanted)
    return x if wanted == x.shape else Reshape(x, wanted)


def _completed(x: Value, sizes: Shape) -> Shape:
    count = product(x.shape)
    missing = (
        exact_quotient(count, product(extent for extent in sizes if extent != -1)) if sizes.count(-1) == 1 else None
    )
    if missing is None:
        raise ShapeError(
            f"reshape: {shown(x.shape)} has {count} elements, which leaves no one size for the -1 in {shown(sizes)}"
        )
    return tuple(missing if extent == -1 else extent for extent in sizes)


def exact_quotient(x: Dim, y: Dim) -> Dim | None:
    """Return x / y if it is an integer for all values of symbolic sizes, else None."""
    if isinstance(x, Size):
        return x.divided(y) if y != 0 else None
    return x // y if isinstance(y, int) and y != 0 and x % y == 0 else None


def expand(x: Value, sizes: Sequence[Dim]) -> Value:
    """Expand axes of extent 1; -1 keeps the extent of an axis."""
    wanted = tuple(sizes)
    if -1 in wanted:
        new = len(wanted) - x.type.rank
        if new < 0 or -1 in wanted[:new]:
            raise ShapeError(f"expand: {shown(wanted)} has a -1 where {shown(x.shape)} has no axis")
        wanted = tuple(x.shape[n - new] if extent == -1 else extent for n, extent in enumerate(wanted))
    return x if wanted == x.shape else Expand(x, wanted)


def reduce_sum(x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    found = normal_axes(axes, x.type.rank, "sum")
    return Sum(x, found, keepdim) if found else x


def sum_to(x: Value, shape: Shape) -> Value:
    """Sum over the axes that broadcasting `shape` to the shape of x repeats."""
    if x.shape == shape:
        return x
    new = x.type.rank - len(shape)
    repeated = [n + new for n, extent in enumerate(shape) if extent == 1 and x.shape[n + new] != 1]
    if not new:
        return Sum(x, tuple(repeated), True)
    return reshape(Sum(x, (*range(new), *repeated), False), shape)


def reshaped_position(position: Position, sizes: Shape, shape: Shape) -> Position:
    """Map a position in `sizes` to the position of the same element in `shape`.

    Axes are mapped in the smallest possible groups, so that most indices stay unchanged.

    >>> from ..ir.scalar import Index
    >>> i, j = Index("i", 6), Index("j", 4)
    >>> print(*reshaped_position((i, j), (6, 4), (2, 3, 1, 4)))
    (i // 3) (i % 3) 0 j
    """
    if 0 in shape:
        return (ZERO,) * len(shape)
    wide = [n for n, extent in enumerate(shape) if extent != 1]
    given = [n for n, extent in enumerate(sizes) if extent != 1]
    borders = {product(shape[n] for n in wide[:k]): k for k in range(len(wide) + 1)}
    result: list[Expr] = [ZERO] * len(shape)
    first_given = first_wide = 0
    for k in range(1, len(given) + 1):
        border = borders.get(product(sizes[n] for n in given[:k]))
        if border is None:
            continue
        part, into = given[first_given:k], wide[first_wide:border]
        flat = flat_position(tuple(position[n] for n in part), row_major(tuple(sizes[n] for n in part)))
        for place, stride in zip(into, row_major(tuple(shape[n] for n in into)), strict=True):
            whole = flat // size(stride)
            result[place] = whole if place == into[0] else whole % size(shape[place])
        first_given, first_wide = k, border
    return tuple(result)


# --- strides of views ------------------------------------------------------------------------------


def dense(shape: Shape) -> Shape:
    """Return contiguous row-major strides; an empty axis counts as one of extent 1, as in PyTorch."""
    return row_major(tuple([1 if extent == 0 else extent for extent in shape]))


def repeated_strides(shape: Shape, strides: Shape, sizes: Shape) -> Shape:
    """Return the strides of a tensor that is broadcast to a shape: 0 along repeated axes."""
    new = len(sizes) - len(shape)
    return (0,) * new + tuple([s if a == b else 0 for a, b, s in zip(shape, sizes[new:], strides, strict=True)])


def reshaped_strides(shape: Shape, strides: Shape, sizes: Sequence[Dim]) -> Shape | None:
    """Return the strides of a reshaped view, or None if elements would have to be moved.

    >>> reshaped_strides((2, 6), (12, 1), (2, 3, 2)), reshaped_strides((2, 6), (12, 1), (12,))
    ((12, 2, 1), None)
    """
    if 0 in shape:
        return dense(tuple(sizes))
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result: list[Dim] = []
    waiting = [extent for extent in sizes if extent != 1]
    for extent, stride in _runs(old):
        taken: list[Dim] = []
        count: Dim = 1
        while count != extent:
            if not waiting:
                return None
            taken.append(waiting.pop(0))
            count = count * taken[-1]
            if isinstance(count, int) and isinstance(extent, int) and count > extent:
                return None
        result.extend([inner * stride for inner in row_major(tuple(taken))])
    complete: list[Dim] = []
    behind: Dim = 1
    for extent in reversed(sizes):
        complete.append(behind if extent == 1 else result.pop())
        behind = complete[-1] * extent
    return tuple(reversed(complete))


def _runs(axes: Sequence[tuple[Dim, Dim]]) -> list[tuple[Dim, Dim]]:
    """Merge neighbouring axes that are contiguous in memory; return (extent, stride) of each group."""
    runs: list[tuple[Dim, Dim]] = []
    for extent, stride in axes:
        if runs and runs[-1][1] == stride * extent:
            runs[-1] = (runs[-1][0] * extent, stride)
        else:
            runs.append((extent, stride))
    return runs
