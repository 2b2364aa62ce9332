"""Define max unpooling: the maxima at their indices, zeros elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ...errors import ShapeError
from ...ops.broadcasting import shown
from ...tensor import Tensor
from .geometry import Each, each, for_ranks


def unpooled(
    rank: int, x: Tensor, indices: Tensor, kernel_size: Each, stride: Each | None, padding: Each, output_size: Any
) -> Tensor:
    """Place elements at their indices along the last `rank` axes."""
    op = f"max_unpool{rank}d"
    if x.shape != indices.shape or x.dim() not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{op}: an input of the shape {shown(x.shape)} with indices of the shape {shown(indices.shape)}: both "
            f"have the same {rank + 1} or {rank + 2} axes"
        )
    taps, paddings = each(kernel_size, rank, "kernel_size", op), each(padding, rank, "padding", op, 0)
    strides = taps if stride is None else each(stride, rank, "stride", op)
    sizes = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(x.shape[-rank:], strides, paddings, taps, strict=True)]
    if output_size is not None:
        asked = list(output_size)[-rank:]
        if any(abs(a - n) >= s for a, n, s in zip(asked, sizes, strides, strict=True)):
            raise ShapeError(
                f"{op}: output_size {asked}: with this geometry it is about {sizes}, by less than a stride"
            )
        sizes = asked
    leading = x.shape[:-rank]
    flat = x.new_zeros(*leading, prod(sizes))
    made = flat.scatter(-1, indices.reshape(*leading, -1), x.reshape(*leading, -1))
    return made.reshape(*leading, *sizes)


def _max_unpool(rank: int) -> Callable[..., Tensor]:
    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        """Place the maxima of `max_pool{rank}d` at the indices that it returned.

        >>> import tilegrad as tg
        >>> y, places = tg.nn.functional.max_pool1d(tg.tensor([[1.0, 3.0, 2.0, 0.0]]), 2, return_indices=True)
        >>> max_unpool1d(y, places, 2)
        tensor([[0., 3., 2., 0.]])
        """
        return unpooled(rank, input, indices, kernel_size, stride, padding, output_size)

    return max_unpool


max_unpool1d, max_unpool2d, max_unpool3d = for_ranks(_max_unpool, channels_last=(2,))
