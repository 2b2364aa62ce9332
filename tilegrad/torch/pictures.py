"""Implement `torchvision.utils`: image grids."""

from __future__ import annotations

from typing import Any

from ..nn.functional.paddings import pad
from ..tensor import Tensor
from .doors import missing


def make_grid(
    tensor: Tensor, nrow: int = 8, padding: int = 2, normalize: bool = False, pad_value: float = 0.0
) -> Tensor:
    """Arrange images (N, C, H, W) in rows of `nrow`, with a frame around each; one channel becomes three.

    >>> import tilegrad as tg
    >>> make_grid(tg.zeros(10, 1, 4, 4), nrow=4, padding=1).shape
    (3, 16, 21)
    """
    images = tensor if tensor.dim() == 4 else tensor.unsqueeze(0)
    if images.shape[1] == 1:
        images = images.expand(images.shape[0], 3, *images.shape[2:])
    if normalize:
        low, high = images.amin(), images.amax()
        images = (images - low) / (high - low).clamp(min=1e-5)
    count, channels, height, width = images.shape
    columns = min(nrow, count)
    rows = -(-count // columns)
    framed = pad(images, (padding, 0, padding, 0), "constant", pad_value)
    framed = pad(framed, (0, 0, 0, 0, 0, 0, 0, rows * columns - count), "constant", pad_value)
    whole = framed.reshape(rows, columns, channels, height + padding, width + padding).permute(2, 0, 3, 1, 4)
    flat = whole.reshape(channels, rows * (height + padding), columns * (width + padding))
    return pad(flat, (0, padding, 0, padding), "constant", pad_value)


def __getattr__(name: str) -> Any:
    raise missing("torchvision.utils", name, ["make_grid"])
