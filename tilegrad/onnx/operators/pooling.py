"""Pooling."""

from __future__ import annotations

from math import inf, prod
from typing import Any

from ... import functional as tg
from ...nn import functional as F
from ...tensor import Tensor
from ..rules import Function
from ..values import Ints
from .convolution import Geometry, geometry, of_rank, widened


def _rest(x: Tensor, taps: list[int], g: Geometry, ceil_mode: int) -> list[int]:
    """Return what the last windows take behind the padding of each axis; less than 0 is not read."""
    made = []
    for n, (k, s, d) in enumerate(zip(taps, g.strides, g.dilations, strict=True)):
        begin, reach = int(x.shape[2 + n]) + g.before[n], d * (k - 1) + 1
        size = begin + g.behind[n] - reach
        count = (-(-size // s) if ceil_mode else size // s) + 1
        # a window that would begin behind the image is left out
        count -= bool(ceil_mode) and (count - 1) * s >= begin
        made.append((count - 1) * s + reach - begin - g.behind[n])
    return made


def _windowed(x: Tensor, taps: list[int], g: Geometry, rest: list[int], fill: float) -> Tensor:
    """Return all windows of a sum: the last axes count the taps, those before them the windows."""
    x = widened(widened(x, g.before, g.behind, fill), [0] * len(taps), rest)
    for n, (k, s, d) in enumerate(zip(taps, g.strides, g.dilations, strict=True)):
        x = x.unfold(2 + n, d * (k - 1) + 1, s)[..., ::d]
    return x


def average_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Average windows; padding counts only if that is wanted."""
    taps = kernel_shape
    g = geometry(x.shape[2:], taps, strides, dilations, pads, auto_pad)
    plain = g.before == g.behind and all(n == 1 for n in g.dilations)
    if plain and all(2 * n <= k for n, k in zip(g.before, taps, strict=True)) and not ceil_mode:
        return of_rank("avg_pool#d", taps)(x, taps, g.strides, g.before, False, bool(count_include_pad))  # type: ignore[no-any-return]
    last = tuple(range(-len(taps), 0))
    rest = _rest(x, taps, g, ceil_mode)
    counted = _windowed(tg.ones_like(x[:1, :1]), taps, g, rest, float(bool(count_include_pad)))
    return _windowed(x, taps, g, rest, 0.0).sum(last) / counted.sum(last)


def max_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    outputs: int = 1,
) -> Any:
    """Take the largest element of each window, and its place in the whole tensor if somebody wants it."""
    taps, integer = kernel_shape, not x.is_floating_point()
    g = geometry(x.shape[2:], taps, strides, dilations, pads, auto_pad)
    given = x.double() if integer else x
    fits = g.before == g.behind and all(2 * n <= k for n, k in zip(g.before, taps, strict=True))
    pool = of_rank("max_pool#d", taps)
    if outputs == 1 and fits:
        y = pool(given, taps, g.strides, g.before, g.dilations, bool(ceil_mode))
        return y.to(x.dtype) if integer else y
    wide = widened(given, g.before, g.behind, -inf)
    y, places = pool(wide, taps, g.strides, 0, g.dilations, bool(ceil_mode), True)
    extents = [int(n) for n in x.shape[2:]]
    at = [p - b for p, b in zip(tg.unravel_index(places, wide.shape[2:]), g.before, strict=True)]
    if storage_order:
        at, extents = at[::-1], extents[::-1]
    flat: Any = 0
    for p, extent in zip(at, extents, strict=True):
        flat = flat * extent + p
    planes = tg.arange(prod(x.shape[:2]), device=x.device).reshape(*x.shape[:2], *[1] * len(taps))
    return (y.to(x.dtype) if integer else y), flat + planes * prod(extents)


def lp_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Compute the norm of each window."""
    g = geometry(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    rest = _rest(x, kernel_shape, g, ceil_mode)
    windows = _windowed(tg.abs(x) ** p, kernel_shape, g, rest, 0.0)
    return windows.sum(tuple(range(-len(kernel_shape), 0))) ** (1 / p)


def max_unpool(
    x: Tensor,
    places: Tensor,
    output_shape: Ints | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Put elements back to the places that a pooling took them from; the rest is 0."""
    g = geometry(x.shape[2:], kernel_shape, strides, None, pads, "NOTSET")
    sizes = [
        (int(n) - 1) * s - b - e + k
        for n, s, b, e, k in zip(x.shape[2:], g.strides, g.before, g.behind, kernel_shape, strict=True)
    ]
    shape = [*x.shape[:2], *sizes]
    made = tg.zeros(prod(shape), dtype=x.dtype, device=x.device)
    made = made.scatter(0, places.reshape(-1), x.reshape(-1)).reshape(shape)
    if output_shape is None:
        return made
    # the places are those in the smaller result; the larger one is filled up by zeros
    rest = [want - have for want, have in zip(output_shape[2:], sizes, strict=True)]
    return widened(made, [0] * len(rest), rest)


def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.dim())), keepdim=True)


def global_max_pool(x: Tensor) -> Tensor:
    return x.amax(tuple(range(2, x.dim())), keepdim=True)


def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return (tg.abs(x) ** p).sum(tuple(range(2, x.dim())), keepdim=True) ** (1 / p)


def roi_of(rois: Tensor, scale: float, half: float) -> tuple[Tensor, ...]:
    """Return the corners of regions in pixels of the map."""
    return tuple(rois[:, n] * scale - half for n in range(4))


def max_roi_pool(x: Tensor, rois: Tensor, *, pooled_shape: list[int], spatial_scale: float = 1.0) -> Tensor:
    """Take the largest element in each cell of a grid over regions of the image."""
    made = []
    for row in rois.tolist():
        left, top, right, low = (round(v * spatial_scale) for v in row[1:])
        plane = x[int(row[0])]
        cells = []
        high, broad = max(low - top + 1, 1), max(right - left + 1, 1)
        for i in range(pooled_shape[0]):
            for j in range(pooled_shape[1]):
                ys = (top + i * high // pooled_shape[0], top - (-(i + 1) * high // pooled_shape[0]))
                xs = (left + j * broad // pooled_shape[1], left - (-(j + 1) * broad // pooled_shape[1]))
                cell = plane[:, max(ys[0], 0) : ys[1], max(xs[0], 0) : xs[1]]
                cells.append(cell.amax((1, 2)) if prod(cell.shape) else tg.zeros_like(plane[:, 0, 0]))
        made.append(tg.stack(cells, 1).reshape(-1, *pooled_shape))
    return tg.stack(made)


def lrn(x: Tensor, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """Divide by the local energy of neighbouring channels."""
    before = (size - 1) // 2
    flat = (x * x).reshape(x.shape[0], 1, x.shape[1], -1)
    summed = F.avg_pool2d(F.pad(flat, (0, 0, before, size - 1 - before)), (size, 1), 1)
    return x / (bias + alpha * summed.reshape(x.shape)) ** beta


RULES: dict[str, Function] = {
    "AveragePool": average_pool,
    "GlobalAveragePool": global_average_pool,
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": global_max_pool,
    "LRN": lrn,
    "LpPool": lp_pool,
    "MaxPool": max_pool,
    "MaxRoiPool": max_roi_pool,
    "MaxUnpool": max_unpool,
}
