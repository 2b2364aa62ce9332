"""Transform images, under torchvision's names: one image (C, H, W), or a batch (N, C, H, W) at once.

They are expressions of tensors: called within a jitted step they are compiled with it. What is random is drawn for each
image of a batch anew (torchvision does the same to all), from tilegrad's generator.

    prepare = Compose([RandomCrop(28, padding=2), RandomHorizontalFlip(), Normalize(0.13, 0.31)])

    @tg.jit
    def step(images, labels):
        loss = cross_entropy(model(prepare(images)), labels)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError, check_callable
from ..functions.arithmetic import where
from ..functions.creation import arange, as_tensor, tensor
from ..ir.dtype import float32, uint8
from ..nn.functional.paddings import pad
from ..nn.functional.resizing import interpolate
from ..random import rand, randint
from ..tensor import Tensor

Size = int | Sequence[int]
Transformed = Callable[[Any], Any]


class Transform(ABC):
    """The base of transforms: a function from images to images."""

    @abstractmethod
    def __call__(self, images: Any) -> Any: ...

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"


class Compose(Transform):
    """Apply transforms one after the other.

    >>> Compose([Normalize(1.0, 2.0), Lambda(lambda x: x * 10)])(tensor([[[3.0, 5.0]]])).tolist()
    [[[10.0, 20.0]]]
    """

    def __init__(self, transforms: Sequence[Transformed]) -> None:
        if not isinstance(transforms, Sequence):
            raise ArgumentError(f"Compose takes a list of transforms, not a {type(transforms).__name__}")
        self.transforms = list(transforms)
        for transform in self.transforms:
            check_callable(transform, "Compose")

    def __call__(self, images: Any) -> Any:
        for transform in self.transforms:
            images = transform(images)
        return images

    def __repr__(self) -> str:
        return "\n".join(["Compose(", *(f"    {transform!r}" for transform in self.transforms), ")"])


class Lambda(Transform):
    """Apply a function."""

    def __init__(self, lambd: Transformed) -> None:
        if not callable(lambd):
            raise ArgumentError(f"Lambda takes a function, not a {type(lambd).__name__}")
        self.lambd = lambd

    def __call__(self, images: Any) -> Any:
        return self.lambd(images)


class ToTensor(Transform):
    """Convert arrays (H, W), (H, W, C) or (N, H, W, C) to float32 tensors, channels first; bytes to 0..1."""

    def __call__(self, images: Any) -> Tensor:
        x = images if isinstance(images, Tensor) else as_tensor(np.asarray(images))
        if not 2 <= x.dim() <= 4:
            raise ShapeError(f"ToTensor: takes (H, W), (H, W, C) or (N, H, W, C), not the shape {tuple(x.shape)}")
        x = x.unsqueeze(0) if x.dim() == 2 else x.movedim(-1, -3)
        return x.to(float32) / 255 if x.dtype is uint8 else x


class Normalize(Transform):
    """Subtract a mean and divide by a standard deviation: one number for all channels, or one per channel."""

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float], inplace: bool = False) -> None:
        self.mean = _channels(mean)
        self.std = _channels(std)
        if 0 in self.std:
            raise ArgumentError(f"Normalize: std is {std}: it cannot be 0")
        self.inplace = inplace

    def __call__(self, images: Tensor) -> Tensor:
        x = _images(images, "Normalize")
        if not x.is_floating_point():
            raise ArgumentError(f"Normalize: takes floating-point images, not {x.dtype.name}: use ToTensor first")
        if {len(self.mean), len(self.std)} - {1, x.shape[-3]}:
            raise ShapeError(
                f"Normalize: {len(self.mean)} means and {len(self.std)} deviations for {x.shape[-3]} channels of "
                f"images of the shape {tuple(x.shape)}"
            )
        mean, std = (tensor(v, dtype=x.dtype, device=x.device).reshape(-1, 1, 1) for v in (self.mean, self.std))
        return x.sub_(mean).div_(std) if self.inplace else (x - mean) / std


class Resize(Transform):
    """Resize to (height, width), or the shorter side to a number.

    Bilinear, with all pixels that a new one covers taken into account where the image shrinks (`antialias`), as
    torchvision does it by default. Bytes are rounded.
    """

    def __init__(
        self, size: Size, interpolation: str = "bilinear", max_size: int | None = None, antialias: bool = True
    ) -> None:
        if interpolation not in ("nearest", "nearest-exact", "bilinear", "bicubic"):
            raise ArgumentError(f"Resize: interpolation is {interpolation!r}: it is 'nearest', 'bilinear' or 'bicubic'")
        self.size = size
        self.interpolation = interpolation
        self.max_size = max_size
        self.antialias = antialias

    def __call__(self, images: Tensor) -> Tensor:
        x = _images(images, "Resize")
        size = self.output_size(*x.shape[-2:])
        if tuple(x.shape[-2:]) == size:
            return x
        batch = x.reshape(-1, *x.shape[-3:]) if x.dim() != 4 else x
        smooth = self.interpolation in ("bilinear", "bicubic")
        whole = smooth and not x.is_floating_point()
        made = interpolate(
            batch.float() if whole else batch, size, mode=self.interpolation, antialias=smooth and self.antialias
        )
        if whole:
            made = made.round().clamp(0, 255).to(x.dtype)
        return made.reshape(*x.shape[:-2], *size) if x.dim() != 4 else made

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the size to which images of a size are resized.

        >>> Resize(50).output_size(100, 201), Resize(50, max_size=80).output_size(100, 201)
        ((50, 100), (40, 80))
        """
        if not isinstance(self.size, int) and len(self.size) == 2:
            return _pair(self.size, "Resize: size")
        short, long = sorted((height, width))
        new_short = self.size if isinstance(self.size, int) else self.size[0]
        new_long = int(new_short * long / short)
        if self.max_size is not None and new_long > self.max_size:
            new_short, new_long = int(self.max_size * new_short / new_long), self.max_size
        return (new_short, new_long) if height <= width else (new_long, new_short)


