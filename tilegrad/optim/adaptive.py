"""Define Adagrad (Duchi et al., 2011), Adadelta (Zeiler, 2012) and RMSprop (Hinton, 2012): adaptive step sizes per
element.
"""

from __future__ import annotations

from typing import Any, Unpack

from ..functions.creation import full_like
from ..functions.declared import publish_classes
from ..tensor import Tensor
from .decay import with_decay
from .optimizer import Optimizer, Params, State
from .settings import Group, Hints, Settings


class Adagrad(Optimizer):
    """Step by the gradient, divided by the root of the sum of all its squares."""

    state_names = ("sum",)
    counters = {"step": 0.0}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
            "maximize": maximize,
        }
        super().__init__(params, defaults, hints)

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


class Adadelta(Optimizer):
    """Step by the gradient, scaled by the root mean square of the steps over that of the gradients."""

    state_names = ("square_avg", "acc_delta")
    counters = {"step": 0.0}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        defaults = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults, hints)

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        rho, eps = group["rho"], group["eps"]
        gradient = with_decay(gradient, parameter, group)
        square = state["square_avg"].mul_(rho).add_(gradient * gradient * (1 - rho))
        change = (state["acc_delta"] + eps).sqrt() / (square + eps).sqrt() * gradient
        state["acc_delta"].mul_(rho).add_(change * change * (1 - rho))
        parameter.sub_(change * group["lr"])


class RMSprop(Optimizer):
    """Step by the gradient, divided by the root of the running mean of its squares; `centered`: by its standard
    deviation.
    """

    counters = {"step": 0.0}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        defaults = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
        }
        super().__init__(params, defaults, hints)

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


publish_classes(globals())
