"""Define schedules made of schedules, and `ReduceLROnPlateau`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ArgumentError
from .optimizer import Optimizer
from .schedule import LRScheduler, check_optimizer, for_each_group, refuse_in_trace, set_rate


class CombinedLR(LRScheduler):
    """The base of schedules that combine several schedules of one optimizer."""

    unsaved = ("optimizer", "_schedulers")

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
        if not schedulers:
            raise ArgumentError(f"{self.name} needs at least one scheduler")
        for n, scheduler in enumerate(schedulers):
            if not isinstance(scheduler, LRScheduler) or isinstance(scheduler, ReduceLROnPlateau):
                raise ArgumentError(
                    f"{self.name}: number {n} is a {type(scheduler).__name__}, which cannot be combined with others"
                )
            if scheduler.optimizer is not optimizer:
                raise ArgumentError(f"{self.name}: scheduler {n} belongs to another optimizer than the first")
        self.optimizer = optimizer
        self._schedulers = list(schedulers)

    def get_lr(self) -> Sequence[float]:
        return self.rates()

    def undo(self) -> None:
        """Revert the initial step that every scheduler takes when it is constructed."""
        for scheduler in self._schedulers:
            if isinstance(scheduler, CombinedLR):
                scheduler.undo()
            else:
                scheduler.last_epoch -= 1

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"_schedulers": [s.state_dict() for s in self._schedulers]}

    def check_state(self, given: Any) -> None:
        super().check_state(given)
        count, own = len(given.get("_schedulers", ())), len(self._schedulers)
        if count != own:
            raise ArgumentError(
                f"{self.name}.load_state_dict: the state is that of {count} schedulers; there are {own}"
            )
        for scheduler, state in zip(self._schedulers, given["_schedulers"], strict=True):
            scheduler.check_state(state)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ChainedScheduler(CombinedLR):
    """Step all schedulers at every step."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ArgumentError(f"{self.name} needs at least one scheduler")
        super().__init__(optimizer or schedulers[0].optimizer, schedulers)
        self._last_lr = self.rates()

    def start(self) -> None:
        for scheduler in self._schedulers:
            scheduler.start()
        self._last_lr = self.rates()

    def step(self, epoch: int | None = None) -> None:
        refuse_in_trace(self)
        self.move(epoch)

    def move(self, epoch: int | None = None) -> None:
        for scheduler in self._schedulers:
            scheduler.move(epoch)
        self._last_lr = self.rates()


class SequentialLR(CombinedLR):
    """Run one scheduler after the other: the next one starts at its milestone, at its epoch 0."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        super().__init__(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedulers need {len(schedulers) - 1} milestones, not "
                f"{len(milestones)}: {list(milestones)}"
            )
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        self.undo()
        self.start()

    def start(self) -> None:
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first.start()
        self._last_lr = self.rates()

    def step(self, epoch: int | None = None) -> None:
        refuse_in_trace(self)
        self.move(epoch)

    def move(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        number = bisect_right(self._milestones, self.last_epoch)
        begins = number > 0 and self._milestones[number - 1] == self.last_epoch
        self._schedulers[number].move(0 if begins else None)
        self._last_lr = self.rates()


class ReduceLROnPlateau(LRScheduler):
    """Multiply the learning rate by `factor` when a metric has not improved for `patience` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        check_optimizer(self, optimizer)
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs") or factor >= 1:
            raise ArgumentError(
                f"{self.name}: mode={mode!r} is 'min' or 'max', threshold_mode={threshold_mode!r} is 'rel' or 'abs', "
                f"factor={factor} is below 1"
            )
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lrs: list[float] = for_each_group(optimizer, min_lr, f"{self.name}: min_lr")
        self.eps = eps
        self.last_epoch = 0
        self.best = float("inf") if mode == "min" else float("-inf")
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self._last_lr = self.rates()

    def get_lr(self) -> Sequence[float]:
        return [max(rate * self.factor, least) for rate, least in zip(self.rates(), self.min_lrs, strict=True)]

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Record a metric: a number, or a tensor of one element."""
        refuse_in_trace(self)
        measured = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.improves(measured):
            self.best = measured
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, before, now in zip(self.optimizer.param_groups, self.rates(), self.get_lr(), strict=True):
                if before - now > self.eps:
                    set_rate(group, now)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self.rates()

    def improves(self, measured: float) -> bool:
        """Test whether a metric is better than the best so far, by more than the threshold."""
        sign = -1 if self.mode == "min" else 1
        relative = self.threshold_mode == "rel"
        least = self.best * (1 + sign * self.threshold) if relative else self.best + sign * self.threshold
        return sign * measured > sign * least
