"""Weight decay: as a part of the gradient, or as a shrinking of the parameters."""

from __future__ import annotations

from ..tensor import Tensor
from .settings import Settings


def with_decay(gradient: Tensor, parameter: Tensor, group: Settings) -> Tensor:
    """The gradient of the loss with a penalty for large parameters."""
    return gradient + parameter * group["weight_decay"] if group.uses("weight_decay") else gradient


def decoupled(gradient: Tensor, parameter: Tensor, group: Settings) -> Tensor:
    """The gradient as `with_decay` gives it; or the gradient alone, and the parameter is shrunk on its own."""
    if not group.uses("decoupled_weight_decay"):
        return with_decay(gradient, parameter, group)
    if group.uses("weight_decay"):
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
    return gradient
