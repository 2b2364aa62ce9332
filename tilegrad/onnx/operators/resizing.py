"""Resizing, and sampling at given places."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from ... import functional as tg
from ...nn import functional as F
from ...tensor import Tensor
from ..problems import OnnxError
from ..rules import Function
from ..values import Floats, Ints, as_tensor


class ResizedAxis(NamedTuple):
    """How one axis is resized."""

    size: int
    wanted: int
    scale: float
    first: float
    last: float
    """The part of the axis that is taken, as shares of its size."""

    def places(self, mode: str) -> np.ndarray:
        """Return where the new elements are, in positions of the old ones."""
        at: np.ndarray = np.arange(self.wanted, dtype=np.float64)
        exact = self.scale * self.size
        match mode:
            case "align_corners":
                return at * (self.size - 1) / (exact - 1) if exact != 1 else at * 0
            case "asymmetric":
                return at / self.scale
            case "tf_half_pixel_for_nn":
                return (at + 0.5) / self.scale
            case "half_pixel":
                return (at + 0.5) / self.scale - 0.5
            case "pytorch_half_pixel":
                return (at + 0.5) / self.scale - 0.5 if exact != 1 else at * 0 - 0.5
            case "half_pixel_symmetric":
                return self.size / 2 * (1 - self.wanted / exact) + (at + 0.5) / self.scale - 0.5
            case "tf_crop_and_resize":
                reach = (self.last - self.first) * (self.size - 1)
                moved = at * reach / (exact - 1) if exact != 1 else at + reach / 2
                return moved + self.first * (self.size - 1)
        raise OnnxError(f"there is no coordinate transformation {mode!r}")


ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda places: np.ceil(places - 0.5),
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""How positions become those of elements."""


def _kernel(distance: np.ndarray, mode: str, a: float) -> np.ndarray:
    """Return the weight of an element at a distance."""
    d = np.abs(distance)
    if mode == "linear":
        triangle: np.ndarray = np.clip(1 - d, 0, 1)
        return triangle
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    weights: np.ndarray = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    return weights


def _taps(
    axis: ResizedAxis, places: np.ndarray, mode: str, a: float, antialias: bool, exclude_outside: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each new element the old ones that it is made of, with weights that add up to 1."""
    filter_scale = min(axis.scale, 1.0) if antialias else 1.0
    reach = (1 if mode == "linear" else 2) / filter_scale
    low, high = -ceil(reach) + 1, ceil(reach)
    index = np.floor(places)[:, None] + np.arange(low, high + 1)
    weights = _kernel((index - places[:, None]) * filter_scale, mode, a)
    if exclude_outside:
        weights = np.where((index >= 0) & (index < axis.size), weights, 0.0)
    weights = weights / weights.sum(1, keepdims=True)
    return index.clip(0, axis.size - 1).astype(np.int64), weights


def resize(
    x: Tensor,
    roi: Floats | None = None,
    scales: Floats | None = None,
    sizes: Ints | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "filter_scale",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """Resize axes one after the other by nearest, linear or cubic interpolation."""
    places = [n % x.dim() for n in axes] if axes is not None else list(range(x.dim()))
    given = [_axis(x, n, k, len(places), roi, scales, sizes) for k, n in enumerate(places)]
    if sizes and keep_aspect_ratio_policy != "filter_scale":
        choose = min if keep_aspect_ratio_policy == "not_larger" else max
        scale = choose(axis.scale for axis in given)
        given = [axis._replace(wanted=floor(axis.size * scale + 0.5), scale=scale) for axis in given]
    dtype, outside = x.dtype, []
    for n, axis in zip(places, given, strict=True):
        if axis.wanted == axis.size and axis.scale == 1 and (axis.first, axis.last) == (0, 1):
            continue
        at = axis.places(coordinate_transformation_mode)
        if coordinate_transformation_mode == "tf_crop_and_resize":
            outside.append((n, (at < 0) | (at > axis.size - 1)))
        if mode == "nearest":
            index = ROUNDINGS[nearest_mode](at).clip(0, axis.size - 1).astype(np.int64)
            x = tg.index_select(x, n, as_tensor(index, x.device))
            continue
        index, weights = _taps(axis, at, mode, cubic_coeff_a, bool(antialias), bool(exclude_outside))
        x = _weighted(x if x.is_floating_point() else x.float(), n, index, weights)
    for n, out in outside:
        shape = [-1] + [1] * (x.dim() - 1 - n)
        x = tg.where(as_tensor(out, x.device).reshape(shape), tg.full_like(x, extrapolation_value), x)
    return x if x.dtype is dtype else tg.round(x).to(dtype)


def _axis(
    x: Tensor, n: int, k: int, count: int, roi: list[float] | None, scales: list[float] | None, sizes: list[int] | None
) -> ResizedAxis:
    size = int(x.shape[n])
    if scales:
        scale = float(scales[k])
        wanted = floor(size * scale)
    elif sizes:
        wanted = int(sizes[k])
        scale = wanted / size
    else:
        raise OnnxError("neither scales nor sizes are given")
    first, last = (roi[k], roi[count + k]) if roi else (0.0, 1.0)
    return ResizedAxis(size, wanted, scale, first, last)


def _weighted(x: Tensor, axis: int, index: np.ndarray, weights: np.ndarray) -> Tensor:
    """Sum weighted elements along an axis."""
    shape = [-1] + [1] * (x.dim() - 1 - axis)
    made = None
    for tap in range(index.shape[1]):
        weight = as_tensor(weights[:, tap].astype(np.float32), x.device).reshape(shape).to(x.dtype)
        part = tg.index_select(x, axis, as_tensor(index[:, tap], x.device)) * weight
        made = part if made is None else made + part
    assert made is not None
    return made


def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """Sample at places between -1 and 1."""
    names = {"linear": "bilinear", "cubic": "bicubic"}
    if x.dim() == 3:
        flat = tg.stack([grid[..., 0], tg.zeros_like(grid[..., 0])], -1)
        return grid_sample(
            x.unsqueeze(2), flat.unsqueeze(1), align_corners=align_corners, mode=mode, padding_mode=padding_mode
        ).squeeze(2)
    return F.grid_sample(x, grid, names.get(mode, mode), padding_mode, bool(align_corners))


def affine_grid(theta: Tensor, size: Ints, *, align_corners: int = 0) -> Tensor:
    return F.affine_grid(theta, size, bool(align_corners))


RULES: dict[str, Function] = {"AffineGrid": affine_grid, "GridSample": grid_sample, "Resize": resize}
