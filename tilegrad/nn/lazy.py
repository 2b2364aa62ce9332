"""Layers that learn from their first input how many features or channels it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..autograd.modes import no_grad
from ..errors import ShapeError
from ..functions.creation import empty
from ..tensor import Tensor
from . import conv, layers, norm
from .module import Module
from .parameter import Buffer, Parameter

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
    "UninitializedBuffer",
    "UninitializedParameter",
]


class UninitializedParameter(Parameter):
    """A parameter whose shape is not known yet; it becomes an ordinary one, and stays the same object."""

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(empty(0, device=device, dtype=dtype), requires_grad)

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Becomes a parameter of this shape, whose elements are for somebody else to set."""
        _materialize(self, Parameter, empty(*shape, device=device or self.device, dtype=dtype or self.dtype))

    def __repr__(self) -> str:
        return "<UninitializedParameter>"


class UninitializedBuffer(Buffer):
    """A buffer whose shape is not known yet; it becomes an ordinary one, and stays the same object."""

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> None:
        super().__init__(empty(0, device=device, dtype=dtype), persistent=persistent)
        self.requires_grad_(requires_grad)

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Becomes a buffer of this shape, whose elements are for somebody else to set."""
        _materialize(self, Buffer, empty(*shape, device=device or self.device, dtype=dtype or self.dtype))

    def __repr__(self) -> str:
        return "<UninitializedBuffer>"


def _materialize(one: Tensor, kind: type[Tensor], elements: Tensor) -> None:
    """Gives a tensor without a shape its elements, in the type and on the device that they have."""
    with no_grad():
        one.data = elements.detach()
    one.__class__ = kind


class _Lazy(Module):
    """Knows all arguments of a layer but the first, which the first input tells."""

    becomes: ClassVar[Any]
    """The class of the layer."""
    channels: ClassVar[int] = 1
    """The axis that tells, counted from the end where it is negative."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        self._arguments, self._options = args, options
        probe = type(self).becomes(options.get("groups", 1), *args, **options)
        for name, parameter in probe._parameters.items():
            empty_one = UninitializedParameter(True, options.get("device"), options.get("dtype"))
            self.register_parameter(name, None if parameter is None else empty_one)

    def forward(self, first: Tensor, *others: Any) -> Tensor:
        if first.dim() < max(2, -self.channels) and self.channels != -1:
            raise ShapeError(f"{type(self).__name__}: an input of the shape {tuple(first.shape)} has no channels")
        axis = self.channels if self.channels < 0 else min(self.channels, first.dim() - 1)
        self.initialize(int(first.shape[axis]))
        return self.forward(first, *others)

    def initialize(self, features: int) -> None:
        """Becomes the layer for so many features; what held its parameters holds them still."""
        made = type(self).becomes(features, *self._arguments, **self._options)
        old, own = self._parameters, self.__dict__
        self.__class__ = type(self).becomes
        del own["_arguments"], own["_options"]
        kept = ("_training", "_hooks")
        own.update({name: value for name, value in made.__dict__.items() if name not in kept})
        for name, parameter in made._parameters.items():
            known = old.get(name)
            if parameter is not None and isinstance(known, UninitializedParameter):
                _materialize(known, Parameter, parameter.detach().to(known.device, known.dtype))
                self._parameters[name] = known

    def extra_repr(self) -> str:
        shown = [*map(repr, self._arguments), *(f"{name}={value!r}" for name, value in self._options.items())]
        return ", ".join(["?", *shown])


class LazyLinear(_Lazy):
    """`Linear`, for as many features as the first input has.

    >>> import tilegrad as tg
    >>> layer = tg.nn.LazyLinear(3)
    >>> layer(tg.ones(2, 5)).shape, layer
    ((2, 3), Linear(in_features=5, out_features=3, bias=True))
    """

    becomes = layers.Linear
    channels = -1


class LazyConv1d(_Lazy):
    """`Conv1d`, for as many channels as the first input has."""

    becomes = conv.Conv1d
    channels = -2


class LazyConv2d(_Lazy):
    """`Conv2d`, for as many channels as the first input has."""

    becomes = conv.Conv2d
    channels = -3


class LazyConv3d(_Lazy):
    """`Conv3d`, for as many channels as the first input has."""

    becomes = conv.Conv3d
    channels = -4


class LazyConvTranspose1d(_Lazy):
    """`ConvTranspose1d`, for as many channels as the first input has."""

    becomes = conv.ConvTranspose1d
    channels = -2


class LazyConvTranspose2d(_Lazy):
    """`ConvTranspose2d`, for as many channels as the first input has."""

    becomes = conv.ConvTranspose2d
    channels = -3


class LazyConvTranspose3d(_Lazy):
    """`ConvTranspose3d`, for as many channels as the first input has."""

    becomes = conv.ConvTranspose3d
    channels = -4


class LazyBatchNorm1d(_Lazy):
    """`BatchNorm1d`, for as many channels as the first input has."""

    becomes = norm.BatchNorm1d


class LazyBatchNorm2d(_Lazy):
    """`BatchNorm2d`, for as many channels as the first input has."""

    becomes = norm.BatchNorm2d


class LazyBatchNorm3d(_Lazy):
    """`BatchNorm3d`, for as many channels as the first input has."""

    becomes = norm.BatchNorm3d


class _LazyInstanceNorm(_Lazy):
    """Unlike those whose sizes are known, they have parameters and statistics unless told otherwise, as in PyTorch."""

    def __init__(self, *args: Any, **options: Any) -> None:
        for n, name in ((2, "affine"), (3, "track_running_stats")):
            if len(args) <= n:
                options.setdefault(name, True)
        super().__init__(*args, **options)


class LazyInstanceNorm1d(_LazyInstanceNorm):
    """`InstanceNorm1d`, for as many channels as the first input has."""

    becomes = norm.InstanceNorm1d
    channels = -2


class LazyInstanceNorm2d(_LazyInstanceNorm):
    """`InstanceNorm2d`, for as many channels as the first input has."""

    becomes = norm.InstanceNorm2d
    channels = -3


class LazyInstanceNorm3d(_LazyInstanceNorm):
    """`InstanceNorm3d`, for as many channels as the first input has."""

    becomes = norm.InstanceNorm3d
    channels = -4
