"""Define schedules that multiply the learning rate by a factor of the epoch; they can be chained."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

from ..errors import ArgumentError, check_callable
from .optimizer import Optimizer
from .schedule import LRScheduler, for_each_group

Factor = Callable[[int], float]


class FactorLR(LRScheduler):
    """The base of schedules with a factor per epoch. A step multiplies by the ratio of factors, so that schedules
    compose.
    """

    @abstractmethod
    def scale(self, epoch: int) -> float:
        """Return the total factor at an epoch."""

    def get_lr(self) -> Sequence[float]:
        now = self.scale(self.last_epoch)
        before = self.scale(self.last_epoch - 1) if self.last_epoch > 0 else 1.0
        if now == before:
            return self.rates()
        if before == 0:
            return self.at_once()
        return [rate * (now / before) for rate in self.rates()]

    def at_once(self) -> Sequence[float]:
        now = self.scale(self.last_epoch)
        return [rate * now for rate in self.base_lrs]


class StepLR(FactorLR):
    """Multiply by `gamma` every `step_size` epochs.

    >>> from . import SGD
    >>> from ..functions.creation import ones
    >>> optimizer = SGD([ones(2)], lr=1.0)
    >>> schedule = StepLR(optimizer, step_size=2, gamma=0.5)
    >>> [optimizer.param_groups[0]["lr"] for _ in range(5) if schedule.step() is None]
    [1.0, 0.5, 0.5, 0.25, 0.25]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        if step_size < 1:
            raise ArgumentError(f"StepLR: step_size is {step_size}: it must be at least 1")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def scale(self, epoch: int) -> float:
        return float(self.gamma ** (epoch // self.step_size))


class MultiStepLR(FactorLR):
    """Multiply by `gamma` at each milestone."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        from collections import Counter

        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def scale(self, epoch: int) -> float:
        return float(self.gamma ** bisect_right(sorted(self.milestones.elements()), epoch))


class ExponentialLR(FactorLR):
    """Multiply by `gamma` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def scale(self, epoch: int) -> float:
        return float(self.gamma**epoch)


class ConstantLR(FactorLR):
    """Multiply by `factor` for the first `total_iters` epochs."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1:
            raise ArgumentError(f"ConstantLR: factor is {factor}: it must be from 0 to 1")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def scale(self, epoch: int) -> float:
        return self.factor if epoch < self.total_iters else 1.0


class LinearLR(FactorLR):
    """Multiply by a factor that goes linearly from `start_factor` to `end_factor` over `total_iters` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ArgumentError(
                f"LinearLR: start_factor={start_factor} must be above 0, end_factor={end_factor} at least 0, "
                "and none above 1"
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def scale(self, epoch: int) -> float:
        progress = min(epoch, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * progress


class PolynomialLR(FactorLR):
    """Multiply by a power of the remaining share of `total_iters` epochs."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        if total_iters < 1:
            raise ArgumentError(f"PolynomialLR: total_iters is {total_iters}: it must be at least 1")
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def scale(self, epoch: int) -> float:
        return float((1 - min(epoch, self.total_iters) / self.total_iters) ** self.power)


class LambdaLR(LRScheduler):
    """Multiply the initial learning rate by a function of the epoch, or by one for each group."""

    unsaved = ("optimizer", "lr_lambdas")

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1) -> None:
        self.lr_lambdas: list[Factor] = for_each_group(optimizer, lr_lambda, f"{self.name}: lr_lambda")
        for fn in self.lr_lambdas:
            check_callable(fn, f"{self.name}: lr_lambda")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        return [rate * fn(self.last_epoch) for fn, rate in zip(self.lr_lambdas, self.base_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        # a function cannot be saved, but an object that can be called can have state
        kept = [None if isinstance(fn, FunctionType) else dict(vars(fn)) for fn in self.lr_lambdas]
        return super().state_dict() | {"lr_lambdas": kept}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for fn, kept in zip(self.lr_lambdas, state_dict.get("lr_lambdas", ()), strict=False):
            if kept is not None:
                vars(fn).update(kept)


class MultiplicativeLR(LambdaLR):
    """Multiply the learning rate by a function of the epoch, every epoch."""

    def get_lr(self) -> Sequence[float]:
        if self.last_epoch == 0:
            return self.rates()
        return [rate * fn(self.last_epoch) for fn, rate in zip(self.lr_lambdas, self.rates(), strict=True)]
