"""Operators that move elements: shapes, order, cutting and joining."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ... import functional as tg
from ...nn import functional as F
from ...tensor import Tensor
from ..problems import OnnxError
from ..rules import Function
from ..values import Ints, Narrow, Number, as_tensor


def reshape(x: Tensor, shape: Ints, *, allowzero: int = 0) -> Tensor:
    """Reshape; a 0 keeps the size of its axis."""
    sizes = [x.shape[n] if size == 0 and not allowzero else size for n, size in enumerate(shape)]
    return x.reshape(sizes)


def shape_of(x: Tensor, *, start: int = 0, end: int | None = None) -> np.ndarray:
    """Return the sizes, as a constant."""
    rank = x.dim()
    first = max(0, min(rank, start + rank if start < 0 else start))
    last = rank if end is None else max(0, min(rank, end + rank if end < 0 else end))
    return np.array([int(n) for n in x.shape[first:last]], np.int64)


def size_of(x: Tensor) -> np.ndarray:
    return np.array(prod(int(n) for n in x.shape), np.int64)


def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(prod(x.shape[:axis]), -1 if prod(x.shape) else prod(x.shape[axis:]))


def squeeze(x: Tensor, axes: Ints | None = None) -> Tensor:
    if axes is None:
        return x.squeeze()
    wanted = {axis % x.dim() for axis in axes}
    if any(x.shape[n] != 1 for n in wanted):
        raise OnnxError(f"only axes of size 1 can go: {sorted(wanted)} of a tensor of shape {list(x.shape)}")
    return x.reshape([size for n, size in enumerate(x.shape) if n not in wanted])


def unsqueeze(x: Tensor, axes: Ints) -> Tensor:
    rank = x.dim() + len(axes)
    places = {axis % rank for axis in axes}
    sizes = iter(x.shape)
    return x.reshape([1 if n in places else next(sizes) for n in range(rank)])


def transpose(x: Any, *, perm: list[int] | None = None) -> Any:
    """Permute the axes, by default into the reverse order."""
    held = as_tensor(x)
    made = held.permute(*(perm if perm is not None else range(held.dim())[::-1]))
    return Narrow(made, x.name) if isinstance(x, Narrow) else made


def concat(*inputs: Tensor, axis: int) -> Tensor:
    return tg.cat(list(inputs), axis)


def split(
    x: Tensor, sizes: Ints | None = None, *, axis: int = 0, num_outputs: int = 0, outputs: int = 1
) -> tuple[Tensor, ...]:
    """Cut an axis into parts of given or of equal sizes; the last may be smaller."""
    if sizes is None:
        count = num_outputs or outputs
        extent = int(x.shape[axis])
        each = -(-extent // count)
        sizes = [max(min(each, extent - n * each), 0) for n in range(count)]
    return tuple(tg.split(x, sizes, axis))


def slice_of(x: Tensor, starts: Ints, ends: Ints, axes: Ints | None = None, steps: Ints | None = None) -> Tensor:
    """Take a range of each axis, backward for negative steps."""
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = axis % x.dim()
        first, last, stride = slice(start, end, step).indices(int(x.shape[axis]))
        count = len(range(first, last, stride))
        if stride > 0:
            index = (slice(None),) * axis + (slice(first, first + count * stride if count else first, stride),)
            x = x[index]
        else:
            low = first + (count - 1) * stride if count else first
            x = x[(slice(None),) * axis + (slice(low, first + 1 if count else low, -stride),)].flip(axis)
    return x


def expand(x: Tensor, shape: Ints) -> Tensor:
    return x.expand(tg.broadcast_shapes(tuple(x.shape), tuple(shape)))


def tile(x: Tensor, repeats: Ints) -> Tensor:
    return x.repeat(*repeats) if repeats else x


def pad(
    x: Tensor, pads: Ints, value: Number | None = None, axes: Ints | None = None, *, mode: str = "constant"
) -> Tensor:
    """Put elements before and behind axes, or cut them off; modes as numpy's."""
    rank = x.dim()
    places = [axis % rank for axis in axes] if axes is not None else list(range(rank))
    count = len(places)
    for n, axis in enumerate(places):
        before, behind = pads[n], pads[count + n]
        if before or behind:
            x = _padded(x, axis, before, behind, mode, 0 if value is None else value)
    return x


def _padded(x: Tensor, axis: int, before: int, behind: int, mode: str, value: Number) -> Tensor:
    """Pad one axis."""
    if mode == "constant":
        sides = [0, 0] * (x.dim() - 1 - axis) + [before, behind]
        return F.pad(x, sides, value=value)
    extent = int(x.shape[axis])
    places = np.arange(-before, extent + behind)
    if mode == "wrap":
        places = places % extent
    elif mode == "edge":
        places = places.clip(0, extent - 1)
    else:
        period = max(2 * (extent - 1), 1)
        places = np.abs((places + extent - 1) % period - (extent - 1))
    return tg.index_select(x, axis, tg_tensor(places, x))


def tg_tensor(array: np.ndarray, like: Tensor) -> Tensor:
    """Return an array as a tensor on the device of another."""
    return as_tensor(array, like.device)


def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    b, (n, c, h, w) = blocksize, x.shape
    if mode == "CRD":
        return F.pixel_shuffle(x, b)
    y = x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // b**2, h * b, w * b)


def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    b, (n, c, h, w) = blocksize, x.shape
    y = x.reshape(n, c, h // b, b, w // b, b)
    y = y.permute(0, 3, 5, 1, 2, 4) if mode == "DCR" else y.permute(0, 1, 3, 5, 2, 4)
    return y.reshape(n, c * b * b, h // b, w // b)


def trilu(x: Tensor, k: Number | None = None, *, upper: int = 1) -> Tensor:
    diagonal = int(k or 0)
    return tg.triu(x, diagonal) if upper else tg.tril(x, diagonal)


def center_crop_pad(x: Tensor, shape: Ints, *, axes: list[int] | None = None) -> Tensor:
    """Cut or widen axes to sizes, around the middle."""
    places = [axis % x.dim() for axis in axes] if axes is not None else list(range(x.dim()))
    for axis, wanted in zip(places, shape, strict=True):
        have = int(x.shape[axis])
        if have > wanted:
            x = tg.narrow(x, axis, (have - wanted) // 2, wanted)
        elif have < wanted:
            before = (wanted - have) // 2
            x = _padded(x, axis, before, wanted - have - before, "constant", 0)
    return x


def reverse_sequence(x: Tensor, lengths: Ints, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """Reverse the beginning of each sequence of a batch."""
    extent = int(x.shape[time_axis])
    places = np.stack([np.r_[np.arange(n)[::-1], np.arange(n, extent)] for n in lengths])
    places = places if batch_axis < time_axis else places.T
    sizes = [int(n) if axis in (batch_axis, time_axis) else 1 for axis, n in enumerate(x.shape)]
    index = tg_tensor(places.reshape(sizes), x)
    return tg.gather(x, time_axis, index.expand(x.shape))


def align_axis(x: Tensor, y: Tensor, *, axis: int) -> Tensor:
    """Put axes of size 1 behind those of the second operand, so that its first axis meets the given one."""
    axis = axis % x.dim()
    return y.reshape([*y.shape, *[1] * (x.dim() - axis - y.dim())])


def identity(x: Any) -> Any:
    return x


RULES: dict[str, Function] = {
    "AlignAxis": align_axis,
    "CenterCropPad": center_crop_pad,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "Flatten": flatten,
    "Identity": identity,
    "Pad": pad,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "Shape": shape_of,
    "Size": size_of,
    "Slice": slice_of,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
