"""A jitted training step again and again: what others hold, change or read between two calls is theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import nn

RATES = (0.1, 0.1, 0.1, 0.1, 0.05, 0.025, 0.1, 0.1, 0.1)


class Training:
    """A small network, trained on one batch."""

    def __init__(self, place: str, ready: Callable[[Any], Any]) -> None:
        tg.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).to(place)
        self.optimizer = tg.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        random = np.random.default_rng(0)
        self.x = tg.tensor(random.standard_normal((4, 6)).astype(np.float32)).to(place)
        self.y = tg.tensor(np.array([0, 2, 1, 1])).to(place)
        optimizer, model = self.optimizer, self.model

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        self.step = ready(step)

    def __call__(self, n: int) -> float:
        self.optimizer.param_groups[0]["lr"] = RATES[n]
        return float(self.step(self.x, self.y).item())


def nothing(training: Training, kept: list[Any]) -> None:
    pass


def holds_gradients(training: Training, kept: list[Any]) -> None:
    kept.append([p.grad for p in training.model.parameters()])


def reads_gradients_later(training: Training, kept: list[Any]) -> None:
    kept.append([p.grad * 2 for p in training.model.parameters()])


def reads_parameters_later(training: Training, kept: list[Any]) -> None:
    kept.append([p.detach() + 1 for p in training.model.parameters()])


def views_gradients(training: Training, kept: list[Any]) -> None:
    kept.append([p.grad.reshape(-1)[1:] for p in training.model.parameters()])


def removes_gradients(training: Training, kept: list[Any]) -> None:
    training.optimizer.zero_grad()


def puts_gradients(training: Training, kept: list[Any]) -> None:
    for p in training.model.parameters():
        p.grad = tg.ones_like(p)


def changes_gradients(training: Training, kept: list[Any]) -> None:
    for p in training.model.parameters():
        p.grad.mul_(3)
    kept.append([p.grad for p in training.model.parameters()])


def changes_parameters(training: Training, kept: list[Any]) -> None:
    with tg.no_grad():
        for p in training.model.parameters():
            p.mul_(0.5)


def replaces_data(training: Training, kept: list[Any]) -> None:
    training.model[0].bias.data = tg.ones_like(training.model[0].bias)


MEANWHILE = (
    nothing,
    holds_gradients,
    reads_gradients_later,
    reads_parameters_later,
    views_gradients,
    removes_gradients,
    puts_gradients,
    changes_gradients,
    changes_parameters,
    replaces_data,
)


def compare(place: str, meanwhile: Callable[[Training, list[Any]], None]) -> None:
    quick, plain = Training(place, tg.jit), Training(place, lambda f: f)
    held: tuple[list[Any], list[Any]] = ([], [])
    for n in range(len(RATES)):
        assert quick(n) == pytest.approx(plain(n), rel=1e-5)
        if n > 2:
            meanwhile(quick, held[0])
            meanwhile(plain, held[1])
    for found, wanted in zip(*held, strict=True):
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x.cpu().numpy(), y.cpu().numpy(), rtol=1e-4, atol=1e-6)
    for x, y in zip(quick.model.parameters(), plain.model.parameters(), strict=True):
        np.testing.assert_allclose(x.detach().cpu().numpy(), y.detach().cpu().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_steps_are_those_of_the_plain_function(meanwhile: Callable[[Training, list[Any]], None]) -> None:
    compare("cpu", meanwhile)
