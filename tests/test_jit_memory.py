"""Jitted training holds each parameter once: no copy of its elements from before the first step stays alive."""

import gc
from collections.abc import Callable
from typing import Any

import pytest

import tilegrad as tg
from tilegrad.runtime.device import device

EXTENT = 512
BYTES = EXTENT * EXTENT * 4
MARGIN = BYTES // 4
"""Bytes of losses, inputs and temporaries, at most."""


def live() -> int:
    gc.collect()
    return device("cpu").statistics.live


OPTIMIZERS: dict[str, tuple[Callable[[list[Any]], Any], int]] = {
    "SGD": (lambda parameters: tg.optim.SGD(parameters, lr=0.1), 0),
    "momentum": (lambda parameters: tg.optim.SGD(parameters, lr=0.1, momentum=0.9), 1),
    "Adam": (lambda parameters: tg.optim.Adam(parameters, lr=0.1), 2),
}
"""Optimizers, and their states in sizes of the parameters."""


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("looked_at", [False, True])
def test_parameters_are_in_memory_once(name: str, looked_at: bool) -> None:
    make, states = OPTIMIZERS[name]
    before = live()
    layer = tg.nn.Linear(EXTENT, EXTENT, bias=False)
    if looked_at:
        layer.weight.detach().numpy()
    optimizer = make(list(layer.parameters()))

    @tg.jit
    def step(x: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(tg.ones(2, EXTENT)).item()
    assert live() - before <= (2 + states) * BYTES + MARGIN, "the parameter, its gradient, and the optimizer's state"
    optimizer.zero_grad()
    assert live() - before <= (2 + states) * BYTES + MARGIN


def test_old_gradients_are_freed() -> None:
    before = live()
    weight = tg.ones(EXTENT, EXTENT).requires_grad_()
    weight.sum().backward()

    @tg.jit
    def step(x: tg.Tensor) -> tg.Tensor:
        weight.grad = None
        loss = (x @ weight).sum()
        loss.backward()
        return loss

    for _ in range(3):
        step(tg.ones(2, EXTENT)).item()
    assert live() - before <= 2 * BYTES + MARGIN


def test_values_that_others_hold_keep_their_elements() -> None:
    weight = tg.ones(EXTENT, EXTENT)
    doubled = weight * 2
    row = weight[3]
    kept = weight.detach().clone()

    @tg.jit
    def step() -> None:
        with tg.no_grad():
            weight.add_(1)

    for n in range(1, 4):
        step()
        assert weight[0, 0].item() == n + 1
        assert row[5].item() == n + 1
    assert doubled[1, 1].item() == 2
    assert kept[2, 2].item() == 1
