"""Convolutions, and what belongs to them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ... import functional as tg
from ...ir.dtype import int32
from ...nn import functional as F
from ...tensor import Tensor
from ..rules import Function
from ..values import Ints


class Geometry(NamedTuple):
    """Strides, dilations, and what is put before and behind each axis."""

    strides: list[int]
    dilations: list[int]
    before: list[int]
    behind: list[int]


def geometry(
    sizes: Sequence[int],
    taps: Sequence[int],
    strides: list[int] | None,
    dilations: list[int] | None,
    pads: list[int] | None,
    auto_pad: str,
) -> Geometry:
    """Resolve the attributes that say where windows are."""
    rank = len(taps)
    strides, dilations, pads = strides or [1] * rank, dilations or [1] * rank, pads or [0] * 2 * rank
    before, behind = pads[:rank], pads[rank:]
    if auto_pad.startswith("SAME"):
        before, behind = [], []
        for size, k, s, d in zip(sizes, taps, strides, dilations, strict=True):
            total = max((-(-int(size) // s) - 1) * s + (k - 1) * d + 1 - int(size), 0)
            small, large = total // 2, total - total // 2
            before.append(small if auto_pad == "SAME_UPPER" else large)
            behind.append(large if auto_pad == "SAME_UPPER" else small)
    elif auto_pad == "VALID":
        before, behind = [0] * rank, [0] * rank
    return Geometry(strides, dilations, before, behind)


def widened(x: Tensor, before: Sequence[int], behind: Sequence[int], value: float = 0.0) -> Tensor:
    """Put elements around the last axes; cut them off where a number is negative."""
    pairs = [n for pair in zip(before[::-1], behind[::-1], strict=True) for n in pair]
    return F.pad(x, pairs, value=value) if any(pairs) else x


def of_rank(name: str, taps: Sequence[int]) -> Any:
    """Return the function for a number of axes."""
    return getattr(F, name.replace("#", str(len(taps))))


def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Correlate with a kernel."""
    taps = w.shape[2:]
    g = geometry(x.shape[2:], taps, strides, dilations, pads, auto_pad)
    padding: Any = g.before
    if g.before != g.behind:
        x, padding = widened(x, g.before, g.behind), 0
    return of_rank("conv#d", taps)(x, w, b, g.strides, padding, g.dilations, group)  # type: ignore[no-any-return]


def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Compute the whole result, from which the padding is cut."""
    taps = w.shape[2:]
    g = geometry(x.shape[2:], taps, strides, dilations, pads, "NOTSET")
    more = output_padding or [0] * len(taps)
    before, behind = g.before, g.behind
    if before == behind and output_shape is None and auto_pad == "NOTSET":
        made = of_rank("conv_transpose#d", taps)(x, w, b, g.strides, before, more, group, g.dilations)
        return made  # type: ignore[no-any-return]
    y = of_rank("conv_transpose#d", taps)(x, w, b, g.strides, 0, 0, group, g.dilations)
    y = widened(y, [0] * len(taps), more) if b is None else _with_bias_behind(y, more, b)
    if output_shape is not None or auto_pad.startswith("SAME"):
        wanted = output_shape or [n * s for n, s in zip(x.shape[2:], g.strides, strict=True)]
        totals = [have - want for have, want in zip(y.shape[2:], wanted, strict=True)]
        before = [t // 2 if auto_pad != "SAME_LOWER" and auto_pad != "NOTSET" else t - t // 2 for t in totals]
        behind = [t - n for t, n in zip(totals, before, strict=True)]
    return widened(y, [-n for n in before], [-n for n in behind])


def _with_bias_behind(y: Tensor, more: list[int], b: Tensor) -> Tensor:
    """Widen a result: there is nothing but the bias behind it."""
    bias = b.reshape([1, -1] + [1] * len(more))
    return widened(y - bias, [0] * len(more), more) + bias if any(more) else y


def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Convolve integers of eight bits, from which their zero points are subtracted, into int32.

    The sums are computed in float64, which holds all of them.
    """
    left = x.double() if x_zero is None else x.double() - x_zero.double()
    right = w.double()
    if w_zero is not None:
        right = right - w_zero.double().reshape([-1] + [1] * (w.dim() - 1) if w_zero.dim() else [])
    made = conv(left, right, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides)
    return made.to(int32)


def col2im(
    x: Tensor,
    image_shape: Ints,
    block_shape: Ints,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Add up the columns of windows at their places in an image."""
    taps = block_shape
    g = geometry(image_shape, taps, strides, dilations, pads, "NOTSET")
    sizes = [n + b + e for n, b, e in zip(image_shape, g.before, g.behind, strict=True)]
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(sizes, g.dilations, taps, g.strides, strict=True)]
    batch, channels = int(x.shape[0]), int(x.shape[1]) // prod(taps)
    places = tg.zeros([1] * 2 * len(taps), device=x.device).to(int32)
    for axis, size in enumerate(sizes):
        k = tg.arange(taps[axis], device=x.device).to(int32) * g.dilations[axis]
        n = tg.arange(counts[axis], device=x.device).to(int32) * g.strides[axis]
        shape = [1] * 2 * len(taps)
        shape[axis], shape[len(taps) + axis] = taps[axis], counts[axis]
        places = places * size + (k.reshape(-1, 1) + n).reshape(shape)
    flat = places.reshape(1, 1, -1).long().expand(batch, channels, -1)
    made = tg.zeros(batch, channels, prod(sizes), dtype=x.dtype, device=x.device)
    made = made.scatter_add(2, flat, x.reshape(batch, channels, -1)).reshape(batch, channels, *sizes)
    return widened(made, [-n for n in g.before], [-n for n in g.behind])


def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Convolve with taps that are moved by offsets; elements between pixels are interpolated."""
    taps = [int(n) for n in w.shape[2:]]
    g = geometry(x.shape[2:], taps, strides, dilations, pads, "NOTSET")
    n, c, h, wide = x.shape
    high, broad = offset.shape[2:]
    moved = offset.reshape(n, offset_group, prod(taps), 2, high, broad)
    made = []
    for t in range(prod(taps)):
        ky, kx = divmod(t, taps[1])
        y0 = tg.arange(high, device=x.device).float() * g.strides[0] - g.before[0] + ky * g.dilations[0]
        x0 = tg.arange(broad, device=x.device).float() * g.strides[1] - g.before[1] + kx * g.dilations[1]
        ys, xs = moved[:, :, t, 0] + y0.reshape(-1, 1), moved[:, :, t, 1] + x0
        grid = tg.stack([(2 * xs + 1) / wide - 1, (2 * ys + 1) / h - 1], -1)
        planes = x.reshape(n * offset_group, c // offset_group, h, wide)
        taken = F.grid_sample(planes, grid.reshape(n * offset_group, high, broad, 2), align_corners=False)
        if mask is not None:
            weight = mask.reshape(n, offset_group, prod(taps), high, broad)[:, :, t]
            taken = taken * weight.reshape(n * offset_group, 1, high, broad)
        made.append(taken.reshape(n, c, high, broad))
    columns = tg.stack(made, 2).reshape(n, group, c // group * prod(taps), high * broad)
    kernel = w.reshape(group, w.shape[0] // group, -1)
    y = tg.matmul(kernel, columns).reshape(n, w.shape[0], high, broad)
    return y if b is None else y + b.reshape(1, -1, 1, 1)


RULES: dict[str, Function] = {
    "Col2Im": col2im,
    "Conv": conv,
    "ConvInteger": conv_integer,
    "ConvTranspose": conv_transpose,
    "DeformConv": deform_conv,
}
