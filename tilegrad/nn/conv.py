"""Define convolutions, and layers that unfold images to windows and fold them back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any, ClassVar

from ..errors import ArgumentError, ShapeError
from ..functions.creation import empty
from ..tensor import Tensor
from . import init
from .functional import convolutions
from .functional.geometry import Each, each
from .functional.paddings import MODES, pad
from .module import Module
from .parameter import Parameter
from .wrapped import layer, layers_of_ranks


class _Conv(Module):
    """A convolution, whose parameters have PyTorch's names, shapes and initial values."""

    rank: ClassVar[int]
    function: ClassVar[Callable[..., Tensor]]
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Each,
        stride: Each = 1,
        padding: Each | str = 0,
        dilation: Each = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        channels = (in_channels, out_channels)
        name = type(self).__name__
        modes = ("zeros", *MODES[1:])
        if padding_mode not in modes:
            raise ArgumentError(f"{name}: padding_mode={padding_mode!r} is not there; there are {', '.join(modes)}")
        if not all(isinstance(channel, int) for channel in channels):
            raise ArgumentError(f"{name}: numbers of channels are integers, not {channels[0]!r} and {channels[1]!r}")
        if type(groups) is not int or groups < 1 or channels[0] % groups or channels[1] % groups:
            raise ShapeError(f"{name}: groups={groups} does not divide {channels[0]} and {channels[1]} channels")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ArgumentError(f"{name}: padding={padding!r}: give numbers, 'same' or 'valid'")
        self.in_channels, self.out_channels = channels
        self.kernel_size = each(kernel_size, self.rank, "kernel_size", name)
        self.stride = each(stride, self.rank, "stride", name)
        self.padding = padding if isinstance(padding, str) else each(padding, self.rank, "padding", name, 0)
        self.dilation = each(dilation, self.rank, "dilation", name)
        self.groups = groups
        self.padding_mode = padding_mode
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ArgumentError(f"{name}: padding='same' needs a stride of 1, not {self.stride}; give numbers")
        outer, inner = self._matrix()
        weight = empty(outer, inner // groups, *self.kernel_size, device=device, dtype=dtype)
        self.weight = Parameter(weight)
        made = Parameter(empty(self.out_channels, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", made)
        self.reset_parameters()

    def _matrix(self) -> tuple[int, int]:
        """Return the first two sizes of the weight for a single group."""
        return self.out_channels, self.in_channels

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=sqrt(5))
        if self.bias is not None:
            inputs = prod(self.weight.shape[1:])
            bound = 1 / sqrt(inputs) if inputs > 0 else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        padding: Each | str = self.padding
        if self.padding_mode != "zeros":
            input, padding = pad(input, self._widths(), self.padding_mode), 0
        return type(self).function(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _widths(self) -> list[int]:
        """Return the padding before and after each axis, the last axis first."""
        widths: list[int] = []
        for n in reversed(range(self.rank)):
            if isinstance(self.padding, str):
                total = self.dilation[n] * (self.kernel_size[n] - 1) if self.padding == "same" else 0
                widths += [total // 2, total - total // 2]
            else:
                widths += [self.padding[n]] * 2
        return widths

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if isinstance(self.padding, str) or any(self.padding):
            text += f", padding={self.padding}"
        if any(d != 1 for d in self.dilation):
            text += f", dilation={self.dilation}"
        more = getattr(self, "output_padding", ())
        text += f", output_padding={more}" if any(more) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        text += ", bias=False" if self.bias is None else ""
        return text + (f", padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else "")


def _convs(name: str, base: type[_Conv], doc: str, functions: Sequence[Callable[..., Tensor]]) -> list[type[_Conv]]:
    def facts(rank: int) -> dict[str, Any]:
        return {"rank": rank, "function": staticmethod(functions[rank - 1])}

    return layers_of_ranks(name, base, doc, facts)


Conv1d, Conv2d, Conv3d = _convs(
    "Conv",
    _Conv,
    """Convolve (N, C, {axes}); the weight has the shape (out, C / groups, {taps}).

    >>> Conv1d(2, 4, 3, padding=1)
    Conv1d(2, 4, kernel_size=(3,), stride=(1,), padding=(1,))
    """,
    (convolutions.conv1d, convolutions.conv2d, convolutions.conv3d),
)


class _ConvTranspose(_Conv):
    """A transposed convolution, the gradient of a convolution."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Each,
        stride: Each = 1,
        padding: Each = 0,
        output_padding: Each = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Each = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        name = type(self).__name__
        if padding_mode != "zeros" or isinstance(padding, str):
            raise ArgumentError(f"{name}: only numbers of zeros can be put around: padding_mode='zeros', padding=1")
        more = each(output_padding, self.rank, "output_padding", name, 0)
        channels = (in_channels, out_channels)
        super().__init__(*channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype)
        self.output_padding = more

    def _matrix(self) -> tuple[int, int]:
        return self.in_channels, self.out_channels

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        more = self.output_padding if output_size is None else self._left(input, output_size)
        return type(self).function(
            input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )

    def _left(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """Return the output padding that gives an output of the given size."""
        assert not isinstance(self.padding, str)
        geometry = zip(self.stride, self.padding, self.dilation, self.kernel_size, strict=True)
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, (s, p, d, k) in zip(input.shape[-self.rank :], geometry, strict=True)
        ]
        most = [n + s - 1 for n, s in zip(least, self.stride, strict=True)]
        wanted = list(output_size)[-self.rank :]
        if len(wanted) != self.rank or any(not a <= n <= b for a, n, b in zip(least, wanted, most, strict=True)):
            raise ShapeError(
                f"{type(self).__name__}: output_size={tuple(output_size)} cannot come of an input of the shape "
                f"{tuple(input.shape)}: sizes go from {tuple(least)} to {tuple(most)}"
            )
        return tuple([n - a for n, a in zip(wanted, least, strict=True)])


ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = _convs(
    "ConvTranspose",
    _ConvTranspose,
    "Convolve transposed: the gradient of `Conv{rank}d`; the weight has the shape (C, out / groups, {taps}).",
    (convolutions.conv_transpose1d, convolutions.conv_transpose2d, convolutions.conv_transpose3d),
)
Unfold = layer("Unfold", convolutions.unfold)
Fold = layer("Fold", convolutions.fold)
