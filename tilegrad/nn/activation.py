"""Activations as modules."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..functions.creation import full
from ..tensor import Tensor
from . import functional
from .module import Module
from .parameter import Parameter
from .wrapped import layer

ReLU = layer("ReLU", functional.relu)
ReLU6 = layer("ReLU6", functional.relu6)
Threshold = layer("Threshold", functional.threshold)
RReLU = layer("RReLU", functional.rrelu)
Sigmoid = layer("Sigmoid", functional.sigmoid)
Tanh = layer("Tanh", functional.tanh)
Tanhshrink = layer("Tanhshrink", functional.tanhshrink)
SiLU = layer("SiLU", functional.silu)
Mish = layer("Mish", functional.mish)
GELU = layer("GELU", functional.gelu)
ELU = layer("ELU", functional.elu)
CELU = layer("CELU", functional.celu)
SELU = layer("SELU", functional.selu)
LeakyReLU = layer("LeakyReLU", functional.leaky_relu)
Softplus = layer("Softplus", functional.softplus)
Softsign = layer("Softsign", functional.softsign)
Softshrink = layer("Softshrink", functional.softshrink, unnamed=("lambd",))
Hardshrink = layer("Hardshrink", functional.hardshrink, unnamed=("lambd",))
LogSigmoid = layer("LogSigmoid", functional.logsigmoid)
Hardtanh = layer("Hardtanh", functional.hardtanh)
Hardsigmoid = layer("Hardsigmoid", functional.hardsigmoid, shown=())  # nothing is shown, as in PyTorch
Hardswish = layer("Hardswish", functional.hardswish, shown=())  # nothing is shown, as in PyTorch
GLU = layer("GLU", functional.glu)
Softmax = layer("Softmax", functional.softmax, without=("dtype",))
Softmin = layer("Softmin", functional.softmin, without=("dtype",))
LogSoftmax = layer("LogSoftmax", functional.log_softmax, without=("dtype",))


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
