"""Stochastic gradient descent."""

from __future__ import annotations

from ..arithmetic import where
from ..errors import ArgumentError
from ..tensor import Tensor
from .optimizer import Group, Optimizer, Params, step_count


class SGD(Optimizer):
    """Steps against the gradient, with momentum, Nesterov's momentum and weight decay as in PyTorch."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
            },
        )

    def check(self, group: Group) -> None:
        super().check(group)
        if group["nesterov"] and (not group["momentum"] or group["dampening"]):
            raise ArgumentError("SGD: nesterov=True needs a momentum and no dampening")

    def kept(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def first_state(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        state = super().first_state(parameter, group)
        # the first step takes the whole gradient: only with dampening does it differ from those after it
        return state | {"step": step_count(parameter)} if group["momentum"] and group["dampening"] else state

    def update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], group: Group, lr: Tensor) -> None:
        momentum, dampening = group["momentum"], group["dampening"]
        if group["weight_decay"]:
            gradient = gradient + parameter * group["weight_decay"]
        if momentum:
            kept = state["momentum_buffer"]
            moved = kept * momentum + gradient * (1 - dampening)
            if "step" in state:
                moved = where(state["step"] == 0, gradient, moved)
                state["step"].add_(1)
            kept.copy_(moved)
            gradient = gradient + moved * momentum if group["nesterov"] else moved
        parameter.sub_(gradient * lr)
