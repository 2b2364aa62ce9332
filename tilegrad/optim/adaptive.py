"""Define Adagrad (Duchi et al., 2011), Adadelta (Zeiler, 2012) and RMSprop (Hinton, 2012): adaptive step sizes per
element.
"""

from __future__ import annotations

from typing import Any

from ..functions.creation import full_like
from ..tensor import Tensor
from .decay import with_decay
from .optimizer import DeclaredOptimizer, State
from .settings import Group, Settings


class Adagrad(
    DeclaredOptimizer,
    settings="lr lr_decay weight_decay initial_accumulator_value eps * maximize",
    lr=1e-2,
    lr_decay=0.0,
    initial_accumulator_value=0.0,
    eps=1e-10,
):
    """Step by the gradient, divided by the root of the sum of all its squares."""

    state_names = ("sum",)
    counters = {"step": 0.0}

    def first_state(self, parameter: Tensor, group: Group) -> State:
        return {"sum": full_like(parameter.detach(), group["initial_accumulator_value"])}

    def tick(self, state: State, group: Settings) -> Tensor:
        """Return the learning rate, which decays with the number of steps."""
        before = state["step"].add_(1).double() - 1
        return group["lr"] / (1 + before * group["lr_decay"])  # type: ignore[no-any-return]

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        gradient = with_decay(gradient, parameter, group)
        total = state["sum"].add_(gradient * gradient)
        parameter.sub_(gradient / (total.sqrt() + group["eps"]) * common)


class Adadelta(DeclaredOptimizer, settings="lr rho eps weight_decay * maximize", lr=1.0, rho=0.9, eps=1e-6):
    """Step by the gradient, scaled by the root mean square of the steps over that of the gradients."""

    state_names = ("square_avg", "acc_delta")
    counters = {"step": 0.0}

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        rho, eps = group["rho"], group["eps"]
        gradient = with_decay(gradient, parameter, group)
        square = state["square_avg"].mul_(rho).add_(gradient * gradient * (1 - rho))
        change = (state["acc_delta"] + eps).sqrt() / (square + eps).sqrt() * gradient
        state["acc_delta"].mul_(rho).add_(change * change * (1 - rho))
        parameter.sub_(change * group["lr"])


class RMSprop(
    DeclaredOptimizer,
    settings="lr alpha eps weight_decay momentum centered * maximize",
    lr=1e-2,
    alpha=0.99,
    centered=False,
):
    """Step by the gradient, divided by the root of the running mean of its squares; `centered`: by its standard
    deviation.
    """

    counters = {"step": 0.0}

    def kept(self, group: Group) -> tuple[str, ...]:
        moving = ("momentum_buffer",) if group["momentum"] else ()
        return ("square_avg", *moving, *(("grad_avg",) if group["centered"] else ()))

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        alpha = group["alpha"]
        gradient = with_decay(gradient, parameter, group)
        square = state["square_avg"].mul_(alpha).add_(gradient * gradient * (1 - alpha))
        if group.uses("centered"):
            mean = state["grad_avg"]
            mean.add_((gradient - mean) * (1 - alpha))
            square = square - mean * mean
        change = gradient / (square.sqrt() + group["eps"])
        if group.uses("momentum"):
            change = state["momentum_buffer"].mul_(group["momentum"]).add_(change)
        parameter.sub_(change * group["lr"])
