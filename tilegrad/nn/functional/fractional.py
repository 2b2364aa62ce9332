"""Define fractional max pooling: windows at random distances of a given mean (Graham, 2014)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ...errors import ArgumentError, ShapeError
from ...functions.creation import arange
from ...functions.joining import cat
from ...ops.broadcasting import shown
from ...random import rand
from ...tensor import Tensor
from .geometry import Each, each, for_ranks
from .poolings import Pooled

Ratio = float | Sequence[float] | None


def _sizes(op: str, extents: Sequence[int], output_size: Each | None, output_ratio: Ratio) -> Sequence[int]:
    """Return the number of windows along each axis."""
    if (output_size is None) == (output_ratio is None):
        raise ArgumentError(f"{op}: give output_size or output_ratio, one of them")
    rank = len(extents)
    if output_ratio is None:
        return each(output_size, rank, "output_size", op)  # type: ignore[arg-type]
    ratios = (output_ratio,) * rank if isinstance(output_ratio, (int, float)) else tuple(output_ratio)
    if len(ratios) != rank or not all(0 < r < 1 for r in ratios):
        raise ArgumentError(f"{op}: output_ratio={output_ratio!r}: one number between 0 and 1, or {rank}")
    return [int(n * r) for n, r in zip(extents, ratios, strict=True)]


def _starts(sample: Tensor, extent: int, windows: int, taps: int) -> Tensor:
    """Return the starts of the windows: equal steps, shifted by the sample and rounded down."""
    last = sample.new_zeros(*sample.shape, 1, dtype=sample.dtype) + (extent - taps)
    if windows == 1:
        return last.long()
    step = (extent - taps) / (windows - 1)
    place = arange(windows - 1, dtype=sample.dtype, device=sample.device)
    first = ((place + sample.unsqueeze(-1)) * step).long() - (sample * step).long().unsqueeze(-1)
    return cat([first, last.long()], -1)


def _fractional_max_pool(rank: int) -> Callable[..., Pooled]:
    def fractional_max_pool(
        input: Tensor,
        kernel_size: Each,
        output_size: Each | None = None,
        output_ratio: Ratio = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Pooled:
        """Compute the maximum of windows of (N, C, {axes}) at random distances.

        >>> import tilegrad as tg
        >>> fractional_max_pool2d(tg.rand(1, 3, 20, 30), 2, output_ratio=0.7).shape
        (1, 3, 14, 21)
        """
        op = f"fractional_max_pool{rank}d"
        if input.dim() not in (rank + 1, rank + 2):
            raise ShapeError(f"{op}: needs {rank + 2} axes, or {rank + 1} without a batch, not {shown(input.shape)}")
        x = input if input.dim() == rank + 2 else input.unsqueeze(0)
        extents, taps = x.shape[2:], each(kernel_size, rank, "kernel_size", op)
        sizes = _sizes(op, extents, output_size, output_ratio)
        for extent, windows, width in zip(extents, sizes, taps, strict=True):
            if windows < 1 or windows + width - 1 > extent:
                raise ShapeError(
                    f"{op}: {windows} windows of {width} elements do not fit on an axis of {extent}: at most "
                    f"{extent - width + 1} do"
                )
        drawn = rand(*x.shape[:2], rank, dtype=x.dtype, device=x.device) if _random_samples is None else _random_samples
        place = arange(1, device=x.device).reshape([1] * (2 + 2 * rank))
        for n, (extent, windows, width) in enumerate(zip(extents, sizes, taps, strict=True)):
            # in two dimensions the first sample is that of the last axis, in three that of the first, as in PyTorch
            start = _starts(drawn[..., rank - 1 - n if rank == 2 else n], extent, windows, width)
            along = start.unsqueeze(-1) + arange(width, device=x.device)
            form = [windows if k == n else width if k == rank + n else 1 for k in range(2 * rank)]
            place = place * extent + along.reshape(*x.shape[:2], *form)
        every = place.reshape(*x.shape[:2], prod(sizes), prod(taps))
        found = x.flatten(2).gather(2, every.flatten(2)).reshape(every.shape)
        values, best = found.max(-1)
        shape = (*input.shape[:-rank], *sizes)
        if not return_indices:
            return values.reshape(shape)
        return values.reshape(shape), every.gather(-1, best.unsqueeze(-1)).reshape(shape)

    return fractional_max_pool


fractional_max_pool2d, fractional_max_pool3d = for_ranks(_fractional_max_pool, ranks=(2, 3))
