"""Define `GradScaler`: scale losses and unscale gradients, so that small gradients do not underflow in float16."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..autograd.modes import no_grad
from ..errors import ArgumentError
from ..functions.arithmetic import where
from ..functions.creation import tensor, zeros
from ..ir.dtype import bool_, float32, int32
from ..lazy.evaluation import compute
from ..lazy.handle import state as tracer
from ..tensor import Tensor


class GradScaler:
    """Scale losses; skip steps whose gradients overflowed and lower the scale; raise it after many good steps.

    Whether a gradient overflowed is decided within the step: nothing is read back, and a training step with a scaler
    can be jitted as it is:

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    """

    def __init__(
        self,
        device: str = "cpu",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if growth_factor <= 1 or not 0 < backoff_factor < 1 or init_scale <= 0:
            raise ArgumentError(
                f"GradScaler: growth_factor={growth_factor} must be above 1, backoff_factor={backoff_factor} between 0 "
                f"and 1, init_scale={init_scale} above 0"
            )
        self.enabled = enabled
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        device = device if enabled else "cpu"  # a script may say what there is elsewhere
        self._scale = tensor(init_scale, dtype=float32, device=device)
        self._tracker = zeros((), dtype=int32, device=device)
        self._found: dict[int, Tensor] = {}
        """Whether the gradients of an optimizer, by its id, have infinite or NaN elements."""
        self._stepped: set[int] = set()
        self._scaled = False

    def scale(self, outputs: Any) -> Any:
        """Multiply a loss, or several in lists or tuples, by the scale."""
        if not self.enabled:
            return outputs
        self._scaled = True
        if isinstance(outputs, Tensor):
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, (list, tuple)):
            return type(outputs)([self.scale(x) for x in outputs])
        raise ArgumentError(f"GradScaler.scale takes tensors, alone or in lists, not a {type(outputs).__name__}")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, for example before clipping."""
        if not self.enabled:
            return
        if not hasattr(optimizer, "param_groups"):
            raise ArgumentError(f"GradScaler takes an optimizer, not a {type(optimizer).__name__}")
        if id(optimizer) in self._found:
            raise ArgumentError("GradScaler.unscale_ was called for this optimizer already since the last update()")
        given = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not given:
            raise ArgumentError("GradScaler: the optimizer has no gradients: call scaler.scale(loss).backward() first")
        if not self._scaled:
            raise ArgumentError(
                "GradScaler: no loss was scaled, so the gradients would become too small: scaler.scale(loss).backward()"
            )
        with no_grad():
            inverse = 1 / self._scale.double()
            wrong = zeros((), dtype=bool_, device=self._scale.device)
            for parameter in given:
                wrong = wrong | parameter.grad.isfinite().logical_not().any().to(self._scale.device)
                parameter.grad.mul_(inverse.to(parameter.device))
        self._found[id(optimizer)] = wrong

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Step the optimizer; nothing changes if a gradient is infinite or NaN."""
        if not self.enabled:
            return optimizer.step(*args, **kwargs)
        if args or kwargs.get("closure") is not None:
            raise ArgumentError("GradScaler.step takes no closure: compute the loss and its gradients before")
        if id(optimizer) in self._stepped:
            raise ArgumentError("GradScaler.step was called for this optimizer already: call update() after it")
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        optimizer.skip = self._found[id(optimizer)]
        try:
            return optimizer.step(**kwargs)
        finally:
            optimizer.skip = None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Set the scale for the next step: lower after an overflow, higher after many steps without one."""
        if not self.enabled:
            return
        with no_grad():
            if new_scale is not None:
                self._scale.copy_(new_scale) if isinstance(new_scale, Tensor) else self._scale.fill_(new_scale)
            else:
                self._follow()
            if tracer.trace is None:
                compute(self._scale, self._tracker)
        self._found.clear()
        self._stepped.clear()

    def _follow(self) -> None:
        if not self._found:
            raise ArgumentError("GradScaler.update: there was no step since the last update: call scaler.step() first")
        found, *others = self._found.values()
        for other in others:
            found = found | other
        good = self._tracker + 1
        grown = self._scale * self.growth_factor
        grows = (good == self.growth_interval) & grown.isfinite()
        kept = where(grows, grown, self._scale)
        self._scale.copy_(where(found, self._scale * self.backoff_factor, kept))
        self._tracker.copy_(where(found | (good == self.growth_interval), 0, good))

    def get_scale(self) -> float:
        """Return the scale."""
        return float(self._scale.item()) if self.enabled else 1.0

    def get_growth_factor(self) -> float:
        return self.growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self.growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self.backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self.backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self.growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self.growth_interval = new_interval

    def is_enabled(self) -> bool:
        return self.enabled

    def state_dict(self) -> dict[str, Any]:
        """Return the scale and the settings, under PyTorch's names; nothing if the scaler is disabled."""
        if not self.enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": int(self._tracker.item()),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`, of this class or PyTorch's."""
        if not self.enabled:
            return
        if not state_dict:
            raise ArgumentError("GradScaler.load_state_dict: the state is empty: was it saved from one not enabled?")
        missing = [name for name in self.state_dict() if name not in state_dict]
        if missing:
            raise ArgumentError(
                f"GradScaler.load_state_dict: the state has no {', '.join(missing)}: it is of something else"
            )
        self.growth_factor = state_dict["growth_factor"]
        self.backoff_factor = state_dict["backoff_factor"]
        self.growth_interval = state_dict["growth_interval"]
        self._scale.fill_(state_dict["scale"])
        self._tracker.fill_(state_dict["_growth_tracker"])
