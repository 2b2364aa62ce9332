"""Apply weight decay: as a part of the gradient, or by shrinking the parameters."""

from __future__ import annotations

from ..tensor import Tensor
from .settings import Settings


def with_decay(gradient: Tensor, parameter: Tensor, group: Settings) -> Tensor:
    """Return the gradient with L2 weight decay added."""
    return gradient + parameter * group["weight_decay"] if group.uses("weight_decay") else gradient


def decoupled(gradient: Tensor, parameter: Tensor, group: Settings) -> Tensor:
    """Return the gradient with weight decay added, or shrink the parameter and return the gradient alone."""
    if not group.uses("decoupled_weight_decay"):
        return with_decay(gradient, parameter, group)
    if group.uses("weight_decay"):
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
    return gradient
