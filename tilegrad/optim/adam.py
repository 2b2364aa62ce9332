"""Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019)."""

from __future__ import annotations

from ..arithmetic import maximum
from ..errors import ArgumentError
from ..tensor import Tensor
from .optimizer import Group, Optimizer, Params, step_count


class Adam(Optimizer):
    """Steps by the mean of the gradients over the root of the mean of their squares."""

    decoupled = False
    """Whether weight decay shrinks the parameters (AdamW) or is a part of the gradient."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
            },
        )

    def check(self, group: Group) -> None:
        super().check(group)
        if not all(0 <= beta < 1 for beta in group["betas"]):
            raise ArgumentError(f"{type(self).__name__}: betas are {group['betas']}: both must be from 0 up to below 1")

    def kept(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))

    def first_state(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        return {"step": step_count(parameter), **super().first_state(parameter, group)}

    def update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], group: Group, lr: Tensor) -> None:
        first, second = group["betas"]
        step = state["step"].add_(1).double()  # 1 - 0.999 ** step would lose four digits in float32
        decay = group["weight_decay"]
        if decay and self.decoupled:
            parameter.mul_(1 - lr * decay)
        elif decay:
            gradient = gradient + parameter * decay
        mean = state["exp_avg"].mul_(first).add_(gradient * (1 - first))
        square = state["exp_avg_sq"].mul_(second).add_(gradient * gradient * (1 - second))
        if group["amsgrad"]:
            square = state["max_exp_avg_sq"].copy_(maximum(state["max_exp_avg_sq"], square))
        root = square.sqrt() / (1 - second**step).sqrt() + group["eps"]
        parameter.sub_(mean / root * (lr / (1 - first**step)))


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameters instead of joining the gradient."""

    decoupled = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)
