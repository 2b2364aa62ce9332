"""Define convolutions, and the windows of images as columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...errors import ArgumentError, ShapeError
from ...functions.autocasting import lowered, product_precision
from ...functions.promotion import result_type, value_of
from ...ir.dtype import bool_, int32
from ...ir.graph import Value
from ...ir.size import Dim
from ...lazy.handle import wrap
from ...ops.arithmetic import add
from ...ops.broadcasting import lower_bound, reshape, shown
from ...ops.cast import cast
from ...ops.convolution import Convolve, convolve_back
from ...ops.pooling import Col2im, Im2col
from ...ops.sliding import Sliding
from ...tensor import Tensor
from .geometry import Each, batched, each, for_ranks, unbatched, window_count


def _conv(rank: int) -> Callable[..., Tensor]:
    def conv(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Each = 1,
        padding: Each | str = 0,
        dilation: Each = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolve `input` (N, C, {axes}) with `weight` (out, C / groups, {taps}).

        >>> from tilegrad import tensor
        >>> conv1d(tensor([[[1.0, 2.0, 3.0, 4.0]]]), tensor([[[1.0, -1.0]]]))
        tensor([[[-1., -1., -1.]]])
        """
        op = f"conv{rank}d"
        x, w, b = _values(op, rank, input, weight, bias)
        x, had_batch = batched(x, rank, op)
        outputs, channels = w.shape[:2]
        _check_groups(op, groups, outputs, "output channels", w)
        if x.shape[1] != channels * groups:
            raise ShapeError(
                f"{op}: an input of the shape {shown(input.shape)} has {x.shape[1]} channels, but a weight of the "
                f"shape {shown(w.shape)} takes {channels * groups}"
                + (f" ({channels} in each of {groups} groups)" * (groups != 1))
            )
        taps = _taps(op, w)
        strides, dilations = each(stride, rank, "stride", op), each(dilation, rank, "dilation", op)
        before, both = _paddings(op, padding, taps, strides, dilations)
        axes = []
        for extent, k, s, p, total, d in zip(x.shape[2:], taps, strides, before, both, dilations, strict=True):
            axes.append(Sliding(extent, window_count(extent, k, s, total, d, op, input.shape), k, s, p, d))
        grouped = reshape(x, (x.shape[0], groups, channels, *x.shape[2:]))
        filters = reshape(w, (groups, outputs // groups, channels, *taps))
        made = Convolve(grouped, filters, tuple(axes), product_precision(x.dtype))
        return _finished(op, made, b, had_batch)

    return conv


def _conv_transpose(rank: int) -> Callable[..., Tensor]:
    def conv_transpose(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Each = 1,
        padding: Each = 0,
        output_padding: Each = 0,
        groups: int = 1,
        dilation: Each = 1,
    ) -> Tensor:
        """Convolve (N, C, {axes}) transposed, as the gradient of `conv{rank}d`; `weight` is (C, out / groups, {taps}).

        >>> from tilegrad import tensor
        >>> conv_transpose1d(tensor([[[1.0, 2.0]]]), tensor([[[1.0, 10.0]]]), stride=2)
        tensor([[[ 1., 10.,  2., 20.]]])
        """
        op = f"conv_transpose{rank}d"
        y, w, b = _values(op, rank, input, weight, bias)
        y, had_batch = batched(y, rank, op)
        outputs, channels = w.shape[:2]
        _check_groups(op, groups, outputs, "input channels", w)
        if y.shape[1] != outputs:
            raise ShapeError(
                f"{op}: an input of the shape {shown(input.shape)} has {y.shape[1]} channels, but a weight of the "
                f"shape {shown(w.shape)} takes {outputs}"
            )
        taps = _taps(op, w)
        strides, dilations = each(stride, rank, "stride", op), each(dilation, rank, "dilation", op)
        paddings, more = each(padding, rank, "padding", op, 0), each(output_padding, rank, "output_padding", op, 0)
        axes = []
        for count, k, s, p, m, d in zip(y.shape[2:], taps, strides, paddings, more, dilations, strict=True):
            if m >= max(s, d):
                raise ArgumentError(
                    f"{op}: output_padding={m} must be smaller than the stride ({s}) or the dilation ({d})"
                )
            extent = (count - 1) * s - 2 * p + d * (k - 1) + m + 1
            if lower_bound(extent) < 1:
                raise ShapeError(
                    f"{op}: padding={p} takes more than there is: of an input of the shape {shown(input.shape)} an "
                    f"axis of {extent} elements would be left; use less padding"
                )
            axes.append(Sliding(extent, count, k, s, p, d))
        grouped = reshape(y, (y.shape[0], groups, outputs // groups, *y.shape[2:]))
        filters = reshape(w, (groups, outputs // groups, channels, *taps))
        made = convolve_back(grouped, filters, tuple(axes), product_precision(y.dtype))
        return _finished(op, made, b, had_batch)

    return conv_transpose


conv1d, conv2d, conv3d = for_ranks(_conv, channels_last=(2, 3), operands=(0, 1))
conv_transpose1d, conv_transpose2d, conv_transpose3d = for_ranks(_conv_transpose, channels_last=(2, 3), operands=(0, 1))


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor | None, pad: int = 0) -> Tensor:
    """Apply `conv1d` to an input (length, batch, channels), with weights (taps, channels, out)."""
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad).permute(2, 0, 1)


def _values(
    op: str, rank: int, input: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Value, Value, Value | None]:
    """Convert the operands to one dtype, and check the number of axes of the weight."""
    given = lowered([value_of(x, op) for x in (input, weight, *([] if bias is None else [bias]))])
    dtype = result_type(*[v.dtype for v in given])
    x, w, *rest = [cast(v, dtype) for v in given]
    if w.type.rank != rank + 2:
        raise ShapeError(f"{op}: a weight of the shape {shown(w.shape)} has {w.type.rank} axes; it needs {rank + 2}")
    return x, w, rest[0] if rest else None


def _check_groups(op: str, groups: int, channels: Dim, of: str, w: Value) -> None:
    if type(groups) is not int or groups < 1:
        raise ArgumentError(f"{op}: groups={groups!r}: give a whole number of at least 1")
    if not isinstance(channels, int) or channels % groups:
        raise ShapeError(
            f"{op}: groups={groups} does not divide the {channels} {of} of a weight of the shape {shown(w.shape)}"
        )


def _taps(op: str, w: Value) -> tuple[int, ...]:
    taps = tuple([k for k in w.shape[2:] if isinstance(k, int) and k > 0])
    if len(taps) != w.type.rank - 2:
        raise ShapeError(f"{op}: a weight of the shape {shown(w.shape)}: its windows need elements, of fixed number")
    return taps


def _paddings(
    op: str, padding: Each | str, taps: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before each axis, and the sum of both sides."""
    if padding == "valid":
        padding = 0
    if padding == "same":
        if any(s != 1 for s in strides):
            raise ArgumentError(f"{op}: padding='same' needs a stride of 1, not {tuple(strides)}; give numbers")
        both = tuple([d * (k - 1) for k, d in zip(taps, dilations, strict=True)])
        return tuple([n // 2 for n in both]), both
    if isinstance(padding, str):
        raise ArgumentError(f"{op}: padding={padding!r}: give numbers, 'same' or 'valid'")
    before = each(padding, len(taps), "padding", op, 0)
    return before, tuple([2 * p for p in before])


def _finished(op: str, made: Value, bias: Value | None, had_batch: bool) -> Tensor:
    """Merge groups into channels and add the bias."""
    batch, groups, channels, *rest = made.shape
    result = reshape(made, (batch, groups * channels, *rest))
    if bias is not None:
        if bias.shape != (result.shape[1],):
            raise ShapeError(f"{op}: a bias of the shape {shown(bias.shape)} for {result.shape[1]} output channels")
        result = add(result, reshape(bias, (result.shape[1], *(1,) * len(rest))))
    return wrap(unbatched(result, had_batch))


def unfold(input: Tensor, kernel_size: Each, dilation: Each = 1, padding: Each = 0, stride: Each = 1) -> Tensor:
    """Extract the windows of images (N, C, H, W) as columns (N, C * taps, windows).

    >>> from tilegrad import arange
    >>> unfold(arange(6.0).reshape(1, 1, 2, 3), (1, 2)).tolist()
    [[[0.0, 1.0, 3.0, 4.0], [1.0, 2.0, 4.0, 5.0]]]
    """
    x, had_batch = batched(value_of(input, "unfold"), 2, "unfold")
    axes = _image_axes("unfold", x.shape[2:], kernel_size, dilation, padding, stride, x.shape)
    patches = Im2col(x, axes)
    batch, channels = x.shape[:2]
    windows = axes[0].count * axes[1].count
    return wrap(unbatched(reshape(patches, (batch, channels * axes[0].taps * axes[1].taps, windows)), had_batch))


def fold(
    input: Tensor, output_size: Each, kernel_size: Each, dilation: Each = 1, padding: Each = 0, stride: Each = 1
) -> Tensor:
    """Sum windows, given as columns (N, C * taps, windows), into images (N, C, H, W).

    >>> from tilegrad import tensor
    >>> fold(tensor([[[1.0, 2.0], [3.0, 4.0]]]), (1, 3), (1, 2)).tolist()
    [[[[1.0, 5.0, 4.0]]]]
    """
    y, had_batch = value_of(input, "fold"), input.dim() == 3
    if y.type.rank not in (2, 3):
        raise ShapeError(f"fold: an input of the shape {shown(y.shape)}: it takes (N, C * taps, windows)")
    y = y if had_batch else reshape(y, (1, *y.shape))
    extents = each(output_size, 2, "output_size", "fold")
    axes = _image_axes("fold", extents, kernel_size, dilation, padding, stride, extents)
    batch, columns, windows = y.shape
    taps, counts = [a.taps for a in axes], [a.count for a in axes]
    if not isinstance(columns, int) or columns % math.prod(taps) or windows != counts[0] * counts[1]:
        raise ShapeError(
            f"fold: an input of the shape {shown(input.shape)} does not fit: {taps[0]} x {taps[1]} windows on images "
            f"of {extents[0]} x {extents[1]} are C * {math.prod(taps)} by {counts[0] * counts[1]}"
        )
    numbers = cast(y, int32) if y.dtype is bool_ else y  # of bools: whether one of those that meet is true
    made = Col2im(reshape(numbers, (batch, columns // math.prod(taps), *taps, *counts)), axes)
    return wrap(unbatched(cast(made, y.dtype), had_batch))


def _image_axes(
    op: str,
    extents: Sequence[Dim],
    kernel_size: Each,
    dilation: Each,
    padding: Each,
    stride: Each,
    shape: Sequence[Dim],
) -> tuple[Sliding, ...]:
    taps, strides = each(kernel_size, 2, "kernel_size", op), each(stride, 2, "stride", op)
    paddings, dilations = each(padding, 2, "padding", op, 0), each(dilation, 2, "dilation", op)
    axes = []
    for extent, k, s, p, d in zip(extents, taps, strides, paddings, dilations, strict=True):
        axes.append(Sliding(extent, window_count(extent, k, s, 2 * p, d, op, shape), k, s, p, d))
    return tuple(axes)
