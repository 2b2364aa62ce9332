"""Sample images at positions that a grid gives for each output pixel (spatial transformers)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from ...errors import ArgumentError, ShapeError
from ...functions.arithmetic import where
from ...functions.creation import arange
from ...functions.joining import stack
from ...ir.dtype import bool_
from ...ops.broadcasting import shown
from ...tensor import Tensor


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Compute the grid of an affine map (N, 2, 3) or (N, 3, 4) for images of `size` (N, C, ...).

    >>> import tilegrad as tg
    >>> affine_grid(tg.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2))
    tensor([[[[-0.5000,  0.0000],
              [ 0.5000,  0.0000]]]])
    """
    rank = len(size) - 2
    if rank not in (2, 3) or tuple(theta.shape) != (size[0], rank, rank + 1):
        raise ShapeError(
            f"affine_grid: maps {shown(theta.shape)} for images {shown(tuple(size))}: (N, 2, 3) or (N, 3, 4)"
        )
    if any(isinstance(extent, int) and extent < 1 for extent in size):
        raise ShapeError(f"affine_grid: images {shown(tuple(size))} have an axis without elements")
    axes = []
    for n, extent in enumerate(size[2:]):
        place = arange(extent, dtype=theta.dtype, device=theta.device)
        at = (place * 2 + 1) / extent - 1 if not align_corners else place * (2 / max(extent - 1, 1)) - (extent > 1)
        axes.append(at.reshape([-1 if k == n else 1 for k in range(rank)]).expand(tuple(size[2:])))
    points = stack([*axes[::-1], axes[0] * 0 + 1], -1).reshape(-1, rank + 1)
    return (points @ theta.transpose(1, 2)).reshape(size[0], *size[2:], rank)


def _check_sample(input: Tensor, grid: Tensor, mode: str, padding_mode: str) -> None:
    rank = input.dim() - 2
    if rank not in (2, 3) or grid.dim() != rank + 2 or grid.shape[-1] != rank or grid.shape[0] != input.shape[0]:
        raise ShapeError(
            f"grid_sample: places {shown(grid.shape)} for an input {shown(input.shape)}: for (N, C, H, W) it takes "
            "(N, ..., ..., 2), for volumes (N, ..., ..., ..., 3)"
        )
    if mode not in ("bilinear", "nearest", "bicubic") or padding_mode not in ("zeros", "border", "reflection"):
        raise ArgumentError(
            f"grid_sample: mode {mode!r} and padding_mode {padding_mode!r}: there are 'bilinear', 'nearest' and "
            "'bicubic'; 'zeros', 'border' and 'reflection'"
        )
    if mode == "bicubic" and rank != 2:
        raise ArgumentError(f"grid_sample: mode 'bicubic' is for images (N, C, H, W), not for {shown(input.shape)}")


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Sample images (N, C, H, W) or volumes at positions (N, ..., 2 or 3): x first, from -1 at one border to 1 at the
    other.

    The mode is `bilinear`, `nearest`, or for images `bicubic`.

    >>> import tilegrad as tg
    >>> x = tg.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> grid_sample(x, tg.zeros(1, 1, 1, 2))
    tensor([[[[2.5000]]]])
    """
    _check_sample(input, grid, mode, padding_mode)
    rank = input.dim() - 2
    extents = [int(n) for n in input.shape[2:]]
    if mode == "bicubic":
        return _cubic(input, grid, extents, padding_mode, bool(align_corners))
    places = [
        _place(grid[..., rank - 1 - n], extent, padding_mode, bool(align_corners)) for n, extent in enumerate(extents)
    ]
    if mode == "nearest":
        made = _read(input, [place.round() for place in places], extents)
        # the places have a gradient, of zeros
        return where(made.new_ones((), dtype=bool_), made, grid.sum()) if grid.requires_grad else made
    low = [place.floor() for place in places]
    total: Any = 0
    for corner in product((0, 1), repeat=rank):
        weight: Any = 1
        for up, place, start in zip(corner, places, low, strict=True):
            weight = weight * ((place - start) if up else (start + 1 - place))
        corners = [start + up for up, start in zip(corner, low, strict=True)]
        total = total + _read(input, corners, extents) * weight.unsqueeze(1)
    return total  # type: ignore[no-any-return]


def _cubic(x: Tensor, grid: Tensor, extents: Sequence[int], padding: str, align: bool) -> Tensor:
    """Return four taps along each axis, by the cubic kernel of Keys (1981) with slope -0.75."""
    along: list[list[tuple[Tensor, Tensor]]] = []
    for n, extent in enumerate(extents):
        place = _unfolded(grid[..., len(extents) - 1 - n], extent, align)
        low = place.floor()
        distances = [place - low + 1, place - low, low + 1 - place, low + 2 - place]
        taps = [_folded((low + (k - 1)).detach(), extent, padding, align) for k in range(4)]
        along.append([(tap, _weight(d)) for tap, d in zip(taps, distances, strict=True)])
    total: Any = 0
    for (row, by_row), (column, by_column) in product(*along):
        total = total + _read(x, [row, column], extents) * (by_row * by_column).unsqueeze(1)
    return total  # type: ignore[no-any-return]


def _weight(distance: Tensor, slope: float = -0.75) -> Tensor:
    """Return the weight of an element at a distance from 0 to 2."""
    near = ((slope + 2) * distance - (slope + 3)) * distance * distance + 1
    far = slope * (((distance - 5) * distance + 8) * distance - 4)
    return near.where(distance <= 1, far)


def _place(at: Tensor, extent: int, padding: str, align: bool) -> Tensor:
    """Convert a coordinate from -1 to 1 to a position along a padded axis."""
    return _folded(_unfolded(at, extent, align), extent, padding, align)


def _unfolded(at: Tensor, extent: int, align: bool) -> Tensor:
    """Convert a coordinate from -1 to 1 to a position along an axis."""
    return (at + 1) * ((extent - 1) / 2) if align else ((at + 1) * extent - 1) / 2


def _folded(place: Tensor, extent: int, padding: str, align: bool) -> Tensor:
    """Move a position into the axis, unless zeros are outside."""
    if padding == "reflection":
        low, span = (0.0, extent - 1.0) if align else (-0.5, float(extent))
        if span <= 0:
            return place * 0
        away = (place - low).abs()
        periods, rest = (away / span).floor(), away % span
        place = rest.where(periods % 2 == 0, span - rest) + low
    if padding == "zeros":
        return place
    within = (place > 0) & (place < extent - 1)  # at the border itself no gradient flows, as in PyTorch
    return where(within, place, place.detach().clamp(0, extent - 1))


def _read(x: Tensor, places: Sequence[Tensor], extents: Sequence[int]) -> Tensor:
    """Gather the elements at integer positions, 0 outside."""
    inside: Any = True
    flat: Any = 0
    for place, extent in zip(places, extents, strict=True):
        inside = ((place >= 0) & (place < extent)) & inside
        flat = flat * extent + place.detach().clamp(0, extent - 1).long()
    batch, channels = x.shape[:2]
    index = flat.reshape(batch, 1, -1).expand(batch, channels, flat.numel() // batch)
    found = x.reshape(batch, channels, -1).gather(2, index).reshape(batch, channels, *flat.shape[1:])
    return found * inside.unsqueeze(1).to(x.dtype)  # type: ignore[no-any-return]
