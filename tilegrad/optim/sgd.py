"""Define stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from ..functions.arithmetic import where
from ..tensor import Tensor
from .decay import with_decay
from .optimizer import DeclaredOptimizer, State
from .settings import Group, Settings


class SGD(DeclaredOptimizer, settings="lr momentum dampening weight_decay nesterov * maximize", dampening=0.0):
    """Gradient descent with momentum, Nesterov momentum and weight decay, as in PyTorch."""

    def check(self, group: Group) -> None:
        super().check(group)
        if group["nesterov"] and (not group["momentum"] or group["dampening"]):
            raise ArgumentError("SGD: nesterov=True needs a momentum and no dampening")

    def kept(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def counted(self, group: Group) -> dict[str, float]:
        # the first step takes the whole gradient: only with dampening does it differ from those after it
        return {"step": 0.0} if group["momentum"] and group["dampening"] else {}

    def tick(self, state: State, group: Settings) -> Tensor:
        return state["step"].add_(1) == 1

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        gradient = with_decay(gradient, parameter, group)
        if group.uses("momentum"):
            momentum, kept = group["momentum"], state["momentum_buffer"]
            if common is None:
                moved = kept * momentum + gradient
            else:
                moved = where(common, gradient, kept * momentum + gradient * (1 - group["dampening"]))
            kept.copy_(moved)
            gradient = gradient + moved * momentum if group.uses("nesterov") else moved
        parameter.sub_(gradient * group["lr"])