class Pad(Transform):
    """Pad with pixels: a number for all sides, (sides, top and bottom), or (left, top, right, bottom)."""

    def __init__(self, padding: Size, fill: float = 0, padding_mode: str = "constant") -> None:
        if padding_mode not in ("constant", "reflect", "edge"):
            raise ArgumentError(f"Pad: padding_mode is {padding_mode!r}: it is 'constant', 'reflect' or 'edge'")
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def __call__(self, images: Tensor) -> Tensor:
        x = _images(images, "Pad")
        each = (self.padding,) if isinstance(self.padding, int) else tuple(self.padding)
        if len(each) not in (1, 2, 4):
            raise ArgumentError(f"Pad: padding is {self.padding}: it has 1, 2 or 4 numbers")
        left, top, right, bottom = each * (4 // len(each))
        if self.padding_mode == "constant":
            return pad(x, (left, right, top, bottom), "constant", self.fill)
        mode = "replicate" if self.padding_mode == "edge" else "reflect"
        return pad(x, (left, right, top, bottom), mode)


class CenterCrop(Transform):
    """Crop the centre; images that are too small are padded with 0 first."""

    def __init__(self, size: Size) -> None:
        self.size = _pair(size, "CenterCrop: size")

    def __call__(self, images: Tensor) -> Tensor:
        x = _images(images, "CenterCrop")
        (height, width), (h, w) = self.size, x.shape[-2:]
        if height > h or width > w:
            down, across = max(height - h, 0), max(width - w, 0)
            x = Pad((across // 2, down // 2, (across + 1) // 2, (down + 1) // 2))(x)
            h, w = x.shape[-2:]
        top, left = round((h - height) / 2), round((w - width) / 2)
        return x.narrow(-2, top, height).narrow(-1, left, width)


class RandomCrop(Transform):
    """Crop at a random position, drawn for each image of a batch, after padding if asked for."""

    def __init__(
        self,
        size: Size,
        padding: Size | None = None,
        pad_if_needed: bool = False,
        fill: float = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = _pair(size, "RandomCrop: size")
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    def __call__(self, images: Tensor) -> Tensor:
        x = _images(images, "RandomCrop")
        if self.padding is not None:
            x = Pad(self.padding, self.fill, self.padding_mode)(x)
        height, width = self.size
        if self.pad_if_needed:
            across, down = max(width - x.shape[-1], 0), max(height - x.shape[-2], 0)
            x = Pad((across, down), self.fill, self.padding_mode)(x)
        if height > x.shape[-2] or width > x.shape[-1]:
            raise ShapeError(
                f"RandomCrop: a part of {height} x {width} does not fit in images of the shape {tuple(x.shape)}: give "
                "padding, or pad_if_needed=True"
            )
        leading = tuple(x.shape[:-3])
        rows = _places(x.shape[-2], height, leading, x).unsqueeze(-1)
        columns = _places(x.shape[-1], width, leading, x).unsqueeze(-2)
        channels = arange(x.shape[-3], device=x.device).reshape(-1, 1, 1)
        rows, columns = rows.unsqueeze(-3), columns.unsqueeze(-3)
        if not leading:
            return x[channels, rows, columns]
        return x[arange(leading[0], device=x.device).reshape(-1, 1, 1, 1), channels, rows, columns]


def _places(extent: int, wanted: int, leading: tuple[int, ...], x: Tensor) -> Tensor:
    """Return consecutive indices from a random one on."""
    first = randint(0, extent - wanted + 1, (*leading, 1), device=x.device)
    return first + arange(wanted, device=x.device)


class RandomHorizontalFlip(Transform):
    """Flip left and right, for each image of a batch with probability p."""

    axis = -1

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ArgumentError(f"{type(self).__name__}: p={p} is no probability")
        self.p = p

    def __call__(self, images: Tensor) -> Tensor:
        x = _images(images, type(self).__name__)
        flipped = rand(*x.shape[:-3], 1, 1, 1, device=x.device) < self.p
        return where(flipped, x.flip(self.axis), x)


class RandomVerticalFlip(RandomHorizontalFlip):
    """Flip top and bottom, for each image of a batch with probability p."""

    axis = -2


def _images(images: Any, name: str) -> Tensor:
    if not isinstance(images, Tensor):
        raise ArgumentError(f"{name}: takes tensors, not a {type(images).__name__}: put ToTensor() before it")
    if not 3 <= images.dim() <= 4:
        raise ShapeError(f"{name}: takes (C, H, W) or (N, C, H, W), not the shape {tuple(images.shape)}")
    return images


def _channels(values: float | Sequence[float]) -> tuple[float, ...]:
    return (float(values),) if isinstance(values, (int, float)) else tuple(float(v) for v in values)


def _pair(size: Size, name: str) -> tuple[int, int]:
    both = (size, size) if isinstance(size, int) else tuple(size) * (2 // len(size))
    if len(both) != 2 or not all(isinstance(n, int) and n > 0 for n in both):
        raise ArgumentError(f"{name} is {size!r}: it is a number of pixels, or (height, width)")
    return both[0], both[1]


__all__ = [name for name, found in globals().items() if isinstance(found, type) and issubclass(found, Transform)]
