"""Define L-BFGS (Liu and Nocedal, 1989): quasi-Newton steps from the last few steps and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..autograd.modes import enable_grad, no_grad
from ..errors import ArgumentError
from ..functions.joining import cat
from ..lazy.evaluation import compute
from ..lazy.handle import state as tracer
from ..tensor import Tensor
from .line_search import wolfe
from .optimizer import Optimizer, Params, State
from .settings import Settings

KEPT = ("func_evals", "n_iter", "d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")
"""Names of the state that PyTorch saves."""


class LBFGS(Optimizer):
    """Take up to `max_iter` steps per call, and evaluate them by calling the closure.

    >>> import tilegrad as tg
    >>> x = tg.tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = LBFGS([x], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((x - tg.tensor([1.0, 2.0])) ** 2 * tg.tensor([1.0, 10.0])).sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = optimizer.step(closure)
    >>> x.detach().round(decimals=3)
    tensor([1., 2.])
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise ArgumentError(f"LBFGS: line_search_fn is None or 'strong_wolfe', not {line_search_fn!r}")
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        self.memory: dict[str, Any] = {}
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ArgumentError("LBFGS: groups of parameters are not there: all parameters take one step together")

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        raise AssertionError("all parameters take one step together")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Call the closure, which computes the loss and its gradients, as often as the steps need."""
        if closure is None:
            raise ArgumentError("LBFGS: step(closure): a function that computes the loss and its gradients anew")
        if tracer.trace is not None:
            raise ArgumentError(
                "LBFGS decides by values how far it goes: call step outside of jit, and jit the closure's inside"
            )
        with no_grad():
            return _StepCall(self, closure).loss_at_first

    def _collected(self) -> dict[str, Any]:
        found = super()._collected()
        return found | {"state": {0: dict(self.memory)} if self.memory else {}}

    def _take_over(self, state_dict: Mapping[str, Any]) -> None:
        given = {k: v for k, v in state_dict.get("state", {}).get(0, {}).items() if k != "al"}  # room to work in
        super()._take_over({**state_dict, "state": {}})
        unknown = sorted(set(given) - set(KEPT))
        if unknown:
            raise ArgumentError(f"LBFGS.load_state_dict: {', '.join(unknown)}: LBFGS keeps no such state")
        self.memory = given


class _StepCall:
    """One call of `step`."""

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any]) -> None:
        self.optimizer, self.closure = optimizer, closure
        self.group = optimizer.param_groups[0]
        self.parameters: list[Tensor] = self.group["params"]
        self.memory = optimizer.memory
        self.evaluations = 0
        loss, self.gradient = self.evaluate()
        self.loss_at_first, self.loss = loss, float(loss.item())
        self.memory.setdefault("n_iter", 0)
        if not self.is_flat():
            self.iterate()
        self.memory["func_evals"] = self.memory.get("func_evals", 0) + self.evaluations

    def evaluate(self) -> tuple[Any, Tensor]:
        """Return the loss, and the gradients of all parameters as one vector."""
        self.evaluations += 1
        with enable_grad():
            loss = self.closure()
        if loss is None:
            raise ArgumentError("LBFGS: the closure returned None: it must return the loss that it computed")
        parts = [p.new_zeros(p.numel()) if p.grad is None else p.grad.reshape(-1) for p in self.parameters]
        gradient = cat([part.detach() for part in parts])
        compute(loss, gradient)
        return loss, gradient

    def number(self, x: float) -> Tensor:
        """Return a varying number as a tensor, as constants are compiled in."""
        return self.gradient.new_tensor(x)

    def is_flat(self) -> bool:
        return bool(float(self.gradient.abs().amax().item()) <= self.group["tolerance_grad"])

    def move(self, direction: Tensor, distance: float) -> None:
        start, far = 0, direction.new_tensor(distance)
        for p in self.parameters:
            part = direction[start : start + p.numel()]
            p.add_(part.reshape(p.shape) * far)
            start += p.numel()
        compute(*self.parameters)

    def iterate(self) -> None:
        memory, group = self.memory, self.group
        for n in range(1, group["max_iter"] + 1):
            memory["n_iter"] += 1
            direction = self.direction()
            memory["prev_flat_grad"], memory["prev_loss"] = self.gradient, self.loss
            slope = float((self.gradient * direction).sum().item())
            if slope > -group["tolerance_change"]:
                return
            distance = self.advance(direction, slope, last=n == group["max_iter"])
            memory["d"], memory["t"] = direction, distance
            small = abs(distance) * float(direction.abs().amax().item()) <= group["tolerance_change"]
            still = abs(self.loss - memory["prev_loss"]) < group["tolerance_change"] and n < group["max_iter"]
            if self.evaluations >= group["max_eval"] or self.is_flat() or small or still:
                return

    def direction(self) -> Tensor:
        """Return the quasi-Newton direction: minus the gradient, times the approximate inverse Hessian."""
        memory = self.memory
        if memory["n_iter"] == 1:
            memory.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -self.gradient
        change, step = self.gradient - memory["prev_flat_grad"], memory["d"] * self.number(memory["t"])
        curvature = float((change * step).sum().item())
        if curvature > 1e-10:
            if len(memory["old_dirs"]) == self.group["history_size"]:
                for name in ("old_dirs", "old_stps", "ro"):
                    memory[name].pop(0)
            memory["old_dirs"].append(change)
            memory["old_stps"].append(step)
            memory["ro"].append(self.number(1.0 / curvature))
            memory["H_diag"] = curvature / float((change * change).sum().item())
        past = list(zip(memory["old_dirs"], memory["old_stps"], memory["ro"], strict=True))
        q, shares = -self.gradient, []
        compute(q, change, step)
        for change, step, scale in reversed(past):
            shares.append((step * q).sum() * scale)
            q = q - change * shares[-1]
            compute(q, shares[-1])  # the same few kernels for each of them
        d = q * self.number(memory["H_diag"])
        for (change, step, scale), share in zip(past, reversed(shares), strict=True):
            d = d + step * (share - (change * d).sum() * scale)
            compute(d)
        return d

    def advance(self, direction: Tensor, slope: float, last: bool) -> float:
        """Step along a direction; return the step length."""
        first = self.memory["n_iter"] == 1
        distance = float(self.group["lr"])
        if first:
            distance *= min(1.0, 1.0 / float(self.gradient.abs().sum().item()))
        if self.group["line_search_fn"] is None:
            self.move(direction, distance)
            if not last:
                loss, self.gradient = self.evaluate()
                self.loss = float(loss.item())
            return distance
        begin = [p.clone() for p in self.parameters]

        def at(t: float) -> tuple[float, Tensor, float]:
            for p, old in zip(self.parameters, begin, strict=True):
                p.copy_(old)
            self.move(direction, t)
            loss, gradient = self.evaluate()
            return float(loss.item()), gradient, float((gradient * direction).sum().item())

        distance, self.loss, self.gradient = wolfe(at, distance, self.loss, self.gradient, slope)
        for p, old in zip(self.parameters, begin, strict=True):
            p.copy_(old)
        self.move(direction, distance)
        return distance
