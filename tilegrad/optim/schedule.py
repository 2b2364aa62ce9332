"""Define the base of learning-rate schedules.

A learning rate is a number of the host, which a compiled step reads anew at every call: a scheduler changes it between
the steps, outside of the function that is jitted, and nothing is compiled again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..errors import ArgumentError, TraceError
from ..functions.promotion import kind_of
from ..jitted.function import tracing
from ..tensor import Tensor
from .optimizer import Optimizer
from .settings import Group


class LRScheduler(ABC):
    """Set the learning rates of an optimizer's groups: initially, and at every `step`, after the optimizer's."""

    unsaved: tuple[str, ...] = ("optimizer",)
    """Attributes that are not part of the state."""
    optional: tuple[str, ...] = ()
    """Parts of the state that PyTorch's may lack."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(self, optimizer)
        self.optimizer = optimizer
        for n, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", float(group["lr"]))
            elif "initial_lr" not in group:
                raise ArgumentError(
                    f"{self.name}: last_epoch={last_epoch} goes on with a schedule, but group {n} has no 'initial_lr': "
                    "load the optimizer's state first, or leave last_epoch out and load the scheduler's state"
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.start()

    def start(self) -> None:
        """Set the first learning rates."""
        self._step_count = 0
        self.step()

    @property
    def name(self) -> str:
        return type(self).__name__

    @abstractmethod
    def get_lr(self) -> Sequence[float]:
        """Return the learning rates at `last_epoch`, given the present ones."""

    def at_once(self) -> Sequence[float]:
        """Return the learning rates at `last_epoch`, independently of the present ones."""
        return self.get_lr()

    def step(self, epoch: int | None = None) -> None:
        """Advance by one epoch (or other unit of the schedule), or to a given one."""
        refuse_in_trace(self)
        self._step_count += 1
        self.move(epoch)

    def move(self, epoch: int | None = None) -> None:
        """Advance without counting."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self.set(self.get_lr() if epoch is None else self.at_once())

    def set(self, rates: Sequence[float]) -> None:
        """Set the learning rates of the groups."""
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = self.rates()

    def rates(self) -> list[float]:
        """Return the present learning rates of the groups."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        """Return the learning rates that were set last."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the schedule, under PyTorch's names."""
        return {name: value for name, value in self.__dict__.items() if name not in self.unsaved}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`, of this class or PyTorch's; the rates are the optimizer's state."""
        self.check_state(state_dict)
        self.__dict__.update({k: v for k, v in state_dict.items() if k not in self.unsaved})

    def check_state(self, given: Any) -> None:
        """Raise for a state of another kind of scheduler."""
        if not isinstance(given, Mapping):
            raise ArgumentError(
                f"{self.name}.load_state_dict: takes a dict, as state_dict() gives, not {kind_of(given)}"
            )
        needed = (name for name in self.state_dict() if name[0] != "_" and name not in self.optional)
        missing = [name for name in needed if name not in given]
        if missing:
            raise ArgumentError(
                f"{self.name}.load_state_dict: the state has no {', '.join(missing)}: is it that of another scheduler?"
            )


def set_rate(group: Group, rate: float) -> None:
    """Set a learning rate; a tensor is written in place."""
    if isinstance(group["lr"], Tensor):
        with no_grad():
            group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def check_optimizer(scheduler: object, optimizer: object) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(f"{type(scheduler).__name__} takes an optimizer, not a {type(optimizer).__name__}")


def refuse_in_trace(scheduler: object) -> None:
    """Raise within a traced function, which runs once and would advance a schedule once."""
    if tracing():
        raise TraceError(
            f"{type(scheduler).__name__}.step() is called in a jitted function, where it would run only once: call it "
            "after the function. The learning rate is read anew at every call, and nothing is compiled again"
        )


def for_each_group(optimizer: Optimizer, value: Any, name: str) -> list[Any]:
    """Return one setting for each group, from one for all or a list."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ArgumentError(f"{name} has {len(value)} values for {count} groups of parameters")
    return list(value)
