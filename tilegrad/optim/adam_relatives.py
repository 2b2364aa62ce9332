"""Define variants of Adam: Adamax (Kingma and Ba, 2015), NAdam (Dozat, 2016), RAdam (Liu et al., 2020), Lion (Chen et
al., 2023).
"""

from __future__ import annotations

from typing import Any

from ..functions.arithmetic import maximum, where
from ..tensor import Tensor
from .decay import decoupled, with_decay
from .optimizer import DeclaredOptimizer, State
from .settings import Settings


class Adamax(DeclaredOptimizer, settings="lr betas eps weight_decay * maximize", lr=2e-3):
    """Adam with the running maximum of gradient magnitudes in place of the mean of squares."""

    state_names = ("exp_avg", "exp_inf")
    counters = {"step": 0.0}

    def tick(self, state: State, group: Settings) -> Tensor:
        step = state["step"].add_(1).double()
        return group["lr"] / (1 - group["betas"][0] ** step)  # type: ignore[no-any-return]

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        first, second = group["betas"]
        gradient = with_decay(gradient, parameter, group)
        mean = state["exp_avg"].mul_(first).add_(gradient * (1 - first))
        greatest = state["exp_inf"].copy_(maximum(state["exp_inf"] * second, gradient.abs() + group["eps"]))
        parameter.sub_(mean / greatest * common)


class NAdam(
    DeclaredOptimizer,
    settings="lr betas eps weight_decay momentum_decay decoupled_weight_decay * maximize",
    lr=2e-3,
    momentum_decay=4e-3,
):
    """Adam with Nesterov momentum, which grows with the steps."""

    state_names = ("exp_avg", "exp_avg_sq")
    counters = {"step": 0.0, "mu_product": 1.0}

    def tick(self, state: State, group: Settings) -> tuple[Tensor, Tensor, Tensor]:
        """Return the coefficients of gradient and mean, and the bias correction of the squares."""
        lr, (first, second), decay = group["lr"], group["betas"], group["momentum_decay"]
        step = state["step"].add_(1).double()
        now = first * (1 - 0.5 * 0.96 ** (step * decay))
        following = first * (1 - 0.5 * 0.96 ** ((step + 1) * decay))
        product = state["mu_product"].mul_(now).double()
        return lr * (1 - now) / (1 - product), lr * following / (1 - product * following), 1 - second**step

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        first, second = group["betas"]
        along_gradient, along_mean, correction = common
        gradient = decoupled(gradient, parameter, group)
        mean = state["exp_avg"].mul_(first).add_(gradient * (1 - first))
        square = state["exp_avg_sq"].mul_(second).add_(gradient * gradient * (1 - second))
        parameter.sub_((gradient * along_gradient + mean * along_mean) / ((square / correction).sqrt() + group["eps"]))


class RAdam(DeclaredOptimizer, settings="lr betas eps weight_decay decoupled_weight_decay * maximize"):
    """Adam that uses the mean of squares only once its variance is small enough."""

    state_names = ("exp_avg", "exp_avg_sq")
    counters = {"step": 0.0}

    def tick(self, state: State, group: Settings) -> tuple[Tensor, Tensor, Tensor]:
        """Return the step size, whether the squares are used, and their rectification."""
        first, second = group["betas"]
        step = state["step"].add_(1).double()
        power = second**step
        longest = 2 / (1 - second) - 1
        length = longest - 2 * step * power / (1 - power)
        trusted = length > 5.0
        known = where(trusted, length, 6.0)
        share = (known - 4) * (known - 2) * longest / ((longest - 4) * (longest - 2) * known)
        # a gradient's mean over few steps may be so short that no length is ever trusted: 0 is as good as any number
        rectified = (share.clamp(min=0) * (1 - power)).sqrt()
        return group["lr"] / (1 - first**step), trusted, rectified

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        first, second = group["betas"]
        size, trusted, rectified = common
        gradient = decoupled(gradient, parameter, group)
        mean = state["exp_avg"].mul_(first).add_(gradient * (1 - first))
        square = state["exp_avg_sq"].mul_(second).add_(gradient * gradient * (1 - second))
        parameter.sub_(mean * size * where(trusted, rectified / (square.sqrt() + group["eps"]), 1.0))


class Lion(
    DeclaredOptimizer,
    settings="lr betas weight_decay * maximize",
    lr=1e-4,
    betas=(0.9, 0.99),
    fixed={"decoupled_weight_decay": True},
):
    """Step by the sign of a running mean of the gradients."""

    state_names = ("exp_avg",)

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        first, second = group["betas"]
        gradient = decoupled(gradient, parameter, group)
        mean = state["exp_avg"]
        direction = (mean * first + gradient * (1 - first)).sign()
        mean.mul_(second).add_(gradient * (1 - second))
        parameter.sub_(direction * group["lr"])
