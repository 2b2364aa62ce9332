"""Define the resampling of images, and exchanges of channels and pixels.

Every mode of `interpolate` reads a few places ("taps") along each axis and weighs them; where the numbers of places are
few, the sum over them is written out, so that all axes become one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, isfinite
from typing import Any, NamedTuple

from ...errors import ArgumentError, ShapeError
from ...functions.arithmetic import where
from ...functions.creation import arange
from ...ir.dtype import DType, float32, float64, uint8
from ...ir.size import product
from ...lazy.kept_formats import keeping_format
from ...lazy.layout import row_by_row
from ...runtime.device import Device
from ...tensor import Tensor

AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
MODES = ("nearest", "nearest-exact", "area", *AXES)
MAX_UNROLLED_TAPS = 4


class Taps(NamedTuple):
    """The input positions and weights of each output position along an axis: both (positions, taps)."""

    places: Tensor
    weights: Tensor | None


class Axis(NamedTuple):
    """An axis to resize: its lengths, and the input step per output position."""

    before: int
    after: int
    step: float
    place: Device
    """Device of the positions."""


@keeping_format(0)
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resample the axes after (N, C) to `size`, or by `scale_factor`.

    >>> from tilegrad import tensor
    >>> interpolate(tensor([[[1.0, 3.0]]]), size=4, mode="linear")
    tensor([[[1.0000, 1.5000, 2.5000, 3.0000]]])
    """
    _check_mode(input, mode, align_corners, antialias)
    exact = input.dtype is float64
    x = input.float() if input.dtype.is_float and not exact and mode != "nearest" else input
    axes = _axes(input, size, scale_factor, bool(align_corners), bool(recompute_scale_factor), mode)
    for n, axis in reversed([*enumerate(axes)]):
        if axis.before != axis.after or axis.step != 1 or antialias:
            x = _resized(x, n + 2, axis, mode, bool(align_corners), antialias, float64 if exact else float32)
            if input.dtype is uint8 and x.dtype.is_float:  # what is between two numbers, or beyond 255, as in PyTorch
                x = (x + 0.5).floor().clamp(0, 255)
    return input.clone() if x is input else x.to(input.dtype)


