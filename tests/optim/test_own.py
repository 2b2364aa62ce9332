"""Subclasses of `Optimizer` with a `step` of their own, as people write them, train as those of the library."""

from __future__ import annotations

import contextlib
import copy
import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg

STEPS = 5


class OwnAdamW(tg.optim.Optimizer):
    """AdamW as courses write it: state is created at the first step, and steps are counted in Python."""

    def __init__(self, params: Any, lr: float, betas: Any = (0.9, 0.999), eps: float = 1e-8, decay: float = 0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "decay": decay})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        for group in self.param_groups:
            lr, (b1, b2) = group["lr"], group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, grad = self.state[p], p.grad.data
                t = state.get("t", 0) + 1
                m = state.get("m", tg.zeros_like(p.data))
                v = state.get("v", tg.zeros_like(p.data))
                m = b1 * m + (1 - b1) * grad
                v = b2 * v + (1 - b2) * grad**2
                p.data.mul_(1 - lr * group["decay"])
                p.data -= lr * math.sqrt(1 - b2**t) / (1 - b1**t) * m / (v.sqrt() + group["eps"] * math.sqrt(1 - b2**t))
                state["t"], state["m"], state["v"] = t, m, v
        return loss


class OwnMomentum(tg.optim.Optimizer):
    """State as tensors, updated in place, without gradients being recorded."""

    def __init__(self, params: Any, lr: float, momentum: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @tg.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["buffer"] = tg.zeros_like(p)
                state["buffer"].mul_(group["momentum"]).add_(p.grad)
                p.add_(state["buffer"], alpha=-group["lr"])


PAIRS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "adamw": (lambda p: OwnAdamW(p, 0.1), lambda p: tg.optim.AdamW(p, 0.1)),
    "momentum": (lambda p: OwnMomentum(p, 0.1, 0.9), lambda p: tg.optim.SGD(p, 0.1, momentum=0.9)),
}


def trained(make: Callable[[Any], Any], jitted: bool, resumed: bool = False) -> list[np.ndarray]:
    net = tg.nn.Sequential(tg.nn.Linear(3, 3), tg.nn.Tanh(), tg.nn.Linear(3, 3)).double()
    rng = np.random.default_rng(0)
    net.load_state_dict({k: tg.tensor(rng.standard_normal(v.shape)) for k, v in net.state_dict().items()})
    optimizer, x = make(net.parameters()), tg.tensor(rng.standard_normal((3, 3)))
    schedule = tg.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def step() -> tg.Tensor:
        optimizer.zero_grad()
        loss = (net(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    run = tg.jit(step) if jitted else step
    losses = []
    for n in range(STEPS):
        losses.append(run().detach().numpy())
        schedule.step()
        if resumed and n == 2:
            net_state, state = copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict())
            run()
            net.load_state_dict(net_state)
            optimizer.load_state_dict(state)
    return [*losses, *(p.detach().numpy() for p in net.parameters())]


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_training(name: str, jitted: bool, resumed: bool) -> None:
    own, ours = PAIRS[name]
    with contextlib.redirect_stderr(io.StringIO()):
        got = trained(own, jitted, resumed)
    for mine, wanted in zip(got, trained(ours, jitted=False), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-9, atol=1e-11)


def test_settings_and_state_are_the_subclass_s_own() -> None:
    w = tg.ones(2, requires_grad=True)
    own = OwnMomentum([{"params": [w], "label": 3}], 0.1, 0.9)
    own.state["all"]["seen"] = [1]
    saved = own.state_dict()
    assert w not in own.state
    assert saved["state"] == {"all": {"seen": [1]}}
    assert copy.deepcopy(own).param_groups[0]["label"] == 3


def test_a_subclass_without_a_step_says_so() -> None:
    class Empty(tg.optim.Optimizer):
        pass

    w = tg.ones(2, requires_grad=True)
    w.sum().backward()
    with pytest.raises(NotImplementedError, match="Empty has no step"):
        Empty([w], {}).step()


def test_counters_are_of_the_default_type() -> None:
    w = tg.ones(2, requires_grad=True)
    before = tg.get_default_dtype()
    found = []
    for dtype in (tg.float64, tg.bfloat16, tg.float32):
        tg.set_default_dtype(dtype)
        try:
            found.append({k: x.dtype for k, x in tg.optim.NAdam([w]).state[w].items() if not x.shape})
        finally:
            tg.set_default_dtype(before)
    kept = [dict.fromkeys(("step", "mu_product"), dtype) for dtype in (tg.float64, tg.float32, tg.float32)]
    assert found == kept
