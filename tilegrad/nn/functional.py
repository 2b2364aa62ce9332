"""Layers, activations and losses as functions, under PyTorch's names. Each is an expression of tensors:
what one of them costs is for the compiler to decide."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt
from typing import Any

from ..arithmetic import where
from ..creation import arange
from ..errors import ArgumentError, ShapeError
from ..promotion import value_of
from ..random import dropout as random_dropout
from ..selecting import embedding as rows_of
from ..selecting import one_hot
from ..tensor import Tensor
from .losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "tanh",
    "tanhshrink",
]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`, over the last axis of the input."""
    x = value_of(input, "linear")
    if weight.dim() != 2:
        raise ShapeError(f"linear: the weight needs two axes (out, in), but its shape is {tuple(weight.shape)}")
    if not x.shape or input.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: an input of the shape {tuple(input.shape)} does not end in the {weight.shape[1]} features that a "
            f"weight of the shape {tuple(weight.shape)} takes"
        )
    product = input @ weight.t()
    return product if bias is None else product + bias


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """The rows of `weight` with the numbers `input`; no gradient goes to the row `padding_idx`."""
    if padding_idx is not None:
        rows = arange(weight.shape[0], device=weight.device).unsqueeze(-1)
        weight = where(rows == padding_idx % weight.shape[0], weight.detach(), weight)
    return rows_of(input, weight)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Brings the last axes to mean 0 and variance 1, then scales and shifts them."""
    axes = tuple(range(-len(normalized_shape), 0))
    if tuple(input.shape[len(input.shape) + axes[0] :]) != tuple(normalized_shape):
        raise ShapeError(
            f"layer_norm: an input of the shape {tuple(input.shape)} does not end in the normalized_shape "
            f"{tuple(normalized_shape)}"
        )
    centred = input - input.mean(axes, keepdim=True)
    result = centred * ((centred * centred).mean(axes, keepdim=True) + eps).rsqrt()
    if weight is not None:
        result = result * weight
    return result if bias is None else result + bias


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Sets elements to 0 with probability `p`, and scales the others by 1 / (1 - p)."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout: p={p} is no probability: give a number from 0 to 1")
    if not training or p == 0:
        return input
    kept = random_dropout(input, p)
    return input.copy_(kept) if inplace else kept


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Vectors along `dim` at length 1."""
    return input / input.norm(p, dim, keepdim=True).clamp(min=eps)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    return input.relu_() if inplace else input.relu()


def relu6(input: Tensor) -> Tensor:
    return input.clamp(0, 6)


def sigmoid(input: Tensor) -> Tensor:
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    return input.tanh()


def tanhshrink(input: Tensor) -> Tensor:
    return input - input.tanh()


def silu(input: Tensor) -> Tensor:
    return input * input.sigmoid()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """`input` times the probability that a normal value is below it; "tanh" approximates that."""
    match approximate:
        case "none":
            return input * 0.5 * (1 + (input * sqrt(0.5)).erf())
        case "tanh":
            return input * 0.5 * (1 + ((input + input * input * input * 0.044715) * sqrt(2 / pi)).tanh())
        case _:
            raise ArgumentError(f"gelu: approximate is {approximate!r}: it must be 'none' or 'tanh'")


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    # the branch that is not taken must not overflow: its gradient would be 0 times infinity
    return where(input > 0, input, alpha * input.clamp(max=0).expm1())


def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    return where(input > 0, input, alpha * (input.clamp(max=0) / alpha).expm1())


def selu(input: Tensor) -> Tensor:
    """ELU with the constants at which layers keep mean 0 and variance 1 (Klambauer et al., 2017)."""
    return 1.0507009873554804934193349852946 * elu(input, 1.6732632423543772848170429916717)


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    return where(input > 0, input, input * negative_slope)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """A leaky ReLU with a trained slope: one for all, or one for each channel (axis 1)."""
    if weight.numel() > 1:
        weight = weight.reshape(-1, *(1,) * (input.dim() - 2))
    return where(input > 0, input, input * weight)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    scaled = input * beta
    return where(scaled > threshold, input, scaled.clamp(max=threshold).exp().log1p() / beta)


def softsign(input: Tensor) -> Tensor:
    return input / (1 + input.abs())


def mish(input: Tensor) -> Tensor:
    return input * softplus(input).tanh()


def logsigmoid(input: Tensor) -> Tensor:
    return input.clamp(max=0) - (-input.abs()).exp().log1p()


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return input.clamp(min_val, max_val)


def hardsigmoid(input: Tensor) -> Tensor:
    return (input + 3).clamp(0, 6) / 6


def hardswish(input: Tensor) -> Tensor:
    return input * hardsigmoid(input)


def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return (input if dtype is None else input.to(dtype)).softmax(dim)


def softmin(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return softmax(-input, dim, dtype)


def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return (input if dtype is None else input.to(dtype)).log_softmax(dim)
