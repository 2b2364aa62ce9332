"""Define Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019)."""

from __future__ import annotations

from typing import Any

from ..functions.arithmetic import maximum
from ..tensor import Tensor
from .decay import decoupled
from .optimizer import DeclaredOptimizer, State
from .settings import Group, Settings


class Adam(DeclaredOptimizer, settings="lr betas eps weight_decay amsgrad * maximize decoupled_weight_decay"):
    """Step by the running mean of the gradients, divided by the root of the running mean of their squares."""

    counters = {"step": 0.0}

    def kept(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))

    def tick(self, state: State, group: Settings) -> tuple[Tensor, Tensor]:
        """Return the step size and the bias correction of the squares for the start at 0."""
        first, second = group["betas"]
        step = state["step"].add_(1).double()  # 1 - 0.999 ** step would lose four digits in float32
        return group["lr"] / (1 - first**step), (1 - second**step).sqrt()

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        first, second = group["betas"]
        size, correction = common
        gradient = decoupled(gradient, parameter, group)
        mean = state["exp_avg"].mul_(first).add_(gradient * (1 - first))
        square = state["exp_avg_sq"].mul_(second).add_(gradient * gradient * (1 - second))
        if group.uses("amsgrad"):
            square = state["max_exp_avg_sq"].copy_(maximum(state["max_exp_avg_sq"], square))
        parameter.sub_(mean / (square.sqrt() / correction + group["eps"]) * size)


class AdamW(
    Adam,
    settings="lr betas eps weight_decay amsgrad * maximize",
    weight_decay=1e-2,
    fixed={"decoupled_weight_decay": True},
):
    """Adam with decoupled weight decay: it shrinks the parameters instead of joining the gradient."""
