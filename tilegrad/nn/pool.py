"""Layers that keep the greatest, or the average, of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..errors import ArgumentError
from ..tensor import Tensor
from . import functional
from .functional import unpooling
from .functional.fractional import Ratio
from .functional.geometry import Each, each
from .functional.poolings import Pooled, Sizes
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _Pool(Module):
    """Calls one of the functions of pooling."""

    function: ClassVar[Callable[..., Any]]


class _MaxPool(_Pool):
    def __init__(
        self,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        dilation: Each = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Pooled:
        geometry = (self.kernel_size, self.stride, self.padding, self.dilation)
        return type(self).function(input, *geometry, self.ceil_mode, self.return_indices)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        text = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        return f"{text}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class MaxPool1d(_MaxPool):
    """The greatest element of each window of (N, C, L).

    >>> MaxPool1d(3, stride=2)
    MaxPool1d(kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=False)
    """

    function = staticmethod(functional.max_pool1d)


class MaxPool2d(_MaxPool):
    """The greatest element of each window of (N, C, H, W)."""

    function = staticmethod(functional.max_pool2d)


class MaxPool3d(_MaxPool):
    """The greatest element of each window of (N, C, D, H, W)."""

    function = staticmethod(functional.max_pool3d)


class AvgPool1d(_Pool):
    """The average of each window of (N, C, L)."""

    def __init__(
        self,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = each(kernel_size, 1, "kernel_size", "AvgPool1d")
        self.stride = self.kernel_size if stride is None else each(stride, 1, "stride", "AvgPool1d")
        self.padding = each(padding, 1, "padding", "AvgPool1d", 0)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        geometry = (self.kernel_size, self.stride, self.padding)
        return functional.avg_pool1d(input, *geometry, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(_Pool):
    def __init__(
        self,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        geometry = (self.kernel_size, self.stride, self.padding, self.ceil_mode)
        made = type(self).function(input, *geometry, self.count_include_pad, self.divisor_override)
        return made  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPool):
    """The average of each window of (N, C, H, W)."""

    function = staticmethod(functional.avg_pool2d)


class AvgPool3d(_AvgPool):
    """The average of each window of (N, C, D, H, W)."""

    function = staticmethod(functional.avg_pool3d)


class _AdaptiveAvgPool(_Pool):
    def __init__(self, output_size: Sizes) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, self.output_size)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The averages of as many windows as asked for; with 1, of everything."""

    function = staticmethod(functional.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The averages of as many windows of images as asked for; with 1, of whole images."""

    function = staticmethod(functional.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The averages of as many windows of volumes as asked for."""

    function = staticmethod(functional.adaptive_avg_pool3d)


class _AdaptiveMaxPool(_Pool):
    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Pooled:
        return type(self).function(input, self.output_size, self.return_indices)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The greatest elements of as many windows as asked for."""

    function = staticmethod(functional.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The greatest elements of as many windows of images as asked for."""

    function = staticmethod(functional.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The greatest elements of as many windows of volumes as asked for."""

    function = staticmethod(functional.adaptive_max_pool3d)


class _LPPool(_Pool):
    def __init__(
        self, norm_type: float, kernel_size: Each, stride: Each | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        made = type(self).function(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
        return made  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        text = f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}"
        return f"{text}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPool):
    """The root of the sum of the powers of each window."""

    function = staticmethod(functional.lp_pool1d)


class LPPool2d(_LPPool):
    """The root of the sum of the powers of each window of images."""

    function = staticmethod(functional.lp_pool2d)


class LPPool3d(_LPPool):
    """The root of the sum of the powers of each window of volumes."""

    function = staticmethod(functional.lp_pool3d)


class _FractionalMaxPool(Module):
    function: ClassVar[Any]

    def __init__(
        self,
        kernel_size: Each,
        output_size: Each | None = None,
        output_ratio: Ratio = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.output_size = output_size
        self.output_ratio = output_ratio
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(f"{type(self).__name__}: give output_size or output_ratio, one of them")

    def forward(self, input: Tensor) -> Pooled:
        settings = (self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)
        return type(self).function(input, *settings)  # type: ignore[no-any-return]


class FractionalMaxPool2d(_FractionalMaxPool):
    """The greatest elements of windows of images whose distances are drawn."""

    function = staticmethod(functional.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """The greatest elements of windows of volumes whose distances are drawn."""

    function = staticmethod(functional.fractional_max_pool3d)


class _MaxUnpool(Module):
    rank: ClassVar[int]

    def __init__(self, kernel_size: Each, stride: Each | None = None, padding: Each = 0) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = each(kernel_size, self.rank, "kernel_size", name)
        self.stride = self.kernel_size if stride is None else each(stride, self.rank, "stride", name)
        self.padding = each(padding, self.rank, "padding", name, 0)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        geometry = (self.kernel_size, self.stride, self.padding)
        return unpooling.unpooled(self.rank, input, indices, *geometry, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Puts back what `MaxPool1d(return_indices=True)` kept."""

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Puts back what `MaxPool2d(return_indices=True)` kept."""

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Puts back what `MaxPool3d(return_indices=True)` kept."""

    rank = 3
