"""Define less common rearrangements: column stacks, splits, combinations, scattered slices; and window functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations as chosen
from itertools import combinations_with_replacement as chosen_again
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, DTypeError, ShapeError
from ..ir.dtype import DType, int64
from ..lazy.handle import Handle
from ..lazy.kept_formats import keeping_strides
from ..ops.broadcasting import broadcast_shapes as met
from ..ops.broadcasting import normal_axis, shown
from .creation import DeviceLike, arange, tensor
from .declared import publish
from .joining import cat, hstack, meshgrid, stack
from .pointwise import named
from .promotion import Shapes, Tensors, get_default_dtype, value_of

if TYPE_CHECKING:
    from ..tensor import Tensor


def broadcast_shapes(*shapes: Shapes) -> tuple[int, ...]:
    """Return the shape to which shapes broadcast.

    >>> broadcast_shapes((2, 1), (3,), 1)
    (2, 3)
    """
    if any(n < 0 for s in shapes for n in ((s,) if isinstance(s, int) else s)):
        raise ShapeError("broadcast_shapes: an extent is negative")
    return tuple(met(*[(s,) if isinstance(s, int) else tuple(s) for s in shapes], op="broadcast_shapes"))  # type: ignore[arg-type]


def atleast_1d(*tensors: Tensors) -> Any:
    """Return a tensor with at least one dimension."""
    return _each(tensors, lambda x: x if x.dim() else x.reshape(1))


def atleast_2d(*tensors: Tensors) -> Any:
    """Prepend dimensions of size 1 up to two dimensions."""
    return _each(tensors, lambda x: x.reshape(*[1] * (2 - x.dim()), *x.shape) if x.dim() < 2 else x)


def atleast_3d(*tensors: Tensors) -> Any:
    """View a vector as (1, n, 1) and a matrix as (m, n, 1)."""
    return _each(tensors, lambda x: x if x.dim() > 2 else (atleast_2d(x) if x.dim() else x.reshape(1, 1)).unsqueeze(-1))


def _each(tensors: tuple[Any, ...], change: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Handle):
        return change(tensors[0])
    given = tensors[0] if len(tensors) == 1 else tensors
    return tuple([change(x) for x in given])


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Stack vectors as columns, or join matrices along the second dimension."""
    return hstack([x.reshape(-1, 1) if x.dim() < 2 else x for x in tensors])


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Stack along the third dimension."""
    return cat([atleast_3d(x) for x in tensors], 2)


def hsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Split along the second dimension; a vector along its only one."""
    return _split(input, indices_or_sections, 1 if input.dim() > 1 else 0, 1, "hsplit")


def vsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Split along the first dimension."""
    return _split(input, indices_or_sections, 0, 2, "vsplit")


def dsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Split along the third dimension."""
    return _split(input, indices_or_sections, 2, 3, "dsplit")


