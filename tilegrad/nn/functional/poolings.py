"""Define max, average, adaptive and p-norm pooling as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import TypeAlias

from ...errors import ArgumentError, ShapeError
from ...functions.arithmetic import where
from ...functions.promotion import value_of
from ...ir.dtype import int64
from ...ir.graph import Value
from ...lazy.handle import wrap
from ...ops.broadcasting import shown
from ...ops.pooling import average_pool, max_pool, pool_indices
from ...ops.sliding import Adaptive, Sliding
from ...tensor import Tensor
from .geometry import Each, batched, each, for_ranks, unbatched, window_count

Pooled: TypeAlias = "Tensor | tuple[Tensor, Tensor]"
Sizes: TypeAlias = "int | Sequence[int | None] | None"


def _max_pool(rank: int) -> Callable[..., Pooled]:
    def max_pool(
        input: Tensor,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        dilation: Each = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Pooled:
        """Compute the maximum of each window of (N, C, {axes}); of equal elements the first one counts.

        >>> from tilegrad import tensor
        >>> max_pool1d(tensor([[1.0, 3.0, 2.0, 2.0]]), 2, return_indices=True)
        (tensor([[3., 2.]]), tensor([[1, 2]]))
        """
        op = f"max_pool{rank}d"
        x, had_batch = batched(value_of(input, op), rank, op)
        axes = _sliding(op, x, rank, kernel_size, stride, padding, dilation, ceil_mode)
        return _greatest(x, axes, had_batch, return_indices)

    return max_pool


def _greatest(x: Value, axes: tuple[Sliding, ...] | tuple[Adaptive, ...], had_batch: bool, indices: bool) -> Pooled:
    """Return the maxima and, on request, their indices."""
    made = wrap(unbatched(max_pool(x, axes), had_batch))
    return (made, wrap(unbatched(pool_indices(x, axes), had_batch))) if indices else made


def _avg_pool(rank: int) -> Callable[..., Tensor]:
    def avg_pool(
        input: Tensor,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        """Average each window of (N, C, {axes})."""
        op = f"avg_pool{rank}d"
        if divisor_override is not None and (type(divisor_override) is not int or divisor_override == 0):
            raise ArgumentError(f"{op}: divisor_override={divisor_override!r}: give a whole number other than 0")
        if input.dtype is int64:  # the quotient of whole numbers, as in PyTorch
            given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
            return avg_pool(input.double(), *given).trunc().long()
        x, had_batch = batched(value_of(input, op), rank, op)
        axes = _sliding(op, x, rank, kernel_size, stride, padding, 1, ceil_mode)
        if rank == 3 and any(isinstance(a.extent, int) and a.taps > a.extent for a in axes):
            raise ShapeError(  # as in PyTorch, which allows it in one and two dimensions
                f"{op}: windows of {shown(tuple([a.taps for a in axes]))} are larger than the input of shape "
                f"{shown(x.shape)}; take a smaller kernel_size"
            )
        return wrap(unbatched(average_pool(x, axes, count_include_pad, divisor_override), had_batch))

    return avg_pool


def avg_pool1d(
    input: Tensor,
    kernel_size: Each,
    stride: Each | None = None,
    padding: Each = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Average each window of (N, C, L).

    >>> from tilegrad import tensor
    >>> avg_pool1d(tensor([[1.0, 3.0, 2.0, 2.0]]), 2)
    tensor([[2., 2.]])
    """
    return _avg_pool(1)(input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _sliding(
    op: str,
    x: Value,
    rank: int,
    kernel_size: Each,
    stride: Each | None,
    padding: Each,
    dilation: Each,
    ceil_mode: bool,
) -> tuple[Sliding, ...]:
    if 0 in x.shape[1:]:
        raise ShapeError(f"{op}: an input of the shape {shown(x.shape)}: only the batch can be without elements")
    taps = each(kernel_size, rank, "kernel_size", op)
    strides = taps if stride is None or stride == () else each(stride, rank, "stride", op)
    paddings, dilations = each(padding, rank, "padding", op, 0), each(dilation, rank, "dilation", op)
    axes = []
    for extent, k, s, p, d in zip(x.shape[2:], taps, strides, paddings, dilations, strict=True):
        if p > (d * (k - 1) + 1) // 2:
            raise ArgumentError(
                f"{op}: padding={padding!r} is more than half of a window of {d * (k - 1) + 1}: there would be windows "
                "of nothing but padding; use less padding"
            )
        count = window_count(extent, k, s, 2 * p, d, op, x.shape, ceil_mode)
        if ceil_mode and isinstance(count, int) and isinstance(extent, int) and (count - 1) * s >= extent + p:
            count -= 1  # the last window would start behind the input
        axes.append(Sliding(extent, count, k, s, p, d))
    return tuple(axes)


def _adaptive(op: str, rank: int, input: Tensor, output_size: Sizes) -> tuple[Value, bool, tuple[Adaptive, ...]]:
    """Return the input with a batch axis, whether it had one, and the number of windows along each axis."""
    x, had_batch = batched(value_of(input, op), rank, op)
    wanted = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,) * rank
    counts = [extent if n is None else n for n, extent in zip(wanted, x.shape[2:], strict=False)]
    if len(wanted) != rank or any(n is not None and (type(n) is not int or not 0 <= n < 2**31) for n in wanted):
        raise ArgumentError(f"{op}: output_size={output_size!r}: give a whole number or None for each of {rank} axes")
    axes = []
    for extent, count in zip(x.shape[2:], counts, strict=True):
        if not isinstance(extent, int) or not isinstance(count, int):
            raise ShapeError(f"{op}: an input of the shape {shown(x.shape)} has an axis that varies; fix its size")
        if extent == 0 and count:
            raise ShapeError(f"{op}: an input of the shape {shown(x.shape)} has an axis without elements")
        axes.append(Adaptive(extent, count))
    return x, had_batch, tuple(axes)


