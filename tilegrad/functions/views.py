"""Define views: functions whose result shares the storage of its argument, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, update_wrapper, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ..errors import ArgumentError, ShapeError
from ..ir.dtype import DType
from ..ir.size import Dim, Size
from ..lazy.handle import become, wrap
from ..lazy.handle import view as cut
from ..lazy.layout import contiguous_format, is_dense, layout
from ..ops import movement
from ..ops.broadcasting import expand as repeated
from ..ops.broadcasting import normal_axis, reshaped_strides, shown
from ..ops.broadcasting import reshape as reformed
from ..ops.cast import bitcast
from .declared import LARGEST, NO_LIST, integer, integers, publish
from .pointwise import Ops
from .promotion import kind_of

if TYPE_CHECKING:
    from ..tensor import Tensor

windows = Ops("windows")
P = ParamSpec("P")
R = TypeVar("R", bound="Tensor")
T = TypeVar("T")


def sizes_of(given: Sequence[Any], op: str) -> tuple[Dim, ...]:
    """Return sizes that are given as arguments or as one sequence."""
    alone = len(given) == 1 and hasattr(given[0], "__iter__") and not isinstance(given[0], Size)
    if alone and isinstance(given[0], NO_LIST):
        found = integers(given[0], op, "a size")
        given, alone = (found if isinstance(found, (list, tuple)) else (found,)), False
    sizes = tuple(given[0]) if alone and getattr(given[0], "shape", None) != () else tuple(given)
    for extent in sizes:
        if not (-LARGEST <= extent < LARGEST if extent.__class__ is int else isinstance(extent, Size)):
            break
    else:
        return sizes
    return _converted_sizes(sizes, op)


def _converted_sizes(sizes: Sequence[Any], op: str) -> tuple[Dim, ...]:
    """Convert sizes that are not plain integers, or refuse them."""
    if sizes[0].__class__ is bool:  # PyTorch looks at the first one only
        raise ArgumentError(f"{op}: a size is an integer, not {sizes[0]} (bool)")
    for extent in sizes:
        if not isinstance(extent, Size) and (isinstance(extent, type) or not hasattr(extent, "__index__")):
            raise ArgumentError(f"{op}: a size is an integer, not {kind_of(extent)}")
    return tuple([integer(n, op, "a size") for n in sizes])


# --- other names for arguments ------------------------------------------------------------------


def in_one_piece(name: str) -> Callable[[Callable[P, T]], Callable[..., T]]:
    """Wrap a function of sizes so that it takes them as arguments, as one sequence, or by name.

    >>> import tilegrad as tg
    >>> tg.zeros(size=(2, 3)).flip(dims=(0, 1)).shape
    (2, 3)
    """

    def taught(fn: Callable[P, T]) -> Callable[..., T]:
        @wraps(fn)
        def named(*args: Any, **kwargs: Any) -> T:
            return fn(*args, kwargs.pop(name), **kwargs) if name in kwargs else fn(*args, **kwargs)

        return named

    return taught


def numpy_names(fn: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function so that it takes numpy's names for `dim` and `keepdim`: `axis` and `keepdims`.

    >>> import tilegrad as tg
    >>> tg.ones(2, 3).sum(axis=1, keepdims=True)
    tensor([[3.],
            [3.]])
    """

    @wraps(fn)
    def named(*args: P.args, **kwargs: P.kwargs) -> T:
        if "axis" in kwargs and "dim" not in kwargs:
            kwargs["dim"] = kwargs.pop("axis")
        if "keepdims" in kwargs and "keepdim" not in kwargs:
            kwargs["keepdim"] = kwargs.pop("keepdims")
        if "keepdim" in kwargs and "dim" not in kwargs and len(args) < 2:
            _refuse_alone(fn.__name__, "unbiased" in kwargs)
        return fn(*args, **kwargs)

    return named


def _refuse_alone(op: str, unbiased: bool) -> None:
    """Refuse `keepdim` where no dimension is named: PyTorch has no such form of these functions."""
    if op in ("sum", "mean", "prod", "max", "min", "median", "nanmedian") or unbiased:
        raise ArgumentError(f"{op}: keepdim goes with dim; name the dimensions, or dim=None where all are meant")


# --- other shapes ------------------------------------------------------------------------------


@in_one_piece("size")
def view(input: Tensor, *shape: Any) -> Tensor:
    """View the elements in another shape, on the same storage; with a dtype, reinterpret the bits."""
    if len(shape) == 1 and isinstance(shape[0], DType):
        return cut(input, partial(bitcast, to=shape[0]))
    sizes = sizes_of(shape, "view")
    found = _reshaped(input, sizes)
    if found is None:
        raise ShapeError(
            f"view: a tensor of shape {shown(input.shape)} with strides {input.stride()} cannot be seen as "
            f"{shown(sizes)} without moving elements; use reshape, or contiguous().view(...)"
        )
    return found


