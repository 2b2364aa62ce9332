"""Define schedules that go up and down: cosines, one cycle, many cycles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from .optimizer import Optimizer
from .schedule import LRScheduler, for_each_group, refuse_in_trace
from .settings import Group


def cosine(start: float, end: float, progress: float) -> float:
    """Interpolate from start to end along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


def linear(start: float, end: float, progress: float) -> float:
    return start + (end - start) * progress


class CosineAnnealingLR(LRScheduler):
    """Anneal from the initial learning rate to `eta_min` and back along a cosine, in `T_max` epochs each."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_max < 1:
            raise ArgumentError(f"CosineAnnealingLR: T_max is {T_max}: it must be at least 1")
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        epoch = self.last_epoch
        if epoch == 0:
            return self.rates()
        if self._step_count == 1:
            return self.at_once()
        height = 1 + math.cos(math.pi * epoch / self.T_max)
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # from the lowest point there is no ratio
            up = (1 - math.cos(math.pi / self.T_max)) / 2
            return [rate + (base - self.eta_min) * up for rate, base in zip(self.rates(), self.base_lrs, strict=True)]
        ratio = height / (1 + math.cos(math.pi * (epoch - 1) / self.T_max))
        return [self.eta_min + (rate - self.eta_min) * ratio for rate in self.rates()]

    def at_once(self) -> Sequence[float]:
        return [cosine(base, self.eta_min, self.last_epoch / self.T_max) for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Anneal along a cosine repeatedly: first in `T_0` epochs, then in `T_mult` times as many each time.

    `step` takes a fraction of an epoch, too: `schedule.step(epoch + batch / batches)`.
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not isinstance(T_0, int) or T_0 < 1 or not isinstance(T_mult, int) or T_mult < 1:
            raise ArgumentError(f"{self.name}: T_0={T_0} and T_mult={T_mult} must be whole numbers of at least 1")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        return [cosine(base, self.eta_min, self.T_cur / self.T_i) for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        refuse_in_trace(self)
        self.move(epoch)

    def move(self, epoch: float | None = None) -> None:
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = epoch or 0
            if epoch < 0:
                raise ArgumentError(f"{self.name}.step: there is no epoch {epoch}")
            self.T_cur, self.T_i = self._within(epoch)
        self.last_epoch = math.floor(epoch)
        self.set(self.get_lr())

    def _within(self, epoch: float) -> tuple[float, int]:
        """Return the position of an epoch within its annealing, and the length of that."""
        length = self.T_0
        if self.T_mult == 1:
            return epoch % length, length
        while epoch >= length:
            epoch -= length
            length *= self.T_mult
        return epoch, length


class MomentumLR(LRScheduler):
    """The base of schedules that may cycle the momentum against the learning rate."""

    cycle_momentum: bool

    def prepare_momentum(self, base: float | Sequence[float], most: float | Sequence[float], last_epoch: int) -> None:
        """Store the bounds of the momentum, and set it."""
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ArgumentError(
                f"{self.name}: {self.optimizer.name} has neither momentum nor betas: give cycle_momentum=False"
            )
        self.use_beta1 = "betas" in defaults
        bases = for_each_group(self.optimizer, base, f"{self.name}: base_momentum")
        greatest = for_each_group(self.optimizer, most, f"{self.name}: max_momentum")
        if last_epoch == -1:
            for group, low, high in zip(self.optimizer.param_groups, bases, greatest, strict=True):
                group["base_momentum"], group["max_momentum"] = low, high
                self.set_momentum(group, high)

    def set_momentum(self, group: Group, momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(MomentumLR):
    """Cycle between `base_lr` and `max_lr`: up in `step_size_up` steps, down in `step_size_down`."""

    unsaved = ("optimizer", "_scale_fn_custom")

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ArgumentError(f"CyclicLR: mode is {mode!r}: it is 'triangular', 'triangular2' or 'exp_range'")
        self.optimizer = optimizer
        bases = for_each_group(optimizer, base_lr, "CyclicLR: base_lr")
        if last_epoch == -1:
            for group, base in zip(optimizer.param_groups, bases, strict=True):
                group["lr"] = group["initial_lr"] = base
        self.max_lrs = for_each_group(optimizer, max_lr, "CyclicLR: max_lr")
        down = float(step_size_up if step_size_down is None else step_size_down)
        self.total_size = float(step_size_up) + down
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.prepare_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"_scale_fn_custom": None}  # which PyTorch looks for

    def scale_fn(self, x: float) -> float:
        """Return the amplitude of a cycle, or at a step."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return float({"triangular": 1.0, "triangular2": 0.5 ** (x - 1), "exp_range": self.gamma**x}[self.mode])

    def get_lr(self) -> Sequence[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        progress = 1 + self.last_epoch / self.total_size - cycle
        rising = progress <= self.step_ratio
        height = progress / self.step_ratio if rising else (progress - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                low, high = group["base_momentum"], group["max_momentum"]
                self.set_momentum(group, linear(high, low, height))
        return [linear(base, most, height) for base, most in zip(self.base_lrs, self.max_lrs, strict=True)]


class OneCycleLR(MomentumLR):
    """Rise to `max_lr` in the first part of all steps, then fall far below the start (Smith, 2018)."""

    optional = ("pct_start", "three_phase")

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear") or not 0 <= pct_start <= 1:
            raise ArgumentError(
                f"OneCycleLR: anneal_strategy={anneal_strategy!r} is 'cos' or 'linear', pct_start={pct_start} is "
                "from 0 to 1"
            )
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ArgumentError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
        self.optimizer = optimizer
        self.total_steps = total_steps if total_steps is not None else epochs * steps_per_epoch  # type: ignore[operator]
        if self.total_steps < 1:
            raise ArgumentError(f"OneCycleLR: there are {self.total_steps} steps: give at least 1")
        self.pct_start = pct_start
        self.three_phase = three_phase
        self._anneal_func_type = anneal_strategy
        most = for_each_group(optimizer, max_lr, "OneCycleLR: max_lr")
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, most, strict=True):
                group["initial_lr"], group["max_lr"] = high / div_factor, high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.prepare_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def phases(self) -> list[tuple[float, str, str, str, str]]:
        """Return the last step of each phase, and the ends of learning rate and momentum in it."""
        high, low = "max_momentum", "base_momentum"
        end = self.total_steps - 1
        top = self.pct_start * self.total_steps - 1
        if not self.three_phase:
            return [(top, "initial_lr", "max_lr", high, low), (end, "max_lr", "min_lr", low, high)]
        back = 2 * self.pct_start * self.total_steps - 2
        return [
            (top, "initial_lr", "max_lr", high, low),
            (back, "max_lr", "initial_lr", low, high),
            (end, "initial_lr", "min_lr", high, high),
        ]

    def get_lr(self) -> Sequence[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ArgumentError(f"OneCycleLR: step {step} of {self.total_steps}: give it all the steps of the training")
        curve = cosine if self._anneal_func_type == "cos" else linear
        start, phases = 0.0, self.phases()
        while len(phases) > 1 and step > phases[0][0]:
            start = phases.pop(0)[0]
        end, from_rate, to_rate, from_momentum, to_momentum = phases[0]
        progress = (step - start) / (end - start) if end != start else 1.0
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            for group in groups:
                self.set_momentum(group, curve(group[from_momentum], group[to_momentum], progress))
        return [curve(group[from_rate], group[to_rate], progress) for group in groups]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.__dict__.pop("_schedule_phases", None)  # PyTorch's form of `phases`
