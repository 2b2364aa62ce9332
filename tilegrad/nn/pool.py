"""Define pooling as modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..errors import ArgumentError
from ..tensor import Tensor
from . import functional
from .functional import unpooling
from .functional.fractional import Ratio
from .functional.geometry import Each, each
from .functional.poolings import Pooled
from .module import Module
from .wrapped import FunctionModule


class _Pool(Module):
    """The base of modules that call a pooling function."""

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
    """Compute the maximum of each window of (N, C, L).

    >>> MaxPool1d(3, stride=2)
    MaxPool1d(kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=False)
    """

    function = staticmethod(functional.max_pool1d)


class MaxPool2d(_MaxPool):
    """Compute the maximum of each window of (N, C, H, W)."""

    function = staticmethod(functional.max_pool2d)


class MaxPool3d(_MaxPool):
    """Compute the maximum of each window of (N, C, D, H, W)."""

    function = staticmethod(functional.max_pool3d)


class AvgPool1d(_Pool):
    """Average each window of (N, C, L)."""

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


class _AvgPool(FunctionModule):
    shown = ("kernel_size", "stride", "padding")

    def _set(self, **settings: Any) -> None:
        stride = settings.pop("stride")
        super()._set(**settings, stride=settings["kernel_size"] if stride is None else stride)


class AvgPool2d(_AvgPool, function=functional.avg_pool2d):
    """Average each window of (N, C, H, W)."""


class AvgPool3d(_AvgPool, function=functional.avg_pool3d):
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
    """Compute the maximum of windows of images at random distances (Graham, 2014)."""

    function = staticmethod(functional.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """Compute the maximum of windows of volumes at random distances."""

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
    """Invert `MaxPool1d(return_indices=True)`: place values at their indices, zeros elsewhere."""

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Invert `MaxPool2d(return_indices=True)`: place values at their indices, zeros elsewhere."""

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Invert `MaxPool3d(return_indices=True)`: place values at their indices, zeros elsewhere."""

    rank = 3
