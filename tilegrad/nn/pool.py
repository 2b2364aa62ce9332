"""Define pooling as modules."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from ..errors import ArgumentError
from ..functions.declared import publish_classes
from . import functional
from .functional.geometry import each
from .wrapped import FunctionModule


class _Pooling(FunctionModule):
    """The base of poolings whose windows are adjacent unless a stride is given."""

    shown: ClassVar[Collection[str] | None] = ("kernel_size", "stride", "padding")
    rank: ClassVar[int | None] = None
    """Length of the tuples that sizes are kept as; None: as given."""

    def _set(self, **settings: Any) -> None:
        if self.rank is not None:
            for name, least in (("kernel_size", 1), ("stride", 1), ("padding", 0)):
                if settings[name] is not None:
                    settings[name] = each(settings[name], self.rank, name, type(self).__name__, least)
        stride = settings.pop("stride")
        super()._set(**settings, stride=settings["kernel_size"] if stride is None else stride)


class _MaxPooling(_Pooling):
    shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")


class MaxPool1d(_MaxPooling, function=functional.max_pool1d, last=("ceil_mode",)):
    """Compute the maximum of each window of (N, C, L).

    >>> MaxPool1d(3, stride=2)
    MaxPool1d(kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=False)
    """


class MaxPool2d(_MaxPooling, function=functional.max_pool2d, last=("ceil_mode",)):
    """Compute the maximum of each window of (N, C, H, W)."""


class MaxPool3d(_MaxPooling, function=functional.max_pool3d, last=("ceil_mode",)):
    """Compute the maximum of each window of (N, C, D, H, W)."""


class AvgPool1d(_Pooling, function=functional.avg_pool1d):
    """Average each window of (N, C, L)."""

    rank = 1


class AvgPool2d(_Pooling, function=functional.avg_pool2d):
    """Average each window of (N, C, H, W)."""


class AvgPool3d(_Pooling, function=functional.avg_pool3d):
    """Average each window of (N, C, D, H, W)."""


class AdaptiveAvgPool1d(FunctionModule, function=functional.adaptive_avg_pool1d):
    """Average the windows that divide (N, C, L) evenly into `output_size`."""


class AdaptiveAvgPool2d(FunctionModule, function=functional.adaptive_avg_pool2d):
    """Average the windows that divide (N, C, H, W) evenly into `output_size`."""


class AdaptiveAvgPool3d(FunctionModule, function=functional.adaptive_avg_pool3d):
    """Average the windows that divide (N, C, D, H, W) evenly into `output_size`."""


class AdaptiveMaxPool1d(FunctionModule, function=functional.adaptive_max_pool1d):
    """Compute the maximum of the windows that divide (N, C, L) evenly into `output_size`."""

    shown = ("output_size",)


class AdaptiveMaxPool2d(FunctionModule, function=functional.adaptive_max_pool2d):
    """Compute the maximum of the windows that divide (N, C, H, W) evenly into `output_size`."""

    shown = ("output_size",)


class AdaptiveMaxPool3d(FunctionModule, function=functional.adaptive_max_pool3d):
    """Compute the maximum of the windows that divide (N, C, D, H, W) evenly into `output_size`."""

    shown = ("output_size",)


class LPPool1d(FunctionModule, function=functional.lp_pool1d):
    """Compute the p-norm of each window of (N, C, L)."""


class LPPool2d(FunctionModule, function=functional.lp_pool2d):
    """Compute the p-norm of each window of (N, C, H, W)."""


class LPPool3d(FunctionModule, function=functional.lp_pool3d):
    """Compute the p-norm of each window of (N, C, D, H, W)."""


class _FractionalMaxPool(FunctionModule):
    shown = ()

    def _set(self, **settings: Any) -> None:
        super()._set(**settings)
        if (self.output_size is None) == (self.output_ratio is None):
            raise ArgumentError(f"{type(self).__name__}: give output_size or output_ratio, one of them")


class FractionalMaxPool2d(_FractionalMaxPool, function=functional.fractional_max_pool2d):
    """Compute the maximum of windows of images at random distances (Graham, 2014)."""


class FractionalMaxPool3d(_FractionalMaxPool, function=functional.fractional_max_pool3d):
    """Compute the maximum of windows of volumes at random distances."""


class MaxUnpool1d(_Pooling, function=functional.max_unpool1d, inputs=("input", "indices", "output_size")):
    """Invert `MaxPool1d(return_indices=True)`: place values at their indices, zeros elsewhere."""

    rank = 1


class MaxUnpool2d(_Pooling, function=functional.max_unpool2d, inputs=("input", "indices", "output_size")):
    """Invert `MaxPool2d(return_indices=True)`: place values at their indices, zeros elsewhere."""

    rank = 2


class MaxUnpool3d(_Pooling, function=functional.max_unpool3d, inputs=("input", "indices", "output_size")):
    """Invert `MaxPool3d(return_indices=True)`: place values at their indices, zeros elsewhere."""

    rank = 3


publish_classes(globals())
