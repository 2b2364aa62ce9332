"""Normalisation, softmax, dropout."""

from __future__ import annotations

from math import prod
from typing import Any

from ... import functional as tg
from ...ir.dtype import bool_, float32
from ...nn import functional as F
from ...tensor import Tensor
from ..rules import Function
from ..values import Number, Statistic

LAST_COERCED = 12
"""The last version of the operators in which a softmax goes over all axes from the given one on."""


def batch_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Statistic,
    variance: Statistic,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    training: bool = False,
) -> Any:
    """Normalise each channel; in training mode the module's statistics are updated."""
    if not training_mode:
        return F.batch_norm(x, mean, variance, scale, b, training, 1 - momentum, epsilon)
    axes = (0, *range(2, x.dim()))
    now, spread = x.mean(axes), x.var(axes, correction=0)
    y = F.batch_norm(x, None, None, scale, b, True, 0.0, epsilon)
    return y, mean * momentum + now * (1 - momentum), variance * momentum + spread * (1 - momentum)


def instance_normalization(x: Tensor, scale: Tensor, b: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return F.instance_norm(x, weight=scale, bias=b, eps=epsilon)


def group_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    version: int = 21,
) -> Tensor:
    """Normalise groups of channels; before version 21 there is a scale for each group."""
    if version < 21:
        each = x.shape[1] // num_groups
        scale, b = (v.repeat_interleave(each) for v in (scale, b))
    return F.group_norm(x, num_groups, scale, b, epsilon)


def layer_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> Any:
    """Normalise the last axes; the mean and the inverse deviation are results, too."""
    axis = axis % x.dim()
    if outputs == 1:
        return F.layer_norm(x, list(x.shape[axis:]), scale.expand(x.shape[axis:]), b, epsilon)
    axes = tuple(range(axis, x.dim()))
    wide = x.to(float32) if stash_type == 1 else x
    mean = wide.mean(axes, keepdim=True)
    inverse = tg.rsqrt(((wide - mean) ** 2).mean(axes, keepdim=True) + epsilon)
    y = ((wide - mean) * inverse).to(x.dtype) * scale
    return (y if b is None else y + b), mean, inverse


def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """Divide by the root of the mean square of the last axes."""
    axes = tuple(range(axis % x.dim(), x.dim()))
    wide = x.to(float32) if stash_type == 1 else x
    return (wide * tg.rsqrt((wide * wide).mean(axes, keepdim=True) + epsilon)).to(x.dtype) * scale


def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    size = tg.abs(x).sum(axis, keepdim=True) if p == 1 else tg.sqrt((x * x).sum(axis, keepdim=True))
    return tg.where(size == 0, tg.zeros_like(x), x / tg.where(size == 0, tg.ones_like(size), size))


def mean_variance_normalization(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    over = tuple(axes or (0, 2, 3))
    middle = x - x.mean(over, keepdim=True)
    return middle / (tg.sqrt((middle * middle).mean(over, keepdim=True)) + 1e-9)


def along(function: Any) -> Function:
    """Return the rule of a softmax: since version 13 along one axis, before over all axes from the given one on."""

    def rule(x: Tensor, *, axis: int | None = None, version: int = 13) -> Tensor:
        if version > LAST_COERCED:
            return function(x, -1 if axis is None else axis)  # type: ignore[no-any-return]
        place = (1 if axis is None else axis) % max(x.dim(), 1)
        return function(x.reshape(prod(x.shape[:place]), -1), 1).reshape(x.shape)  # type: ignore[no-any-return]

    return rule


def _hardmax(x: Tensor, axis: int) -> Tensor:
    place = tg.argmax(x, axis, True)
    axis = axis % x.dim()
    marks = tg.arange(x.shape[axis], device=x.device).reshape([-1] + [1] * (x.dim() - 1 - axis))
    return (place == marks).to(x.dtype)


def dropout(
    x: Tensor,
    ratio: Number | None = None,
    training_mode: Number | None = None,
    *,
    seed: int | None = None,
    training: bool = False,
    outputs: int = 1,
) -> Any:
    """Zero random elements in training mode, and scale the others; the mask is a result, too."""
    share = 0.5 if ratio is None else float(ratio)
    active = training if training_mode is None else bool(training_mode) or training
    if not active or share == 0:
        return (x, tg.ones_like(x, dtype=bool_)) if outputs > 1 else x
    if outputs == 1:
        return F.dropout(x, share, True)
    kept = tg.rand_like(x.to(float32)) >= share
    return tg.where(kept, x / (1 - share), tg.zeros_like(x)), kept


RULES: dict[str, Function] = {
    "BatchNormalization": batch_normalization,
    "Dropout": dropout,
    "GroupNormalization": group_normalization,
    "Hardmax": along(_hardmax),
    "InstanceNormalization": instance_normalization,
    "LayerNormalization": layer_normalization,
    "LogSoftmax": along(tg.log_softmax),
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
    "RMSNormalization": rms_normalization,
    "Softmax": along(tg.softmax),
}
