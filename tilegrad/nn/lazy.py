"""Define layers that take their number of features or channels from their first input."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import unwrap
from typing import Any, ClassVar

from ..autograd.modes import no_grad
from ..errors import ShapeError
from ..functions.creation import empty
from ..functions.signatures import subclass
from ..tensor import Tensor
from . import conv, layers, norm
from .module import Module
from .parameter import Buffer, Parameter


class UninitializedParameter(Parameter):
    """A parameter without a shape yet; `materialize` makes it an ordinary one, the same object."""

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(empty(0, device=device, dtype=dtype), requires_grad)

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Give it a shape; the elements are unspecified."""
        _materialize(self, Parameter, empty(*shape, device=device or self.device, dtype=dtype or self.dtype))

    def __repr__(self) -> str:
        return "<UninitializedParameter>"


class UninitializedBuffer(Buffer):
    """A buffer without a shape yet; `materialize` makes it an ordinary one, the same object."""

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> None:
        super().__init__(empty(0, device=device, dtype=dtype), persistent=persistent)
        self.requires_grad_(requires_grad)

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Give it a shape; the elements are unspecified."""
        _materialize(self, Buffer, empty(*shape, device=device or self.device, dtype=dtype or self.dtype))

    def __repr__(self) -> str:
        return "<UninitializedBuffer>"


def _materialize(one: Tensor, kind: type[Tensor], elements: Tensor) -> None:
    """Give a tensor without a shape its elements, in its dtype and on its device."""
    with no_grad():
        one.data = elements.detach()
    one.__class__ = kind


class _Lazy(Module):
    """A layer that knows all arguments but the first, which it takes from the first input.

    It becomes a layer of the class `becomes`. The axis of the features is `channels`, counted from the end where it is
    negative.
    """

    becomes: ClassVar[Any]
    channels: ClassVar[int] = 1

    def __init_subclass__(cls, becomes: Any = None, channels: int = 1) -> None:
        super().__init_subclass__()
        if becomes is not None:
            cls.becomes, cls.channels = becomes, channels
            # the first parameter after `self`
            name, taken = becomes.__name__, unwrap(becomes.__init__).__code__.co_varnames[1]
            made = f"{'An' if name[0] in 'AEIOU' else 'A'} `{name}` that takes `{taken}` from its first input."
            cls.__doc__ = cls.__doc__ or made

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
        """Become the layer for a number of features; its parameters stay the same objects."""
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


class LazyLinear(_Lazy, becomes=layers.Linear, channels=-1):
    """A `Linear` that takes `in_features` from its first input.

    >>> import tilegrad as tg
    >>> layer = tg.nn.LazyLinear(3)
    >>> layer(tg.ones(2, 5)).shape, layer
    ((2, 3), Linear(in_features=5, out_features=3, bias=True))
    """


class _LazyInstanceNorm(_Lazy):
    """A lazy instance norm; it has parameters and statistics by default, as in PyTorch."""

    def __init__(self, *args: Any, **options: Any) -> None:
        for n, name in ((2, "affine"), (3, "track_running_stats")):
            if len(args) <= n:
                options.setdefault(name, True)
        super().__init__(*args, **options)


def _lazy(becomes: type[Module], channels: int = 1, base: type[_Lazy] = _Lazy) -> type[_Lazy]:
    """Return the lazy variant of a layer."""
    return subclass(f"Lazy{becomes.__name__}", base, {}, becomes=becomes, channels=channels)


LazyConv1d, LazyConvTranspose1d = _lazy(conv.Conv1d, -2), _lazy(conv.ConvTranspose1d, -2)
LazyConv2d, LazyConvTranspose2d = _lazy(conv.Conv2d, -3), _lazy(conv.ConvTranspose2d, -3)
LazyConv3d, LazyConvTranspose3d = _lazy(conv.Conv3d, -4), _lazy(conv.ConvTranspose3d, -4)
LazyBatchNorm1d, LazyInstanceNorm1d = _lazy(norm.BatchNorm1d), _lazy(norm.InstanceNorm1d, -2, _LazyInstanceNorm)
LazyBatchNorm2d, LazyInstanceNorm2d = _lazy(norm.BatchNorm2d), _lazy(norm.InstanceNorm2d, -3, _LazyInstanceNorm)
LazyBatchNorm3d, LazyInstanceNorm3d = _lazy(norm.BatchNorm3d), _lazy(norm.InstanceNorm3d, -4, _LazyInstanceNorm)