def _split(x: Tensor, where: int | Sequence[int], dim: int, least: int, op: str) -> tuple[Tensor, ...]:
    if x.dim() < least:
        raise ShapeError(f"{op}: a tensor of shape {shown(x.shape)}; it needs at least {least} dimensions")
    if isinstance(where, int) and where < 1:
        raise ArgumentError(f"{op}: into {where} parts; give a number that is at least 1")
    if isinstance(where, int) and x.shape[dim] % where:
        raise ShapeError(f"{op}: {where} equal parts of {x.shape[dim]} elements; give the places to cut at instead")
    return x.tensor_split(where, dim)


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Split along a dimension into parts of the given sizes."""
    return input.split(list(split_sizes), dim)


def block_diag(*tensors: Tensor) -> Tensor:
    """Build a block-diagonal matrix."""
    blocks = [atleast_2d(x) for x in tensors]
    width, left, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        rows.append(_padded(x, left, width - left - x.shape[1]))
        left += x.shape[1]
    return cat(rows, 0)


def _padded(x: Tensor, before: int, after: int) -> Tensor:
    return cat([x.new_zeros(x.shape[0], before), x, x.new_zeros(x.shape[0], after)], 1)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Return the Cartesian product of vectors, as rows."""
    if wide := next((x for x in tensors if x.dim() != 1), None):
        raise ShapeError(f"cartesian_prod: takes vectors, not a tensor of shape {shown(wide.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([x.reshape(-1) for x in meshgrid(*tensors)], -1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all combinations of `r` elements of a vector, as rows."""
    if r < 0:
        raise ArgumentError(f"combinations: r={r} is negative")
    choose = chosen_again if with_replacement else chosen
    places = list(choose(range(input.shape[0]), r))
    index = tensor(places, dtype=int64, device=input.device).reshape(len(places), r)
    return input.index_select(0, index.reshape(-1)).reshape(index.shape)


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Return the powers of the elements of a vector, as columns."""
    powers = arange(x.shape[0] if N is None else N, device=x.device)
    x = x if x.dtype.is_float else x.long()
    return x.unsqueeze(-1) ** (powers if increasing else powers.flip(0)).to(x.dtype)


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """Build a matrix whose diagonal holds the elements."""
    return input.reshape(-1).diag(offset)


def unravel_index(indices: Tensor, shape: Sequence[int]) -> tuple[Tensor, ...]:
    """Convert flat indices to a tuple of coordinates in a shape."""
    if not value_of(indices, "unravel_index").dtype.is_integer:
        raise DTypeError(f"unravel_index takes integers, not {indices.dtype.name}; convert them, as in x.long()")
    steps = [math.prod(shape[n + 1 :]) for n in range(len(shape))]
    if not steps:
        return ()
    digits = indices.long().unsqueeze(-1) // tensor(steps, device=indices.device)
    return (digits % tensor(list(shape), device=indices.device)).unbind(-1)


# --- with a part replaced --------------------------------------------------------------------------


@keeping_strides
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Copy, with one index of a dimension replaced by `src`."""
    made = input.clone()
    made.select(dim, index).copy_(src)
    return made


@keeping_strides
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """Copy, with a slice of a dimension replaced by `src`."""
    made = input.clone()
    made[(slice(None),) * normal_axis(dim, input.dim(), "slice_scatter") + (slice(start, end, step),)] = src
    return made


@keeping_strides
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Copy, with a diagonal replaced by `src`."""
    made = input.clone()
    place = made.diagonal(offset, dim1, dim2)
    if tuple(src.shape) != tuple(place.shape):
        raise ShapeError(f"diagonal_scatter: the diagonal is {shown(place.shape)}, the source {shown(src.shape)}")
    place.copy_(src)
    return made


def fill_diagonal_(self: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Fill the diagonal of a matrix with a number, in place."""
    if self.dim() != 2 or wrap:
        raise ArgumentError(
            f"fill_diagonal_: a tensor of shape {shown(self.shape)}, wrap={wrap}; it takes a matrix, without wrap"
        )
    self.diagonal().fill_(fill_value)
    return self


# --- windows ---------------------------------------------------------------------------------------


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Compute a Hamming window: a raised cosine that ends above 0."""
    return _cosines((alpha, beta), window_length, periodic, dtype, device).requires_grad_(requires_grad)


def _cosines(weights: Sequence[float], length: int, periodic: bool, dtype: DType | None, device: DeviceLike) -> Tensor:
    place, width = _places(length, periodic, dtype, device)
    if length == 1:
        return place + 1
    return sum(
        ((-place * 0 + w) if n == 0 else (place * (2 * math.pi * n / width)).cos() * (w if n % 2 == 0 else -w))
        for n, w in enumerate(weights)
    )  # type: ignore[return-value]


def _places(length: int, periodic: bool, dtype: DType | None, device: DeviceLike) -> tuple[Tensor, int]:
    return arange(length, dtype=dtype or get_default_dtype(), device=device), max(length - (not periodic), 1)


def _triangle(length: int, periodic: bool, dtype: DType | None, device: DeviceLike) -> Tensor:
    place, width = _places(length, periodic, dtype, device)
    return place + 1 if length == 1 else 1 - (place * 2 / width - 1).abs()


def _window(name: str, values: Callable[..., Tensor], doc: str) -> Callable[..., Tensor]:
    def window(
        window_length: int,
        periodic: bool = True,
        *,
        dtype: DType | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
    ) -> Tensor:
        return values(window_length, periodic, dtype, device).requires_grad_(requires_grad)

    return named(window, name, doc)


hann_window = _window(
    "hann_window", partial(_cosines, (0.5, 0.5)), "Compute a Hann window: a raised cosine that ends at 0."
)
blackman_window = _window(
    "blackman_window",
    partial(_cosines, (0.42, 0.5, 0.08)),
    "Compute a Blackman window: a sum of two cosines with low side lobes.",
)
bartlett_window = _window("bartlett_window", _triangle, "Compute a Bartlett window: a triangle.")

publish(globals())
