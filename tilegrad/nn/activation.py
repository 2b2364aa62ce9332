"""Activations as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ..creation import full
from ..tensor import Tensor
from . import functional
from .module import Module
from .parameter import Parameter


class Activation(Module):
    """A function of single elements (or of one axis) with its settings, which its printed form shows."""

    function: ClassVar[Callable[..., Tensor]]
    settings: ClassVar[dict[str, Any]] = {}
    """The names of the settings in their order, with the defaults."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        kwargs.pop("inplace", None)  # the compiler decides what is reused
        given = dict(zip(self.settings, args, strict=False)) | kwargs
        unknown = [name for name in given if name not in self.settings]
        if unknown or len(args) > len(self.settings):
            takes = ", ".join(self.settings) or "no arguments"
            raise TypeError(f"{type(self).__name__} takes {takes}, not {', '.join(unknown) or args}")
        for name, default in self.settings.items():
            setattr(self, name, given.get(name, default))

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, **{name: getattr(self, name) for name in self.settings})

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.settings)


class ReLU(Activation):
    function = staticmethod(functional.relu)

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu(input)


class ReLU6(Activation):
    function = staticmethod(functional.relu6)


class Sigmoid(Activation):
    function = staticmethod(functional.sigmoid)


class Tanh(Activation):
    function = staticmethod(functional.tanh)


class Tanhshrink(Activation):
    function = staticmethod(functional.tanhshrink)


class SiLU(Activation):
    function = staticmethod(functional.silu)


class Mish(Activation):
    function = staticmethod(functional.mish)


class GELU(Activation):
    function = staticmethod(functional.gelu)
    settings = {"approximate": "none"}


class ELU(Activation):
    function = staticmethod(functional.elu)
    settings = {"alpha": 1.0}


class CELU(Activation):
    function = staticmethod(functional.celu)
    settings = {"alpha": 1.0}


class SELU(Activation):
    function = staticmethod(functional.selu)


class LeakyReLU(Activation):
    function = staticmethod(functional.leaky_relu)
    settings = {"negative_slope": 0.01}


class Softplus(Activation):
    function = staticmethod(functional.softplus)
    settings = {"beta": 1.0, "threshold": 20.0}


class Softsign(Activation):
    function = staticmethod(functional.softsign)


class LogSigmoid(Activation):
    function = staticmethod(functional.logsigmoid)


class Hardtanh(Activation):
    function = staticmethod(functional.hardtanh)
    settings = {"min_val": -1.0, "max_val": 1.0}


class Hardsigmoid(Activation):
    function = staticmethod(functional.hardsigmoid)


class Hardswish(Activation):
    function = staticmethod(functional.hardswish)


class Softmax(Activation):
    function = staticmethod(functional.softmax)
    settings = {"dim": None}


class Softmin(Activation):
    function = staticmethod(functional.softmin)
    settings = {"dim": None}


class LogSoftmax(Activation):
    function = staticmethod(functional.log_softmax)
    settings = {"dim": None}


class PReLU(Module):
    """A leaky ReLU whose slope is trained."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), init, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