def _check_mode(input: Tensor, mode: str, align_corners: bool | None, antialias: bool) -> None:
    count = input.dim() - 2
    if mode not in MODES:
        raise ArgumentError(f"interpolate: mode {mode!r} is not there; there are {', '.join(MODES)}")
    if not 1 <= count <= 3 or AXES.get(mode, count) != count:
        raise ShapeError(
            f"interpolate: mode {mode!r} takes (N, C) and {AXES.get(mode, '1 to 3')} more axes, but the input has the "
            f"shape {tuple(input.shape)}"
        )
    if align_corners is not None and mode not in AXES:
        raise ArgumentError(f"interpolate: align_corners goes with {', '.join(AXES)}, not with {mode!r}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError(f"interpolate: antialias goes with 'bilinear' and 'bicubic', not with {mode!r}")


def _axes(
    input: Tensor,
    size: int | Sequence[int] | None,
    scale_factor: float | Sequence[float] | None,
    align: bool,
    recompute: bool,
    mode: str,
) -> list[Axis]:
    lengths = tuple(input.shape[2:])
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate: give size or scale_factor, one of them")
    given = size if scale_factor is None else scale_factor
    each = tuple(given) if isinstance(given, Sequence) else (given,) * len(lengths)
    if len(each) != len(lengths):
        raise ArgumentError(
            f"interpolate: {given} has {len(each)} numbers, but the input of the shape {tuple(input.shape)} has "
            f"{len(lengths)} axes behind (N, C)"
        )
    axes = []
    exact = scale_factor is not None and not recompute and mode != "area"
    for length, number in zip(lengths, each, strict=True):
        after = _length_after(length, number, scale_factor is not None)
        step = _step(length, after, align and mode in AXES, number if exact else None)
        axes.append(Axis(length, after, step, input.device))
    return axes


def _length_after(length: int, number: Any, is_factor: bool) -> int:
    if number is not None and not isfinite(number):
        raise ArgumentError(f"interpolate: {number} is no factor: it must be finite")
    after = floor(length * number) if is_factor else int(number)
    if after < 1 or length < 1:
        raise ShapeError(f"interpolate: {length} places cannot become {after}: there must be one at least")
    return after


def _step(before: int, after: int, align: bool, factor: float | None) -> float:
    if align:
        return (before - 1) / (after - 1) if after > 1 else 0.0
    return before / after if factor is None else 1 / factor


def _resized(x: Tensor, n: int, axis: Axis, mode: str, align: bool, antialias: bool, dtype: DType) -> Tensor:
    if mode == "nearest" and axis.after % axis.before == 0 and axis.step * axis.after == axis.before:
        return x.repeat_interleave(axis.after // axis.before, n)
    if mode == "area":
        taps = _area(axis)
    elif antialias:
        taps = _smoothed(axis, mode == "bicubic", dtype)
    else:
        taps = _taps(axis, mode, align, dtype)
    behind = (1,) * (x.dim() - n - 1)
    if taps.places.shape[1] <= MAX_UNROLLED_TAPS:
        parts = [x.index_select(n, places) for places in taps.places.unbind(1)]
        if taps.weights is None:
            return parts[0]
        weighed = [part * w.reshape(-1, *behind) for part, w in zip(parts, taps.weights.unbind(1), strict=True)]
        total = weighed[0]
        for part in weighed[1:]:
            total = total + part
        return total
    assert taps.weights is not None
    shape = tuple(taps.places.shape)
    read = x.index_select(n, taps.places.reshape(-1)).reshape(*x.shape[:n], *shape, *x.shape[n + 1 :])
    return (read * taps.weights.reshape(*shape, *behind)).sum(n + 1)


def _taps(axis: Axis, mode: str, align: bool, dtype: DType) -> Taps:
    """Return the taps of modes that read a fixed number of positions."""
    last = axis.before - 1
    if mode.startswith("nearest"):
        # float32 for all types, as PyTorch computes it: at a border between two places roundings decide
        here = arange(axis.after, dtype=float32, device=axis.place) + (0.5 if mode == "nearest-exact" else 0.0)
        return Taps((here * axis.step).floor().long().clamp(max=last).unsqueeze(1), None)
    here = arange(axis.after, dtype=dtype, device=axis.place)
    place = here * axis.step if align else (here + 0.5) * axis.step - 0.5
    if mode != "bicubic":
        place = place.clamp(min=0)
        below = place.floor().clamp(max=last)
        share = (place - below).unsqueeze(1)
        offsets, weights = arange(2, device=axis.place), where(arange(2, device=axis.place) == 0, 1 - share, share)
    else:
        below = place.floor()
        offsets = arange(4, device=axis.place) - 1
        weights = _cubic((place - below).unsqueeze(1) - offsets.to(dtype), -0.75)
    places = (below.long().unsqueeze(1) + offsets).clamp(0, last)
    return Taps(places, weights)


def _cubic(distance: Tensor, a: float) -> Tensor:
    """Compute the cubic convolution kernel of R. Keys (1981)."""
    x = distance.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return where(x <= 1, near, where(x < 2, far, 0.0))


def _area(axis: Axis) -> Taps:
    """Return the taps that average all input positions that an output position overlaps."""
    here = arange(axis.after, device=axis.place)
    start = here * axis.before // axis.after
    end = ((here + 1) * axis.before + axis.after - 1) // axis.after
    widest = max(-(-(i + 1) * axis.before // axis.after) - i * axis.before // axis.after for i in range(axis.after))
    places = start.unsqueeze(1) + arange(widest, device=axis.place)
    inside = places < end.unsqueeze(1)
    share = (1.0 / (end - start).float()).unsqueeze(1)
    return Taps(places.clamp(max=axis.before - 1), where(inside, share, 0.0))


def _smoothed(axis: Axis, cubic: bool, dtype: DType) -> Taps:
    """Return the taps of an antialiasing kernel, which widens with the step."""
    widened = max(axis.step, 1.0)
    support = (2.0 if cubic else 1.0) * widened
    centre = (arange(axis.after, dtype=dtype, device=axis.place) + 0.5) * axis.step
    first = (centre - support + 0.5).long().clamp(min=0)
    end = (centre + support + 0.5).long().clamp(max=axis.before)
    places = first.unsqueeze(1) + arange(2 * ceil(support) + 1, device=axis.place)
    distance = (places.to(dtype) - centre.unsqueeze(1) + 0.5) / widened
    kernel = _cubic(distance, -0.5) if cubic else (1 - distance.abs()).clamp(min=0)
    weights = where(places < end.unsqueeze(1), kernel, 0.0)
    return Taps(places.clamp(max=axis.before - 1), weights / weights.sum(1, keepdim=True))


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Resample as `interpolate` does (its deprecated name)."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    return interpolate(input, size, scale_factor)


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


@row_by_row
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Rearrange (..., C r r, H, W) to (..., C, H r, W r)."""
    r = upscale_factor
    if input.dim() < 3 or r < 1 or input.shape[-3] % (r * r):
        raise ShapeError(
            f"pixel_shuffle: the channels (axis -3) of an input of the shape {tuple(input.shape)} are no multiple of "
            f"upscale_factor ** 2 = {r * r}"
        )
    *leading, channels, height, width = input.shape
    parts = input.reshape(product(leading), channels // (r * r), r, r, height, width).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(*leading, channels // (r * r), height * r, width * r).clone()


@keeping_format(0)
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Rearrange (..., C, H r, W r) to (..., C r r, H, W)."""
    r = downscale_factor
    if input.dim() < 3 or r < 1 or input.shape[-1] % r or input.shape[-2] % r:
        raise ShapeError(
            f"pixel_unshuffle: height and width of an input of the shape {tuple(input.shape)} are no multiples of {r}"
        )
    *leading, channels, height, width = input.shape
    parts = input.reshape(product(leading), channels, height // r, r, width // r, r).permute(0, 1, 3, 5, 2, 4)
    return parts.reshape(*leading, channels * r * r, height // r, width // r).clone()


@keeping_format(0)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave the channels (axis 1) of the groups."""
    if input.dim() < 3 or groups < 1 or input.shape[1] % groups:
        raise ShapeError(
            f"channel_shuffle: the channels (axis 1) of an input of the shape {tuple(input.shape)} cannot be divided "
            f"into {groups} groups"
        )
    parts = input.reshape(input.shape[0], groups, input.shape[1] // groups, *input.shape[2:])
    return parts.transpose(1, 2).reshape(input.shape).clone()
