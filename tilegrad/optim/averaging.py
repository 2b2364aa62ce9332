"""Average parameters over the training (stochastic weight averaging, exponential moving averages).

AveragedModel keeps a copy of a network with the plain mean (stochastic weight averaging, Izmailov et al., 2018) or an
exponential moving average of the parameters that it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

from ..autograd.modes import no_grad
from ..errors import ArgumentError
from ..functions.arithmetic import where
from ..functions.creation import zeros
from ..ir.dtype import int64
from ..jitted.function import tracing
from ..lazy.evaluation import compute
from ..nn.module import Module
from ..nn.norm import _BatchNorm
from ..tensor import Tensor
from .cycles import cosine, linear
from .optimizer import Optimizer
from .schedule import LRScheduler, for_each_group

Average = Callable[[Tensor, Tensor, Any], Tensor]
"""Computes the new average from the average, a parameter, and the number of averaged parameters."""
Averages = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def get_swa_avg_fn() -> Average:
    """Return the function of the plain mean."""
    return lambda average, parameter, count: average + (parameter - average) / (count + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Return the function of the exponential moving average, in which the new parameters weigh 1 - decay."""
    _check_decay(decay)
    return lambda average, parameter, count: average * decay + parameter * (1 - decay)


def get_swa_multi_avg_fn() -> Averages:
    """Return the function of the plain mean for many parameters at once."""
    return _for_all(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """Return the function of the exponential moving average for many parameters at once."""
    return _for_all(get_ema_avg_fn(decay))


def _for_all(average: Average) -> Averages:
    def update(averages: Sequence[Tensor], parameters: Sequence[Tensor], count: Any) -> None:
        for mean, parameter in zip(averages, parameters, strict=True):
            mean.copy_(average(mean, parameter, count))

    return update


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ArgumentError(f"the decay of an exponential moving average is from 0 to 1, not {decay}")


class AveragedModel(Module):
    """A copy of a network with averages of the parameters that `update_parameters` was called with.

    The first are taken as they are. `update_parameters` may be a part of a jitted training step.
    """

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("AveragedModel takes avg_fn or multi_avg_fn, not both")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", zeros((), dtype=int64, device=device))
        self.average = multi_avg_fn or _for_all(avg_fn or get_swa_avg_fn())
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Include the parameters of a network in the average."""
        with no_grad():
            averages = [x.detach() for x in self._averaged(self.module)]
            shown = [x.detach().to(mean.device) for x, mean in zip(self._averaged(model), averages, strict=True)]
            # a step that was traced must know the first one from the others
            first = self.n_averaged == 0
            self.average(averages, shown, self.n_averaged)
            for mean, x in zip(averages, shown, strict=True):
                mean.copy_(where(first, x, mean))
            copied = [] if self.use_buffers else list(zip(self.module.buffers(), model.buffers(), strict=True))
            for mine, other in copied:
                mine.copy_(other)
            self.n_averaged.add_(1)
            if not tracing():
                compute(*averages, *(mine for mine, _ in copied), self.n_averaged)

    def _averaged(self, model: Module) -> Iterable[Tensor]:
        return chain(model.parameters(), model.buffers()) if self.use_buffers else model.parameters()


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of batch norms over all batches, as averaged parameters change them."""
    measured = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    momenta = [m.momentum for m in measured]
    for module in measured:
        module.reset_running_stats()
        module.momentum = None
    was_training = model.training
    model.train()
    try:
        with no_grad():
            for batch in loader if measured else ():
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        model.train(was_training)
        for module, momentum in zip(measured, momenta, strict=True):
            module.momentum = momentum


class SWALR(LRScheduler):
    """Anneal the learning rate to `swa_lr` in `anneal_epochs` steps, and keep it there."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear") or anneal_epochs < 0:
            raise ArgumentError(
                f"SWALR: anneal_strategy={anneal_strategy!r} is 'cos' or 'linear', anneal_epochs={anneal_epochs} is at "
                "least 0"
            )
        for group, rate in zip(optimizer.param_groups, for_each_group(optimizer, swa_lr, "SWALR: swa_lr"), strict=True):
            group["swa_lr"] = rate
        self.anneal_epochs = anneal_epochs
        self._anneal_strategy = anneal_strategy
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        targets = [group["swa_lr"] for group in self.optimizer.param_groups]
        step = max(self._step_count - 1, int(self.anneal_epochs == 0))
        now, before = self._progress(step), self._progress(step - 1)
        if before == 1:
            return targets
        # others may have changed the rate meanwhile: where it came from follows from where it is
        starts = [(rate - before * end) / (1 - before) for rate, end in zip(self.rates(), targets, strict=True)]
        return [start + (end - start) * now for start, end in zip(starts, targets, strict=True)]

    def _progress(self, step: int) -> float:
        done = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (cosine if self._anneal_strategy == "cos" else linear)(0.0, 1.0, done)
