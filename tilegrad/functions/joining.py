"""Define functions that join, repeat, flip and pad tensors; results are new tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..deferred import part
from ..errors import ArgumentError, AxisError, DTypeError, ShapeError
from ..ir.dtype import int64
from ..ir.graph import Value
from ..lazy.handle import Handle, wrap
from ..lazy.kept_formats import keeping_format, keeping_strides
from ..lazy.layout import contiguous_format, in_channels_last, lay, suggests_channels_last
from ..ops import movement, windows
from ..ops.broadcasting import broadcast_shapes, normal_axis
from ..ops.cast import cast
from .creation import arange, tensor
from .declared import publish
from .promotion import Number, Tensors, kind_of, result_type, value_of
from .views import in_one_piece, numpy_names, sizes_of

if TYPE_CHECKING:
    from ..tensor import Tensor

MIN_PIECES = 8
"""Pieces from which on they are copied at once. Fewer are read by the program of what is computed with them."""


def _values(tensors: Sequence[Tensor], op: str) -> list[Value]:
    """Convert several tensors to one dtype."""
    if isinstance(tensors, Handle) or not all(isinstance(x, Handle) for x in tensors):
        raise ArgumentError(f"{op} takes a list or tuple of tensors, not {kind_of(tensors)}; write {op}([x, y])")
    values = [x.value for x in tensors]
    if len({v.dtype for v in values}) > 1:
        dtype = result_type(*values)
        values = [cast(v, dtype) for v in values]
    return values


# --- tensors together --------------------------------------------------------------------------


@numpy_names
@keeping_format(0)
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Concatenate tensors along a dimension."""
    made: Tensor | None = _at_once(tensors, dim)
    return wrap(movement.cat(_values(tensors, "cat"), dim)) if made is None else made


@numpy_names
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Stack tensors of one shape along a new dimension."""
    found: Tensor | None = _at_once(tensors, dim, True)
    made = wrap(movement.stack(_values(tensors, "stack"), dim)) if found is None else found
    axis, shape = dim % made._value.type.rank, tensors[0]._value.type.shape
    if axis < len(shape) and all(map(suggests_channels_last, tensors)):
        return lay(made, _stacked(shape, len(tensors), axis))
    return made


def _at_once(tensors: Any, dim: Any, is_stack: bool = False) -> Any:
    """Join tensors in memory without recording; None: it is to be recorded."""
    if tensors.__class__ not in (list, tuple) or len(tensors) < MIN_PIECES:
        return None
    join = part("lazy.joined_at_once", "joined")
    return None if join is None else join(tensors, dim, is_stack)


def _stacked(shape: Any, count: int, axis: int) -> Any:
    """Return the strides of joined channels-last tensors, before the axis is split."""
    joined = in_channels_last((*shape[:axis], count * shape[axis], *shape[axis + 1 :]))
    return (*joined[:axis], shape[axis] * joined[axis], *joined[axis:])


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Stack along the first dimension."""
    return cat([x.reshape(1, -1) if len(x.shape) < 2 else x for x in tensors], 0)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Stack along the second dimension; vectors along their only one."""
    flat = [x.reshape(1) if not x.shape else x for x in tensors]
    return cat(flat, 0 if not flat or len(flat[0].shape) == 1 else 1)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Expand tensors to their common shape."""
    shape = broadcast_shapes(*(x.value.shape for x in tensors))
    return tuple([x.expand(shape) for x in tensors])


