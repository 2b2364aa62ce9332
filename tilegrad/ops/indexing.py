"""Indexing by tensors: gather, scatter, embedding.

Gather is elementwise; scatter has a kernel (`scatter.py`). Each is the gradient of the other.

Negative indices count from the end. Positions are always clamped to the axis: whether an index is out of range is
checked separately (`index_bounds`), because the answer needs the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import AxisError, DTypeError, GradientError, InPlaceError, ShapeError
from ..ir.dtype import bool_, int64, uint8
from ..ir.graph import Reader, TensorType, Value
from ..ir.position import row_major
from ..ir.scalar import Expr, Position, apply, const, size
from ..ir.scalar import cast as cast_element
from ..ir.scalar import where as choose
from ..ir.size import Dim, Shape, product
from .arithmetic import add, div, maximum, minimum, mul
from .base import Operand, operand, require_one_device
from .bits import bitwise_and
from .broadcasting import StridedView, broadcast_shapes, expand, fill, normal_axis, require, reshape, shown, sum_to
from .cast import cast, detach
from .comparison import eq, lt
from .control import Check, CheckedIndex, flat_index, reshape_index, split_check, where, with_check
from .movement import Movement, narrow
from .opaque import Opaque
from .reduction import reduce_max, reduce_min
from .windows import Unfold

if TYPE_CHECKING:
    from .tile_code import TileCode


def wrap_index(index: Expr, extent: Dim) -> Expr:
    """Return the position of an index on an axis, clamped to the axis."""
    i = cast_element(index, int64)
    end = size(extent)
    i = choose(i < 0, i + end, i)
    return apply("minimum", apply("maximum", i, const(0, int64)), end - 1)


@final
class TakeAlong(Value):
    """`torch.gather`: elements of x at the index along one axis."""

    x: Value
    index: Value
    axis: int

    def infer(self) -> TensorType:
        x, index = self.x, self.index
        require("i", index.dtype, "the index of gather")
        if x.type.rank != index.type.rank:
            raise ShapeError(
                f"gather: the index has shape {shown(index.shape)}, the tensor {shown(x.shape)}; they need as many "
                "axes (unsqueeze one of them)"
            )
        check_inside("gather", index.shape, x.shape, self.axis)
        return x.type.with_shape(index.shape)

    def element(self, position: Position, read: Reader) -> Expr:
        there = wrap_index(read(self.index, position), self.x.shape[self.axis])
        return read(self.x, (*position[: self.axis], there, *position[self.axis + 1 :]))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        index, check = split_check(self.index)
        return ScatterAlong(_zero(upstream), index, upstream, self.axis, self.x.shape, "add", check), None


@final
class Gather(Value):
    """Elements of x at the positions that several index tensors give along their axes.

    The indices have one shape (see `index`). It replaces the indexed axes if these are adjacent, and comes first if
    they are not, as in numpy and PyTorch.
    """

    x: Value
    indices: tuple[Value, ...]
    axes: tuple[int, ...]

    def infer(self) -> TensorType:
        for index in self.indices:
            require("i", index.dtype, "indexing")
        return self.x.type.with_shape(indexed_shape(self.x.shape, self.indices[0].shape, self.axes))

    def element(self, position: Position, read: Reader) -> Expr:
        place, rank = result_axes(self.axes), self.indices[0].type.rank
        at = position[place : place + rank]
        rest = iter((*position[:place], *position[place + rank :]))
        there = {
            axis: wrap_index(read(index, at), self.x.shape[axis])
            for axis, index in zip(self.axes, self.indices, strict=True)
        }
        return read(self.x, tuple([there[n] if n in there else next(rest) for n in range(self.x.type.rank)]))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        indices, checks = zip(*map(split_check, self.indices), strict=True)
        share = Scatter(_zero(upstream), indices, upstream, self.axes, self.x.shape, "add", checks)
        return share, *(None for _ in self.indices)


@final
class ScatterAlong(Opaque):
    """`torch.scatter`: the source is written into a copy of the base at the index along one axis.

    The base broadcasts to `sizes`. Where an index repeats, the last element wins, or elements are combined by `fn`
    ("add").
    """

    quick_reference = True
    base: Value
    index: Value
    source: Value
    axis: int
    sizes: Shape
    fn: str = ""
    check: Check | None = None
    """The check of the index in the kernel, if any."""

    def infer(self) -> TensorType:
        require("i", self.index.dtype, "the index of scatter")
        _check_same_dtype("scatter", self.base, self.source)
        if self.index.shape != self.source.shape or self.index.type.rank != len(self.sizes):
            raise ShapeError(
                f"scatter: tensor {shown(self.sizes)}, index {shown(self.index.shape)} and source "
                f"{shown(self.source.shape)} need as many axes, and the source at least the extents of the index"
            )
        check_inside("scatter", self.index.shape, self.sizes, self.axis)
        return self.base.type.with_shape(self.sizes)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        if self.fn in ("maximum", "minimum"):
            return self._of_extremes(upstream)
        if self.fn == "mul":
            return self._of_products(upstream)
        kept = upstream
        if not self.fn:
            zeros = expand(_zero(upstream), self.index.shape)
            kept = ScatterAlong(upstream, self.index, zeros, self.axis, self.sizes)
        return sum_to(kept, self.base.shape), None, TakeAlong(upstream, self.index, self.axis)

    def _of_extremes(self, upstream: Value) -> Sequence[Value | None]:
        """Return the gradient of elements that attain the maximum or minimum; ties share it."""
        chosen = detach(self)
        own = cast(eq(chosen, self.base), self.dtype)
        others = cast(eq(TakeAlong(chosen, self.index, self.axis), self.source), self.dtype)
        many = ScatterAlong(own, self.index, others, self.axis, self.sizes, "add")
        share = div(upstream, where(eq(many, 0.0), 1.0, many))  # NaN equals nothing
        to_source = mul(others, TakeAlong(share, self.index, self.axis))
        return sum_to(mul(own, share), self.base.shape), None, to_source

    def _of_products(self, upstream: Value) -> Sequence[Value | None]:
        """Return the product of all other factors; of a single zero this is the product without it."""

        def product_of(base: Value, source: Value) -> Value:
            return ScatterAlong(base, self.index, source, self.axis, self.sizes, "mul")

        base, source = expand(self.base, self.sizes), self.source
        factor = where(eq(base, 0.0), 1.0, base)
        own = div(mul(upstream, product_of(factor, source)), factor)
        is_zero = eq(source, 0.0)
        none = fill(0, self.sizes, int64, source.device)
        zeros = ScatterAlong(none, self.index, cast(is_zero, int64), self.axis, self.sizes, "add")
        is_only = bitwise_and(is_zero, eq(TakeAlong(zeros, self.index, self.axis), 1))
        without = mul(upstream, product_of(base, where(is_only, 1.0, source)))
        with_all = div(
            TakeAlong(mul(upstream, product_of(base, source)), self.index, self.axis), where(is_zero, 1.0, source)
        )
        others = where(is_only, TakeAlong(without, self.index, self.axis), with_all)
        return sum_to(own, self.base.shape), None, others

    def reference(self, base: Any, index: Any, source: Any) -> Any:
        from .scatter import clamp_positions, scatter_reference

        at = list(np.indices(index.shape, sparse=True))
        at[self.axis] = clamp_positions(index, int(self.sizes[self.axis]))  # type: ignore[arg-type]
        return scatter_reference(self.fn, base, self.sizes, tuple(at), source)  # type: ignore[arg-type]

    def kernel(self) -> TileCode:
        from .scatter import ColumnAxis, IndexedAxis, ScatterSpec, broadcast_strides, scatter_kernel

        out, base = row_major(self.sizes), broadcast_strides(self.base.shape, self.sizes)
        steps = row_major(self.index.shape)
        reach = self.index.shape
        columns = tuple(
            ColumnAxis(extent, out[n], base[n], steps[n], steps[n], reach[n] if reach[n] != extent else None)
            for n, extent in enumerate(self.sizes)
            if n != self.axis
        )
        n = self.axis
        rows = (IndexedAxis(self.sizes[n], out[n], base[n], self.check),)
        work = ScatterSpec(self.fn, columns, rows, True, reach[n], steps[n], steps[n])
        return scatter_kernel(work, self.base, (self.index,), self.source, self.type)


@final
class Scatter(Opaque):
    """`base[i, j, ...] = source` with index tensors of one shape.

    Base and `fn` are as in `ScatterAlong`.
    """

    quick_reference = True
    base: Value
    indices: tuple[Value, ...]
    source: Value
    axes: tuple[int, ...]
    sizes: Shape
    fn: str = ""
    checks: tuple[Check | None, ...] = ()
    """The checks of the indices in the kernel; empty if there are none."""

    @property
    def checked_indices(self) -> tuple[Value, ...]:
        """Indices, with those that the kernel checks as checked ones."""
        extents = [self.sizes[axis] for axis in self.axes]
        checks = self.checks or (None,) * len(extents)
        return tuple([with_check(*given) for given in zip(self.indices, extents, checks, strict=True)])

    def infer(self) -> TensorType:
        for index in self.indices:
            require("i", index.dtype, "indexing")
        _check_same_dtype("index_put", self.base, self.source)
        wanted = indexed_shape(self.sizes, self.indices[0].shape, self.axes)
        if self.source.shape != wanted:
            raise ShapeError(
                f"index_put: the places written to have shape {shown(wanted)}, the source {shown(self.source.shape)}; "
                "the source must broadcast to it"
            )
        return self.base.type.with_shape(self.sizes)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        _check_differentiable(self.op, self.fn)
        kept = upstream
        if not self.fn:
            zeros = expand(_zero(upstream), self.source.shape)
            kept = Scatter(upstream, self.indices, zeros, self.axes, self.sizes)
        nothing = (None,) * len(self.indices)
        return sum_to(kept, self.base.shape), *nothing, Gather(upstream, self.indices, self.axes)

    def reference(self, base: Any, *others: Any) -> Any:
        from .scatter import clamp_positions, scatter_reference

        *indices, source = others
        shape = indices[0].shape
        place, rest = result_axes(self.axes), [n for n in range(len(self.sizes)) if n not in self.axes]
        at: list[Any] = [None] * len(self.sizes)
        for axis, index in zip(self.axes, indices, strict=True):
            kept = clamp_positions(index, int(self.sizes[axis]))  # type: ignore[arg-type]
            at[axis] = kept.reshape(shape + (1,) * (len(rest) - place))
        for k, axis in enumerate(rest):
            behind = len(rest) - 1 - k + (len(shape) if k < place else 0)
            at[axis] = np.arange(self.sizes[axis]).reshape((-1,) + (1,) * behind)  # type: ignore[arg-type]
        return scatter_reference(self.fn, base, self.sizes, tuple(at), source)  # type: ignore[arg-type]

    def kernel(self) -> TileCode:
        from .scatter import ColumnAxis, IndexedAxis, ScatterSpec, broadcast_strides, scatter_kernel

        out, base = row_major(self.sizes), broadcast_strides(self.base.shape, self.sizes)
        source = row_major(self.source.shape)
        place, rank = result_axes(self.axes), self.indices[0].type.rank
        rest = [n for n in range(len(self.sizes)) if n not in self.axes]
        source_strides = [*source[:place], *source[place + rank :]]
        columns = tuple(ColumnAxis(self.sizes[n], out[n], base[n], source_strides[k]) for k, n in enumerate(rest))
        checks = self.checks or (None,) * len(self.axes)
        rows = tuple(IndexedAxis(self.sizes[n], out[n], base[n], checks[k]) for k, n in enumerate(self.axes))
        step = product(self.source.shape[place + rank :])
        work = ScatterSpec(self.fn, columns, rows, False, product(self.indices[0].shape), 1, step)
        return scatter_kernel(work, self.base, self.indices, self.source, self.type)


def _check_same_dtype(op: str, base: Value, source: Value) -> None:
    if base.dtype is not source.dtype:
        raise DTypeError(
            f"{op}: the tensor has {base.dtype.name} elements, the source {source.dtype.name}; convert it, as in "
            f"source.to(tilegrad.{base.dtype.name})"
        )
    if base.shape and source.shape:
        require_one_device(op, [base, source])


def _zero(like: Value) -> Value:
    return fill(0.0, (), like.dtype, like.device)


def _check_differentiable(op: str, fn: str) -> None:
    if fn not in ("", "add"):
        raise GradientError(f"{op}: {fn!r} has no gradient here; detach its inputs, or use 'add'")


def result_axes(axes: tuple[int, ...]) -> int:
    """Return the position of the index axes in the result."""
    return axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0


def indexed_shape(shape: Shape, index: Shape, axes: tuple[int, ...]) -> Shape:
    rest = [extent for n, extent in enumerate(shape) if n not in axes]
    place = result_axes(axes)
    return (*rest[:place], *index, *rest[place:])


def check_inside(op: str, index: Shape, shape: Shape, axis: int) -> None:
    """Raise an error if an index is longer than the tensor along an axis other than the indexed one. An index without
    elements is valid.
    """
    if 0 in index:
        return
    for n, (i, extent) in enumerate(zip(index, shape, strict=True)):
        if n != axis and i != extent and not (isinstance(i, int) and isinstance(extent, int) and i < extent):
            raise ShapeError(
                f"{op}: the index of shape {shown(index)} has {i} elements along axis {n}, the tensor of shape "
                f"{shown(shape)} only {extent}; slice the index, or expand the tensor"
            )


# --- builders --------------------------------------------------------------------


def take_along(x: Value, index: Value, axis: int) -> Value:
    """`torch.gather`; a scalar counts as having one axis."""
    axis = normal_axis(axis, x.type.rank, "gather")
    if not x.type.rank or not index.type.rank:
        flat = TakeAlong(reshape(x, (1,)) if not x.type.rank else x, flat_index(index), 0)
        return reshape(flat, index.shape)
    if x.type.rank != index.type.rank and 0 in index.shape:
        return reshape(TakeAlong(reshape(x, (-1,)), reshape(index, (-1,)), 0), index.shape)
    return TakeAlong(x, index, axis)


def index(x: Value, indices: Sequence[Value], axes: Sequence[int]) -> Value:
    """`x[i, j, ...]` with broadcast index tensors at some axes."""
    return Gather(x, *_spread("indexing", x, indices, axes))


def _spread(
    op: str, x: Value, indices: Sequence[Value], axes: Sequence[int]
) -> tuple[tuple[Value, ...], tuple[int, ...]]:
    """Broadcast the indices and sort them by axis."""
    require_one_device(op, [x, *indices])
    if len(set(axes)) != len(axes) or not all(0 <= axis < x.type.rank for axis in axes):
        raise AxisError(f"{op}: {shown(tuple(axes))} are not different axes of a tensor of {x.type.rank} axes")
    order = sorted(range(len(axes)), key=lambda n: axes[n])
    shape = broadcast_shapes(*(i.shape for i in indices), op=op)
    spread = tuple([reshape_index(indices[n], lambda i: expand(i, shape)) for n in order])
    return spread, tuple([axes[n] for n in order])


def index_select(x: Value, index_: Value, axis: int) -> Value:
    """Return the slices of x along an axis at the given indices."""
    if index_.type.rank > 1:
        raise ShapeError(
            f"index_select: the index must have one axis, not shape {shown(index_.shape)}; flatten it, or use x[index]"
        )
    if not x.type.rank:
        return reshape(Gather(reshape(x, (1,)), (flat_index(index_),), (0,)), ())
    return Gather(x, (flat_index(index_),), (normal_axis(axis, x.type.rank, "index_select"),))


def embedding(weight: Value, index_: Value) -> Value:
    """Look up rows of a table."""
    if weight.type.rank != 2:
        raise ShapeError(f"embedding: the table must have two axes, not shape {shown(weight.shape)}")
    return Gather(weight, (index_,), (0,))


def scatter_along(base: Value, index_: Value, source: Operand, axis: int, fn: str = "") -> Value:
    """`torch.scatter` and `scatter_add` (fn "add"); the source may be longer than the index."""
    if base.dtype is bool_ and fn:
        return _scatter_bools(lambda x, y, of: scatter_along(x, index_, y, axis, of), base, source, fn)
    if not base.type.rank:
        one = scatter_along(reshape(base, (1,)), flat_index(index_), _flat(source), 0, fn)
        return reshape(one, ())
    axis = normal_axis(axis, base.type.rank, "scatter")
    if 0 in index_.shape and base.type.rank != index_.type.rank:
        return base
    index_, check = split_check(index_)
    if not isinstance(source, Value):
        source = expand(operand(source, base), index_.shape)
    elif source.shape != index_.shape and source.type.rank == index_.type.rank:
        check_inside("scatter", index_.shape, source.shape, -1)
        if 0 in index_.shape:
            source = expand(_zero(source), index_.shape)
        else:
            for n, extent in enumerate(index_.shape):
                source = narrow(source, n, 0, extent)
    return ScatterAlong(base, index_, source, axis, base.shape, fn, check)


def _scatter_bools(
    combine: Callable[[Value, Value | float, str], Value], base: Value, source: Operand, fn: str
) -> Value:
    """Scatter bools: a sum is a disjunction, a product a conjunction."""
    given = cast(source, uint8) if isinstance(source, Value) else int(source)
    of = {"add": "maximum", "mul": "minimum"}.get(fn, fn)
    return cast(combine(cast(base, uint8), given, of), bool_)


def _flat(source: Operand) -> Value | float:
    return reshape(source, (-1,)) if isinstance(source, Value) else source


def index_put(base: Value, indices: Sequence[Value], axes: Sequence[int], source: Operand, fn: str = "") -> Value:
    """Return `base[i, j, ...] = source` as a new value (fn "add": `+=` with every repeated index counted)."""
    if base.dtype is bool_ and fn:
        return _scatter_bools(lambda x, y, of: index_put(x, indices, axes, y, of), base, source, fn)
    if not base.type.rank and list(axes) == [0]:
        return reshape(index_put(reshape(base, (1,)), [flat_index(i) for i in indices], axes, _flat(source), fn), ())
    given_indices, ordered = _spread("index_put", base, indices, axes)
    spread, checks = zip(*map(split_check, given_indices), strict=True)
    wanted = indexed_shape(base.shape, spread[0].shape, ordered)
    given = operand(source, base)
    if broadcast_shapes(given.shape, wanted, op="index_put") != wanted:
        raise ShapeError(
            f"index_put: a source of shape {shown(given.shape)} does not fit places of shape {shown(wanted)}"
        )
    return Scatter(base, spread, expand(given, wanted), ordered, base.shape, fn, checks)


def index_add(base: Value, axis: int, index_: Value, source: Value) -> Value:
    """Add slices of the source along an axis to the indexed slices of the base."""
    return index_put(base, (flat_index(index_),), (normal_axis(axis, base.type.rank, "index_add"),), source, "add")


def put(base: Value, path: Sequence[Value], value: Operand) -> Value:
    """Return the base with a view of it replaced: `base.T[1:] = value` as a new value.

    `path` lists the movements from the base to the view. The gradient of a movement scatters elements back to their
    origin, which is what writing through a view means.
    """
    view = path[-1] if path else base
    given = operand(value, base)
    _check_same_dtype("item assignment", base, given)
    if broadcast_shapes(given.shape, view.shape, op="item assignment") != view.shape:
        raise ShapeError(f"item assignment: {shown(given.shape)} does not fit the places of shape {shown(view.shape)}")
    put_back, written = expand(given, view.shape), fill(True, view.shape, bool_, base.device)
    for step in reversed(path):
        if not is_assignable(step):
            raise InPlaceError(
                f"item assignment through {step.op}: several of its elements may be one element of the base; "
                "assign to the base, or to a clone()"
            )
        put_back, written = _scatter_view(step, put_back), _scatter_view(step, written)
    return put_back if product(view.shape) == product(base.shape) else where(written, put_back, base)


def is_assignable(step: Value) -> bool:
    """Whether a movement has each element of its operand at most once, so that writing through it is defined."""
    return isinstance(step, Movement) or (isinstance(step, StridedView) and step.are_disjoint)


def _scatter_view(step: Value, x: Value) -> Value:
    """Scatter the elements of a view into zeros; overlapping windows are added."""
    if isinstance(step, Unfold) and x.dtype is bool_:
        return cast(_scatter_view(step, cast(x, uint8)), bool_)
    (found,) = step.gradient(x)
    assert found is not None, f"{step.op} only moves elements"
    return found


def clamp_indices(index_: Value, extent: int) -> Value:
    """Return the positions of indices on an axis, as `wrap_index` does for elements."""
    if isinstance(index_, CheckedIndex):
        return index_
    wide = cast(index_, int64)
    wide = where(lt(wide, 0), add(wide, extent), wide)
    return maximum(minimum(wide, extent - 1), 0)


def index_bounds(index_: Value) -> tuple[Value, Value]:
    """Return the smallest and the largest index."""
    return reduce_min(cast(index_, int64)), reduce_max(cast(index_, int64))
