"""Activations as modules."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter as Parameter_
from inspect import Signature
from typing import Any, ClassVar

from ..errors import ShapeError
from ..functions.creation import full
from ..tensor import Tensor
from . import functional
from .module import Module
from .parameter import Parameter

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SELU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class Activation(Module):
    """A function of single elements (or of one axis) with its settings, which its printed form shows."""

    function: ClassVar[Callable[..., Tensor]]
    settings: ClassVar[dict[str, Any]] = {}
    """The names of the settings in their order, with the defaults."""
    bare: ClassVar[tuple[str, ...]] = ()
    """Settings that are shown without their names."""
    hidden: ClassVar[tuple[str, ...]] = ()
    __signature__: ClassVar[Signature]
    """What `help` shows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        given = dict(zip(self.settings, args, strict=False)) | kwargs
        unknown = [name for name in given if name not in self.settings]
        if unknown or len(args) > len(self.settings):
            takes = ", ".join(self.settings) or "no arguments"
            raise TypeError(f"{type(self).__name__} takes {takes}, not {', '.join(unknown) or args}")
        for name, default in self.settings.items():
            setattr(self, name, given.get(name, default))

    def __init_subclass__(cls) -> None:
        kind = Parameter_.POSITIONAL_OR_KEYWORD
        if "__init__" not in cls.__dict__:
            cls.__signature__ = Signature([Parameter_(name, kind, default=d) for name, d in cls.settings.items()])

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, **{name: getattr(self, name) for name in self.settings})

    def extra_repr(self) -> str:
        """The settings; that it works in place only if it does."""
        shown = [(name, getattr(self, name)) for name in self.settings if name not in self.hidden]
        return ", ".join(
            f"{value}" if name in self.bare else f"{name}={value!r}"
            for name, value in shown
            if name != "inplace" or value
        )


class ReLU(Activation):
    function = staticmethod(functional.relu)
    settings = {"inplace": False}


class ReLU6(Activation):
    function = staticmethod(functional.relu6)
    settings = {"inplace": False}


class Threshold(Activation):
    """Elements up to the threshold become `value`."""

    function = staticmethod(functional.threshold)
    settings = {"threshold": 0.0, "value": 0.0, "inplace": False}

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold, value, inplace)


class RReLU(Activation):
    """A leaky ReLU whose slopes are drawn anew for each element while training."""

    function = staticmethod(functional.rrelu)
    settings = {"lower": 1 / 8, "upper": 1 / 3, "inplace": False}

    def forward(self, input: Tensor) -> Tensor:
        return functional.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class Sigmoid(Activation):
    function = staticmethod(functional.sigmoid)


class Tanh(Activation):
    function = staticmethod(functional.tanh)


class Tanhshrink(Activation):
    function = staticmethod(functional.tanhshrink)


class SiLU(Activation):
    function = staticmethod(functional.silu)
    settings = {"inplace": False}


class Mish(Activation):
    function = staticmethod(functional.mish)
    settings = {"inplace": False}


class GELU(Activation):
    function = staticmethod(functional.gelu)
    settings = {"approximate": "none"}


class ELU(Activation):
    function = staticmethod(functional.elu)
    settings = {"alpha": 1.0, "inplace": False}


class CELU(Activation):
    function = staticmethod(functional.celu)
    settings = {"alpha": 1.0, "inplace": False}


class SELU(Activation):
    function = staticmethod(functional.selu)
    settings = {"inplace": False}


class LeakyReLU(Activation):
    function = staticmethod(functional.leaky_relu)
    settings = {"negative_slope": 0.01, "inplace": False}


class Softplus(Activation):
    function = staticmethod(functional.softplus)
    settings = {"beta": 1.0, "threshold": 20.0}


class Softsign(Activation):
    function = staticmethod(functional.softsign)


class Softshrink(Activation):
    function = staticmethod(functional.softshrink)
    settings = {"lambd": 0.5}
    bare = ("lambd",)


class Hardshrink(Activation):
    function = staticmethod(functional.hardshrink)
    settings = {"lambd": 0.5}
    bare = ("lambd",)


class LogSigmoid(Activation):
    function = staticmethod(functional.logsigmoid)


class Hardtanh(Activation):
    function = staticmethod(functional.hardtanh)
    settings = {"min_val": -1.0, "max_val": 1.0, "inplace": False}


class Hardsigmoid(Activation):
    function = staticmethod(functional.hardsigmoid)
    settings = {"inplace": False}
    hidden = ("inplace",)  # PyTorch does not show it here


class Hardswish(Activation):
    function = staticmethod(functional.hardswish)
    settings = {"inplace": False}
    hidden = ("inplace",)


class GLU(Activation):
    """The first half of an axis times the sigmoid of the second."""

    function = staticmethod(functional.glu)
    settings = {"dim": -1}


class Softmax(Activation):
    function = staticmethod(functional.softmax)
    settings = {"dim": None}


class Softmin(Activation):
    function = staticmethod(functional.softmin)
    settings = {"dim": None}


class LogSoftmax(Activation):
    function = staticmethod(functional.log_softmax)
    settings = {"dim": None}


class Softmax2d(Activation):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ShapeError(f"Softmax2d: needs (N, C, H, W) or (C, H, W), but the shape is {tuple(input.shape)}")
        return input.softmax(-3)


class PReLU(Module):
    """A leaky ReLU whose slope is trained."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), init, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
