"""Define pooling as modules."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from ..errors import ArgumentError
from . import functional
from .functional.geometry import each
from .wrapped import FunctionModule, layer


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


MaxPool1d = layer("MaxPool1d", functional.max_pool1d, _MaxPooling, last=("ceil_mode",))
MaxPool2d = layer("MaxPool2d", functional.max_pool2d, _MaxPooling, last=("ceil_mode",))
MaxPool3d = layer("MaxPool3d", functional.max_pool3d, _MaxPooling, last=("ceil_mode",))
AvgPool1d = layer("AvgPool1d", functional.avg_pool1d, _Pooling, rank=1)
AvgPool2d = layer("AvgPool2d", functional.avg_pool2d, _Pooling)
AvgPool3d = layer("AvgPool3d", functional.avg_pool3d, _Pooling)
AdaptiveAvgPool1d = layer("AdaptiveAvgPool1d", functional.adaptive_avg_pool1d)
AdaptiveAvgPool2d = layer("AdaptiveAvgPool2d", functional.adaptive_avg_pool2d)
AdaptiveAvgPool3d = layer("AdaptiveAvgPool3d", functional.adaptive_avg_pool3d)
AdaptiveMaxPool1d = layer("AdaptiveMaxPool1d", functional.adaptive_max_pool1d, shown=("output_size",))
AdaptiveMaxPool2d = layer("AdaptiveMaxPool2d", functional.adaptive_max_pool2d, shown=("output_size",))
AdaptiveMaxPool3d = layer("AdaptiveMaxPool3d", functional.adaptive_max_pool3d, shown=("output_size",))
LPPool1d = layer("LPPool1d", functional.lp_pool1d)
LPPool2d = layer("LPPool2d", functional.lp_pool2d)
LPPool3d = layer("LPPool3d", functional.lp_pool3d)


class _FractionalMaxPool(FunctionModule):
    shown = ()

    def _set(self, **settings: Any) -> None:
        super()._set(**settings)
        if (self.output_size is None) == (self.output_ratio is None):
            raise ArgumentError(f"{type(self).__name__}: give output_size or output_ratio, one of them")


FractionalMaxPool2d = layer("FractionalMaxPool2d", functional.fractional_max_pool2d, _FractionalMaxPool)
FractionalMaxPool3d = layer("FractionalMaxPool3d", functional.fractional_max_pool3d, _FractionalMaxPool)
MaxUnpool1d = layer(
    "MaxUnpool1d", functional.max_unpool1d, _Pooling, inputs=("input", "indices", "output_size"), rank=1
)
MaxUnpool2d = layer(
    "MaxUnpool2d", functional.max_unpool2d, _Pooling, inputs=("input", "indices", "output_size"), rank=2
)
MaxUnpool3d = layer(
    "MaxUnpool3d", functional.max_unpool3d, _Pooling, inputs=("input", "indices", "output_size"), rank=3
)
