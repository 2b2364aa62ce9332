"""Training steps under `tg.jit`: the same numbers, one program, no growing memory."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist

MAKERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: tg.optim.SGD(p, lr=0.1),
    "momentum": lambda p: tg.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "Adam": lambda p: tg.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: tg.optim.AdamW(p, lr=0.01),
    "Adagrad": lambda p: tg.optim.Adagrad(p, lr=0.05, lr_decay=0.1),
    "Adadelta": lambda p: tg.optim.Adadelta(p),
    "RMSprop": lambda p: tg.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True, eps=1e-3),
    "Adamax": lambda p: tg.optim.Adamax(p, lr=0.01),
    "NAdam": lambda p: tg.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: tg.optim.RAdam(p, lr=0.01, decoupled_weight_decay=True, weight_decay=0.1),
    "Lion": lambda p: tg.optim.Lion(p, lr=0.01, weight_decay=0.1),
}


class Training:
    """A small network, its optimizer, and a step that can be traced."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        tg.manual_seed(0)
        self.model = tg.nn.Sequential(tg.nn.Linear(6, 5), tg.nn.Tanh(), tg.nn.Linear(5, 3))
        self.optimizer = make(self.model.parameters())

    def step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss


def batches(count: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [(tg.tensor(rng.random((8, 6), np.float32)), tg.tensor(rng.integers(0, 3, 8))) for _ in range(count)]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_traced_step_is_the_step(make: Callable[[Any], Any]) -> None:
    """Also when the learning rate changes on the way, which must not be frozen into the program."""
    eager, traced = Training(make), Training(make)
    jitted = tg.jit(traced.step)
    for n, (x, y) in enumerate(batches(8)):
        if n == 4:
            eager.optimizer.param_groups[0]["lr"] *= 0.25
            traced.optimizer.param_groups[0]["lr"] *= 0.25
        np.testing.assert_allclose(jitted(x, y).item(), eager.step(x, y).item(), rtol=1e-5)
    for ours, wanted in zip(traced.model.parameters(), eager.model.parameters()):
        np.testing.assert_allclose(ours.detach().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
    for state, wanted in zip(traced.optimizer.state.values(), eager.optimizer.state.values()):
        for name in wanted:
            np.testing.assert_allclose(state[name].numpy(), wanted[name].numpy(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("traced", [False, True])
@checklist(196, 77)
def test_steps_do_not_grow_the_memory(traced: bool, small_heap: None) -> None:
    training = Training(MAKERS["Adam"])
    step = tg.jit(training.step) if traced else training.step
    x, y = batches(1)[0]
    seen = []
    for _ in range(12):
        step(x, y)
        gc.collect()  # the history of a spent loss is a cycle
        seen.append(tg.live_bytes())
    assert seen[-1] == seen[3], seen


@checklist(101)
def test_networks_that_are_dropped_leave_nothing(no_leak: None) -> None:
    x, y = batches(1)[0]
    for _ in range(20):
        Training(MAKERS["momentum"]).step(x, y)
    del x, y


@pytest.mark.parametrize("name", ["betas", "weight_decay", "eps"])
def test_a_setting_that_changes_is_seen(name: str) -> None:
    """Numbers are inputs of the program; that a weight decay begins needs another one."""
    settings: Any = {"betas": [(0.5, 0.8), (0.6, 0.7)], "weight_decay": [0.3, 0.2], "eps": [0.1, 0.2]}
    eager, traced = Training(MAKERS["AdamW"]), Training(MAKERS["AdamW"])
    for training in (eager, traced):
        training.optimizer.param_groups[0]["weight_decay"] = 0
    step = tg.jit(traced.step)
    for n, (x, y) in enumerate(batches(8)):
        if n in (3, 5):
            for training in (eager, traced):
                training.optimizer.param_groups[0][name] = settings[name][n == 5]
        np.testing.assert_allclose(step(x, y).item(), eager.step(x, y).item(), rtol=1e-5)
    assert len(step.programs) == (2 if name == "weight_decay" else 1)


def test_parameters_that_miss_steps_under_jit() -> None:
    """A program made when all had gradients must not be used when the counters are apart."""

    def run(jit: bool) -> list[Any]:
        w, v = (tg.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        optimizer = tg.optim.Adam([w, v], lr=0.1)

        def both(x: Any) -> Any:
            optimizer.zero_grad()
            (w * v * x).sum().backward()
            optimizer.step()
            return x

        def one(x: Any) -> Any:
            optimizer.zero_grad()
            (w * x).sum().backward()
            optimizer.step()
            return x

        calls = [tg.jit(both), tg.jit(one)] if jit else [both, one]
        x = tg.tensor([0.3, -0.4])
        for which in (0, 0, 1, 0, 1, 0):
            calls[which](x)
        counts = [optimizer.state[p]["step"].item() for p in (w, v)]
        return [counts, w.detach().tolist(), v.detach().tolist()]

    traced, eager = run(jit=True), run(jit=False)
    assert traced[0] == eager[0] == [6.0, 4.0]
    np.testing.assert_allclose(traced[1:], eager[1:], rtol=1e-5)
