"""Fold batch norms in `eval` mode into the weights of the layers before them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ...errors import ArgumentError, ShapeError
from ...functions.declared import publish
from ...functions.promotion import kind_of
from ...tensor import Tensor
from ..module import Module
from ..parameter import Parameter


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Return a convolution that computes `bn(conv(x))`, both in `eval` mode; `transpose`: a transposed one.

    >>> import tilegrad as tg
    >>> conv, norm = tg.nn.Conv2d(2, 3, 3).eval(), tg.nn.BatchNorm2d(3).eval()
    >>> x = tg.ones(1, 2, 4, 4)
    >>> tg.allclose(fuse_conv_bn_eval(conv, norm)(x), norm(conv(x)), atol=1e-6)
    True
    """
    _check("fuse_conv_bn_eval", conv, bn)
    fused = deepcopy(conv)
    statistics = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    fused.weight, fused.bias = fuse_conv_bn_weights(conv.weight, conv.bias, *statistics, transpose)
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Return the weight and bias of a convolution with the following batch norm folded in."""
    axis = 1 if transpose else 0
    return _fused("fuse_conv_bn_weights", conv_w, conv_b, (bn_rm, bn_rv, bn_eps, bn_w, bn_b), axis)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Return a linear layer that computes `bn(linear(x))`, both in `eval` mode."""
    _check("fuse_linear_bn_eval", linear, bn)
    if bn.num_features not in (1, linear.out_features):
        raise ShapeError(
            f"fuse_linear_bn_eval: a batch norm of {bn.num_features} features stands behind {linear.out_features}"
        )
    fused = deepcopy(linear)
    statistics = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    fused.weight, fused.bias = fuse_linear_bn_weights(linear.weight, linear.bias, *statistics)
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Return the weight and bias of a linear layer with the following batch norm folded in."""
    return _fused("fuse_linear_bn_weights", linear_w, linear_b, (bn_rm, bn_rv, bn_eps, bn_w, bn_b), 0)


def _fused(op: str, weight: Tensor, bias: Tensor | None, norm: Any, axis: int) -> tuple[Parameter, Parameter]:
    mean, variance, eps, scale, shift = norm
    if mean.numel() not in (1, weight.shape[axis]):
        raise ShapeError(f"{op}: {mean.numel()} means for {weight.shape[axis]} outputs of {tuple(weight.shape)}")
    factor = (variance.detach() + eps).rsqrt() * (1.0 if scale is None else scale.detach())
    along = [-1 if n == axis else 1 for n in range(weight.dim())]
    moved = (0.0 if bias is None else bias.detach()) - mean.detach()
    new_bias = moved * factor + (0.0 if shift is None else shift.detach())
    new_weight = (weight.detach() * factor.reshape(*along)).to(weight.dtype)
    trained = bias is None or bias.requires_grad
    return Parameter(new_weight, weight.requires_grad), Parameter(new_bias.to(weight.dtype), trained)


def _check(op: str, layer: Module, norm: Any) -> None:
    for given in (layer, norm):
        if not isinstance(given, Module):
            raise ArgumentError(f"{op}: takes a layer and a batch norm, not {kind_of(given)}")
    if layer.training or norm.training:
        raise ArgumentError(f"{op}: a batch norm is a constant factor only in eval mode: call eval() on both before")
    if norm.running_mean is None or norm.running_var is None:
        raise ArgumentError(f"{op}: the batch norm has no running statistics (track_running_stats=False)")


publish(globals())