@in_one_piece("shape")
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """Return the elements in another shape: a view where that is possible, else a copy."""
    sizes = sizes_of(shape, "reshape")
    found = _reshaped(input, sizes)
    return wrap(reformed(input.value, sizes)) if found is None else found


def _reshaped(x: Tensor, sizes: tuple[Dim, ...]) -> Tensor | None:
    if (x._moves or x._strides is not None) and not is_dense(x):
        value = x.value
        if reshaped_strides(value.shape, layout(x).strides, reformed(value, sizes).shape) is None:
            return None
    return cut(x, partial(reformed, sizes=sizes))


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """View the elements in the shape of another tensor."""
    return view(input, other.shape)


def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """Return the elements in the shape of another tensor, copied if necessary."""
    return reshape(input, other.shape)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merge a range of dimensions into one."""
    return reshape(input, movement.flatten(input.value, start_dim, end_dim).shape)


def ravel(input: Tensor) -> Tensor:
    """Merge all dimensions into one."""
    return reshape(input, -1) if is_dense(input) else wrap(reformed(input.value, (-1,)))


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Split one dimension into several."""
    return view(input, movement.unflatten(input.value, dim, sizes).shape)


@numpy_names
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Remove dimensions of size 1: all of them, or those in `dim`."""
    return cut(input, partial(movement.squeeze, axes=dim))


@numpy_names
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Insert a dimension of size 1."""
    return cut(input, partial(movement.unsqueeze, axis=dim))


@in_one_piece("size")
def expand(input: Tensor, *sizes: Any) -> Tensor:
    """Broadcast dimensions of size 1 without copying; -1 keeps a size."""
    return cut(input, partial(repeated, sizes=sizes_of(sizes, "expand")))


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Broadcast to the shape of another tensor, without copying."""
    return expand(input, other.shape)


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """Broadcast to a shape, without copying."""
    return expand(input, size)


# --- dimensions in another order ---------------------------------------------------------------


@in_one_piece("dims")
def permute(input: Tensor, *dims: Any) -> Tensor:
    """Permute the dimensions."""
    axes: Any = sizes_of(dims, "permute")
    return cut(input, partial(movement.permute, axes=axes))


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchange two dimensions."""
    return cut(input, partial(movement.transpose, axis1=dim0, axis2=dim1))


def t(input: Tensor) -> Tensor:
    """Transpose a matrix; return a vector or a number as it is."""
    if len(input.shape) > 2:
        raise ShapeError(
            f"t: takes at most two dimensions, not shape {shown(input.shape)}; use transpose(dim0, dim1) or mT"
        )
    return transpose(input, 0, 1) if len(input.shape) == 2 else cut(input, partial(reformed, sizes=input.shape))


def reversed_axes(input: Tensor) -> Tensor:
    """Reverse the order of the dimensions: `x.T`."""
    return cut(input, partial(movement.permute, axes=tuple(range(len(input.shape) - 1, -1, -1))))


def matrix_transposed(input: Tensor) -> Tensor:
    """Exchange the last two dimensions: `x.mT`."""
    if not input.shape:
        return input
    if len(input.shape) < 2:
        raise ShapeError(f"mT: a tensor of shape {shown(input.shape)} has fewer than two dimensions")
    return transpose(input, -2, -1)


def reshaping(fn: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[R, P], R]:
    """Return the in-place variant of a view: `x.unsqueeze_(0)`."""
    name = f"{fn.__name__}_"

    def changed(self: R, /, *args: P.args, **kwargs: P.kwargs) -> R:
        become(self, fn(self, *args, **kwargs), name)
        return self

    update_wrapper(changed, fn)
    changed.__name__ = changed.__qualname__ = name
    changed.__doc__ = f"In place: {fn.__doc__}"
    return changed


def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Move dimensions to other positions; the others keep their order."""
    return cut(input, partial(movement.moveaxis, source=source, destination=destination))


# --- parts -------------------------------------------------------------------------------------


@numpy_names
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Slice a dimension: `length` elements from `start` on."""
    return cut(input, partial(movement.narrow, axis=dim, start=int(start), length=length))


@numpy_names
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Select one index of a dimension, which is removed."""
    return cut(input, partial(movement.select, axis=dim, index=index))


@numpy_names
def split(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Split along a dimension into parts of one size (the last may be smaller), or of the given sizes."""
    parts = movement.split(tensor.value, split_size_or_sections, dim)
    return _pieces(tensor, [part.shape for part in parts], dim, "split")


