"""Define normalisations that return their statistics too: `torch.native_layer_norm` and relatives."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ShapeError
from ..ir.dtype import bfloat16, float16
from ..lazy.kept_formats import keeping_format
from ..lazy.layout import row_by_row
from ..ops.broadcasting import shown
from .declared import publish

if TYPE_CHECKING:
    from ..tensor import Tensor


class Normalized(NamedTuple):
    """A result with the mean and the reciprocal standard deviation of each group of elements."""

    result: Tensor
    mean: Tensor
    rstd: Tensor


@row_by_row
def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Normalized:
    """Normalise over the last dimensions, which have `normalized_shape`.

    >>> import tilegrad as tg
    >>> native_layer_norm(tg.tensor([[1.0, 3.0]]), [2], None, None, 0.0)[1]
    tensor([[2.]])
    """
    shape = tuple(normalized_shape)
    if not shape or tuple(input.shape[input.dim() - len(shape) :]) != shape:
        raise ShapeError(f"native_layer_norm: {shown(input.shape)} does not end in {shown(shape)}")
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None and tuple(given.shape) != shape:
            raise ShapeError(f"native_layer_norm: {name} has the shape {shown(given.shape)}, not {shown(shape)}")
    made = _normalized(input, tuple(range(-len(shape), 0)), weight, bias, eps)
    return Normalized(made.result, made.mean.detach(), made.rstd.detach())


def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> Normalized:
    """Normalise the channels of each of `group` groups together."""
    made = _normalized(input.reshape(N, group, C // group * HxW), (-1,), None, None, eps)
    result = _scaled(made.result.reshape(input.shape), 1, weight, bias)
    return Normalized(result, made.mean.reshape(N, group), made.rstd.reshape(N, group))


@keeping_format(0)
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Normalized:
    """Normalise each channel: by its own statistics while training, which update the running ones."""
    if not training:
        if running_mean is None or running_var is None:
            raise ShapeError("native_batch_norm: without training it needs running_mean and running_var")
        along = (-1, *[1] * (input.dim() - 2))
        result = (input - running_mean.reshape(along)) * (running_var + eps).rsqrt().reshape(along)
        nothing = input.new_zeros(0)
        return Normalized(_scaled(result, 1, weight, bias), nothing, nothing)
    made = _normalized(input, (0, *range(2, input.dim())), None, None, eps)
    mean, rstd = made.mean.detach().reshape(-1), made.rstd.detach().reshape(-1)
    count = prod(input.shape) // input.shape[1]
    if running_mean is not None:
        running_mean.copy_(running_mean * (1 - momentum) + mean * momentum)
    if running_var is not None:
        variance = (rstd**-2 - eps) * (count / (count - 1))
        running_var.copy_(running_var * (1 - momentum) + variance * momentum)
    return Normalized(_scaled(made.result, 1, weight, bias), mean, rstd)


def _normalized(x: Tensor, axes: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: float) -> Normalized:
    """Normalise along axes; 16-bit dtypes compute in float32, as powers of the reciprocal root would overflow."""
    wide = x.float() if x.dtype in (float16, bfloat16) else x
    mean = wide.mean(axes, keepdim=True)
    rstd = (wide.var(axes, correction=0, keepdim=True) + eps).rsqrt()
    result = (wide - mean) * rstd
    mean, rstd, result = (part.to(x.dtype) for part in (mean, rstd, result))
    if weight is not None:
        result = result * weight
    return Normalized(result if bias is None else result + bias, mean, rstd)


def _scaled(x: Tensor, axis: int, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Apply weights and biases of channels."""
    along = (-1, *[1] * (x.dim() - axis - 1))
    if weight is not None:
        x = x * weight.reshape(along)
    return x if bias is None else x + bias.reshape(along)


publish(globals())