def _adaptive_max_pool(rank: int) -> Callable[..., Pooled]:
    def adaptive_max_pool(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Pooled:
        """Compute the maximum of the windows that divide (N, C, {axes}) evenly into `output_size`."""
        x, had_batch, axes = _adaptive(f"adaptive_max_pool{rank}d", rank, input, output_size)
        return _greatest(x, axes, had_batch, return_indices)

    return adaptive_max_pool


def _adaptive_avg_pool(rank: int) -> Callable[..., Tensor]:
    def adaptive_avg_pool(input: Tensor, output_size: Sizes) -> Tensor:
        """Average the windows that divide (N, C, {axes}) evenly into `output_size`; None keeps the size of an axis.

        >>> from tilegrad import tensor
        >>> adaptive_avg_pool1d(tensor([[1.0, 3.0, 2.0, 2.0]]), 1)
        tensor([[2.]])
        """
        x, had_batch, axes = _adaptive(f"adaptive_avg_pool{rank}d", rank, input, output_size)
        return wrap(unbatched(average_pool(x, axes), had_batch))

    return adaptive_avg_pool


def _lp_pool(rank: int) -> Callable[..., Tensor]:
    def lp_pool(
        input: Tensor, norm_type: float, kernel_size: Each, stride: Each | None = None, ceil_mode: bool = False
    ) -> Tensor:
        """Compute the p-norm of each window of (N, C, {axes}).

        >>> from tilegrad import tensor
        >>> lp_pool1d(tensor([[3.0, 4.0]]), 2, 2)
        tensor([[5.]])
        """
        if abs(norm_type) == inf:
            sign = 1 if norm_type > 0 else -1
            greatest = _max_pool(rank)(input.abs() * sign, kernel_size, stride, ceil_mode=ceil_mode)
            assert isinstance(greatest, Tensor)
            return greatest * sign
        # the sum of a window that reaches over the end counts for a whole one, as in PyTorch
        average = _avg_pool(rank)(input**norm_type, kernel_size, stride, 0, ceil_mode)
        total = average * prod(each(kernel_size, rank, "kernel_size", f"lp_pool{rank}d"))
        # the root of 0 has the gradient 0, as in PyTorch, which leaves the branch of where() that is not taken finite
        return where(total == 0, 0.0, where(total == 0, 1.0, total) ** (1.0 / norm_type))

    return lp_pool


max_pool1d, max_pool2d, max_pool3d = for_ranks(_max_pool, channels_last=(2, 3))
avg_pool2d, avg_pool3d = for_ranks(_avg_pool, ranks=(2, 3), channels_last=(2,))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = for_ranks(_adaptive_max_pool, channels_last=(2,))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = for_ranks(_adaptive_avg_pool, channels_last=(2,))
lp_pool1d, lp_pool2d, lp_pool3d = for_ranks(_lp_pool, channels_last=(2,))