@numpy_names
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Split along a dimension into at most `chunks` parts of one size, the last possibly smaller."""
    if not input.dim():
        raise ShapeError("chunk: a tensor without dimensions has no parts")
    parts = movement.chunk(input.value, chunks, dim)
    return _pieces(input, [part.shape for part in parts], dim, "chunk")


@numpy_names
def tensor_split(input: Tensor, indices_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Split along a dimension into a number of nearly equal parts, or at the given indices."""
    extent = input.shape[normal_axis(dim, len(input.shape), "tensor_split")]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1:
            raise ArgumentError(f"tensor_split: into {indices_or_sections} parts")
        small, larger = divmod(extent, indices_or_sections)
        sizes = [small + (n < larger) for n in range(indices_or_sections)]
    else:
        ends = [min(max(i + extent if i < 0 else i, 0), extent) for i in indices_or_sections]
        starts = [0, *ends]
        sizes = [max(0, end - start) for start, end in zip(starts, [*ends, extent], strict=True)]
        return tuple([narrow(input, dim, min(a, extent), n) for a, n in zip(starts, sizes, strict=True)])
    return split(input, sizes, dim)


def _pieces(x: Tensor, shapes: Sequence[Any], dim: int, op: str) -> tuple[Tensor, ...]:
    axis = normal_axis(dim, len(x.shape), op)
    start: Dim = 0
    pieces = []
    for shape in shapes:
        pieces.append(cut(x, partial(movement.narrow, axis=axis, start=start, length=shape[axis])))
        start = start + shape[axis]
    return tuple(pieces)


@numpy_names
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Return the slices along a dimension, which is removed."""
    if not input.shape:
        raise ShapeError("unbind: a tensor without dimensions has no parts; read it with item()")
    axis = normal_axis(dim, len(input.shape), "unbind")
    if axis == 0:
        return tuple([input[i] for i in range(input.shape[0])])
    return tuple([select(input, axis, i) for i in range(input.shape[axis])])


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """View a diagonal of two dimensions as a new last one."""
    return cut(input, partial(windows.diagonal, offset=offset, axis1=dim1, axis2=dim2))


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """View all windows of a dimension; the elements of a window form a new last dimension."""
    return cut(input, partial(windows.unfold, axis=dimension, width=size, step=step))


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """Exchange two dimensions."""
    return transpose(input, axis0, axis1)


swapdims = transpose
moveaxis = movedim


# --- copies: `permute_copy` is `permute` with memory of its own ------------------------------------


def _copying(view: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """Return the variant of a function that copies the views it returns."""
    name = name or f"{view.__name__.lstrip('_')}_copy"

    def copied(*given: Any, **options: Any) -> Any:
        made = view(*given, **options)
        parts = [x.clone(memory_format=contiguous_format) for x in (made if isinstance(made, tuple) else [made])]
        return tuple(parts) if isinstance(made, tuple) else parts[0]

    update_wrapper(copied, view)
    copied.__name__ = copied.__qualname__ = name
    copied.__doc__ = f"Copied: {view.__doc__}"
    return copied


def _slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """Slice a dimension from start to end with a step."""
    return input[(*[slice(None)] * normal_axis(dim, input.dim(), "slice_copy"), slice(start, end, step))]


def _alias(input: Tensor) -> Tensor:
    """Return the tensor itself."""
    return input


def _detach(input: Tensor) -> Tensor:
    """Return the elements without their history."""
    return input.detach()


alias_copy, detach_copy, slice_copy = _copying(_alias), _copying(_detach), _copying(_slice)
diagonal_copy, expand_copy, narrow_copy = _copying(diagonal), _copying(expand), _copying(narrow)
permute_copy, select_copy, split_copy = _copying(permute), _copying(select), _copying(split)
squeeze_copy, t_copy, transpose_copy = _copying(squeeze), _copying(t), _copying(transpose)
unbind_copy, unfold_copy, unsqueeze_copy = _copying(unbind), _copying(unfold), _copying(unsqueeze)
view_copy, split_with_sizes_copy = _copying(reshape, "view_copy"), _copying(split)
unsafe_chunk, unsafe_split, unsafe_split_with_sizes = chunk, split, split
"""PyTorch promises nothing about writes to the pieces of these; here they are views."""

publish(
    globals(),
    internal=("sizes_of", "in_one_piece", "numpy_names", "reversed_axes", "matrix_transposed", "reshaping"),
)
