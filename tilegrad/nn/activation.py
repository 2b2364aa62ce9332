"""Activations as modules."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..functions.creation import full
from ..functions.declared import publish_classes
from ..tensor import Tensor
from . import functional
from .module import Module
from .parameter import Parameter
from .wrapped import FunctionModule


class ReLU(FunctionModule, function=functional.relu):
    """Compute max(x, 0)."""


class ReLU6(FunctionModule, function=functional.relu6):
    """Compute min(max(x, 0), 6)."""


class Threshold(FunctionModule, function=functional.threshold):
    """Replace elements that are at most `threshold` by `value`."""


class RReLU(FunctionModule, function=functional.rrelu):
    """Compute a leaky ReLU whose slopes are drawn for each element while training."""


class Sigmoid(FunctionModule, function=functional.sigmoid):
    """Compute 1 / (1 + exp(-x))."""


class Tanh(FunctionModule, function=functional.tanh):
    """Compute the hyperbolic tangent."""


class Tanhshrink(FunctionModule, function=functional.tanhshrink):
    """Compute x - tanh(x)."""


class SiLU(FunctionModule, function=functional.silu):
    """Compute x * sigmoid(x)."""


class Mish(FunctionModule, function=functional.mish):
    """Compute x * tanh(softplus(x))."""


class GELU(FunctionModule, function=functional.gelu):
    """Compute x times the normal distribution function of x, or its approximation 'tanh'."""


class ELU(FunctionModule, function=functional.elu):
    """Compute x where it is positive, alpha * (exp(x) - 1) elsewhere."""


class CELU(FunctionModule, function=functional.celu):
    """Compute x where it is positive, alpha * (exp(x / alpha) - 1) elsewhere."""


class SELU(FunctionModule, function=functional.selu):
    """Compute a scaled ELU that keeps mean 0 and variance 1."""


class LeakyReLU(FunctionModule, function=functional.leaky_relu):
    """Compute x where it is positive, negative_slope * x elsewhere."""


class Softplus(FunctionModule, function=functional.softplus):
    """Compute log(1 + exp(beta * x)) / beta; x itself where beta * x exceeds `threshold`."""


class Softsign(FunctionModule, function=functional.softsign):
    """Compute x / (1 + |x|)."""


class Softshrink(FunctionModule, function=functional.softshrink):
    """Move elements by `lambd` towards 0; those nearer than that become 0."""

    unnamed = ("lambd",)


class Hardshrink(FunctionModule, function=functional.hardshrink):
    """Replace elements between -lambd and lambd by 0."""

    unnamed = ("lambd",)


class LogSigmoid(FunctionModule, function=functional.logsigmoid):
    """Compute log(sigmoid(x)) without overflow."""


class Hardtanh(FunctionModule, function=functional.hardtanh):
    """Clamp to [min_val, max_val]."""


class Hardsigmoid(FunctionModule, function=functional.hardsigmoid):
    """Compute min(max(x + 3, 0), 6) / 6."""

    shown = ()  # as in PyTorch


class Hardswish(FunctionModule, function=functional.hardswish):
    """Compute x * hardsigmoid(x)."""

    shown = ()  # as in PyTorch


class GLU(FunctionModule, function=functional.glu):
    """Multiply the first half of an axis by the sigmoid of the second half."""


class Softmax(FunctionModule, function=functional.softmax, without=("dtype",)):
    """Compute exp(x) / sum(exp(x)) along an axis."""


class Softmin(FunctionModule, function=functional.softmin, without=("dtype",)):
    """Compute the softmax of -x along an axis."""


class LogSoftmax(FunctionModule, function=functional.log_softmax, without=("dtype",)):
    """Compute the logarithm of the softmax along an axis, without overflow."""


class Softmax2d(Module):
    """Compute the softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ShapeError(f"Softmax2d: needs (N, C, H, W) or (C, H, W), but the shape is {tuple(input.shape)}")
        return input.softmax(-3)


class PReLU(Module):
    """Compute a leaky ReLU whose slopes are trained, one for all channels or one per channel."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), init, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


publish_classes(globals())
