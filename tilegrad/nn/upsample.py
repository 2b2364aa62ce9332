"""Define resampling of images, and exchanges of channels and pixels, as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import functional
from .wrapped import FunctionModule, layer


class Upsample(FunctionModule, function=functional.interpolate, without=("antialias",)):
    """Resample to `size` or by `scale_factor`, as `interpolate` does."""

    def _set(self, **settings: Any) -> None:
        factor = settings.pop("scale_factor")
        factors = tuple(map(float, factor)) if isinstance(factor, Sequence) else float(factor) if factor else None
        super()._set(**settings, scale_factor=factors)
        self.name = "Upsample"

    def extra_repr(self) -> str:
        given = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{given}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample images by repeating pixels."""

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample images bilinearly, with aligned corners."""

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


PixelShuffle = layer("PixelShuffle", functional.pixel_shuffle)
PixelUnshuffle = layer("PixelUnshuffle", functional.pixel_unshuffle)
ChannelShuffle = layer("ChannelShuffle", functional.channel_shuffle)
