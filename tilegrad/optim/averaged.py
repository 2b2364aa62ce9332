"""Define ASGD (Polyak and Juditsky, 1992), Rprop (Riedmiller and Braun, 1993), Adafactor (Shazeer and Stern, 2018)."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from ..functions.arithmetic import maximum, where
from ..functions.constants import finfo
from ..functions.creation import full_like, zeros
from ..tensor import Tensor
from .decay import with_decay
from .optimizer import DeclaredOptimizer, State
from .settings import Group, Settings


class ASGD(
    DeclaredOptimizer, settings="lr lambd alpha t0 weight_decay * maximize", lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6
):
    """Gradient descent whose parameters are averaged, from step `t0` on, in the state `ax`."""

    state_names = ("ax",)

    def counted(self, group: Group) -> dict[str, float]:
        """Return the state before the first step, as PyTorch has it; a traced learning rate is not read."""
        return {"step": 0.0, "eta": 0.0 if isinstance(group["lr"], Tensor) else float(group["lr"]), "mu": 1.0}

    def tick(self, state: State, group: Settings) -> tuple[Any, Any, Any]:
        """Return the step size, the weight-decay factor, and the weight of the new parameters in the average.

        As in PyTorch, a step leaves the sizes for the next one, made with the learning rate that it had itself; the
        first step has nothing but that.
        """
        step, lr, share = state["step"].add_(1).double(), group["lr"], state["mu"].double()
        eta = where(step == 1, lr, state["eta"].double())
        state["eta"].copy_(lr / (1 + group["lambd"] * lr * step) ** group["alpha"])
        state["mu"].copy_(1 / (step - group["t0"]).clamp(min=1))
        return eta, 1 - group["lambd"] * eta, share

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        eta, kept, share = common
        gradient = with_decay(gradient, parameter, group)
        parameter.mul_(kept).sub_(gradient * eta)
        mean = state["ax"]
        mean.add_((parameter - mean) * share)


class Rprop(
    DeclaredOptimizer, settings="lr etas step_sizes * maximize", lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50.0)
):
    """Step by signs: an element's step grows while its gradient keeps its sign, and shrinks when it changes."""

    counters = {"step": 0.0}

    def check(self, group: Group) -> None:
        super().check(group)
        if not 0 < group["etas"][0] < 1 < group["etas"][1]:
            raise ArgumentError(f"Rprop: etas are {group['etas']}: the first is from 0 to 1, the second above 1")

    def kept(self, group: Group) -> tuple[str, ...]:
        return ("prev", "step_size")

    def first_state(self, parameter: Tensor, group: Group) -> State:
        before = parameter.detach()
        return {"prev": full_like(before, 0.0), "step_size": full_like(before, float(group["lr"]))}

    def tick(self, state: State, group: Settings) -> Tensor:
        """Return whether this is the first step, whose length is the learning rate."""
        return state["step"].add_(1) == 1

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        (less, more), (least, most) = group["etas"], group["step_sizes"]
        agreement = gradient * state["prev"]
        factor = where(agreement > 0, more, where(agreement < 0, less, 1.0))
        size = (where(common, group["lr"], state["step_size"]) * factor).clamp(least, most)
        gradient = where(agreement < 0, 0.0, gradient)
        parameter.sub_(gradient.sign() * size)
        state["step_size"].copy_(size)
        state["prev"].copy_(gradient)


class Adafactor(
    DeclaredOptimizer,
    settings="lr beta2_decay eps d weight_decay * maximize",
    lr=1e-2,
    beta2_decay=-0.8,
    eps=(None, 1e-3),
    d=1.0,
):
    """Adam that stores mean squares of matrices as those of rows and of columns only."""

    counters = {"step": 0.0}

    def check(self, group: Group) -> None:
        super().check({name: value for name, value in group.items() if name != "eps"})
        d, beta2_decay = group["d"], group["beta2_decay"]
        if d < 1 or beta2_decay > 0:
            raise ArgumentError(f"Adafactor: d={d}, beta2_decay={beta2_decay}: d is at least 1, the other at most 0")

    def first_state(self, parameter: Tensor, group: Group) -> State:
        shape, places = tuple(parameter.shape), (parameter.dtype, parameter.device)
        if len(shape) < 2:
            return {"variance": full_like(parameter.detach(), 0.0)}
        return {
            "row_var": zeros(*shape[:-1], 1, dtype=places[0], device=places[1]),
            "col_var": zeros(*shape[:-2], 1, shape[-1], dtype=places[0], device=places[1]),
        }

    def tick(self, state: State, group: Settings) -> tuple[Any, Any]:
        """Return the weight of the new squares, and the largest step."""
        step = state["step"].add_(1).double()
        one = step**-0.5
        lr = group["lr"]
        return step ** group["beta2_decay"], where(one < lr, one, one * 0 + lr)

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        share, step = common
        given = group.group["eps"][0]
        least = finfo(parameter.dtype).eps if given is None else group.part("eps", 0)
        size = parameter.norm() / parameter.numel() ** 0.5
        alpha = maximum(size, group.part("eps", 1).to(size.dtype)) * step
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        if "row_var" in state:
            rows, columns = state["row_var"], state["col_var"]
            rows.add_(((gradient * gradient).mean(-1, keepdim=True) - rows) * share)
            columns.add_(((gradient * gradient).mean(-2, keepdim=True) - columns) * share)
            variance = rows @ columns / maximum(rows.mean(-2, keepdim=True), rows.new_tensor(0.0) + least)
        else:
            kept = state["variance"]
            variance = kept.add_((gradient * gradient - kept) * share)
        change = gradient * maximum(variance, variance.new_tensor(0.0) + least * least).rsqrt()
        scale = (change.norm() / (change.numel() ** 0.5 * group["d"])).clamp(min=1.0)
        parameter.sub_(change * (alpha / scale))