def meshgrid(*tensors: Tensors, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Expand vectors to coordinate grids, one dimension for each vector."""
    vectors = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Handle) else tensors
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"meshgrid: indexing is 'ij' or 'xy', not {indexing!r}")
    swapped = indexing == "xy" and len(vectors) >= 2
    order = [vectors[1], vectors[0], *vectors[2:]] if swapped else list(vectors)
    shape = tuple([x.numel() for x in order])
    grids = [x.reshape([-1 if n == k else 1 for n in range(len(order))]).expand(shape) for k, x in enumerate(order)]
    if swapped:
        grids = [grids[1], grids[0], *grids[2:]]
    return tuple(grids)


# --- repeated, moved ---------------------------------------------------------------------------


def _counts(given: Sequence[Any], op: str) -> list[int]:
    counts: Any = sizes_of(given, op)
    return list(counts)


@in_one_piece("repeats")
def repeat(input: Tensor, *repeats: Any) -> Tensor:
    """Repeat the tensor a number of times along each dimension."""
    return wrap(movement.repeat(value_of(input, "repeat"), _counts(repeats, "repeat")))


@in_one_piece("dims")
def tile(input: Tensor, *dims: Any) -> Tensor:
    """Repeat the tensor; unlike `repeat`, takes fewer counts than dimensions."""
    counts = _counts(dims, "tile")
    return wrap(movement.repeat(value_of(input, "tile"), [1] * (len(input.shape) - len(counts)) + counts))


@numpy_names
def repeat_interleave(
    input: Tensor, repeats: int | Tensor | None = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Repeat each element along a dimension; `repeats` may have one count for each index.

    Of counts alone: each index as often as its count says. `output_size` needs not be said.
    """
    if repeats is None:
        input, repeats = arange(input.shape[0], device=input.device), input
    if isinstance(repeats, int):
        return wrap(movement.repeat_interleave(value_of(input, "repeat_interleave"), repeats, dim))
    if dim is None:
        input, dim = input.reshape(-1), 0
    if repeats.dtype.kind not in ("int", "uint"):
        raise DTypeError(f"repeat_interleave: repeats are integers, not {repeats.dtype.name}")
    counts = repeats.expand(input.shape[dim]).tolist()
    places = [place for place, count in enumerate(counts) for _ in range(count)]
    return input.index_select(dim, tensor(places, dtype=int64, device=input.device))


@in_one_piece("dims")
@keeping_strides
def flip(input: Tensor, *dims: Any) -> Tensor:
    """Reverse the order along dimensions; a copy."""
    return wrap(movement.flip(value_of(input, "flip"), _counts(dims, "flip")))


def fliplr(input: Tensor) -> Tensor:
    """Reverse the order of columns."""
    if input.dim() < 2:
        raise ShapeError(f"fliplr: takes at least two dimensions, not shape {tuple(input.shape)}")
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """Reverse the order of rows."""
    if not input.dim():
        raise ShapeError("flipud: takes at least one dimension, not a tensor without any")
    return flip(input, 0)


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotate by `k` quarter turns in the plane of two dimensions."""
    if len(dims) != 2:
        raise ArgumentError(f"rot90: dims={dims!r}: give two dimensions")
    first, second = dims
    if normal_axis(first, input.dim(), "rot90") == normal_axis(second, input.dim(), "rot90"):
        raise AxisError(f"rot90: dims={dims!r} are one dimension; a plane has two")
    match k % 4:
        case 1:
            return flip(input, second).transpose(first, second)
        case 2:
            return flip(input, first, second)
        case 3:
            return flip(input, first).transpose(first, second)
    return input.clone(memory_format=contiguous_format)


@keeping_format(0)
def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Shift elements along dimensions, cyclically."""
    x = value_of(input, "roll")
    if dims not in (None, (), []) and not x.shape:
        raise AxisError(f"roll: the dimensions {dims} of a tensor without dimensions")
    return wrap(movement.roll(x, shifts, dims))


# --- diagonals and triangles -------------------------------------------------------------------


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """Return the diagonal of a matrix, or build the matrix with a vector on its diagonal."""
    return wrap(windows.diag(value_of(input, "diag"), diagonal))


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Place the last dimension on the diagonal of two new ones."""
    return wrap(windows.diagonal_embed(value_of(input, "diag_embed"), offset, dim1, dim2))


def trace(input: Tensor) -> Tensor:
    """Sum the diagonal of a matrix."""
    if input.dim() != 2:
        raise ShapeError(f"trace: takes a matrix, not shape {tuple(input.shape)}; x.diagonal(dim1=-2, dim2=-1).sum(-1)")
    return input.diagonal().sum()


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Keep the elements on and below a diagonal, zeros above."""
    return wrap(windows.tril(value_of(input, "tril"), diagonal))


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Keep the elements on and above a diagonal, zeros below."""
    return wrap(windows.triu(value_of(input, "triu"), diagonal))


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad the last dimensions: (last before, last after, ...)."""
    if mode != "constant":
        raise ArgumentError(f"pad: mode {mode!r} is not there; 'constant' is")
    return constant_pad_nd(input, pad, 0 if value is None else value)


@keeping_format(0)
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Number = 0) -> Tensor:
    """Pad the last dimensions with a number: (last before, last after, ...)."""
    rank = len(input.shape)
    if len(pad) % 2 or len(pad) > 2 * rank:
        raise ArgumentError(f"pad: {len(pad)} widths for a tensor of {rank} dimensions; two for each, the last first")
    pairs = [(pad[2 * n], pad[2 * n + 1]) for n in range(len(pad) // 2)]
    widths = [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
    return wrap(movement.pad(value_of(input, "pad"), widths, value))


concat = concatenate = cat
row_stack = vstack

publish(globals())
