"""A jitted training step in its steady state allocates nothing: it frees as many bytes as it takes."""

from typing import Any

import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tilegrad import nn, optim
from tilegrad.runtime.device import device

HIDDEN = 256


def step_of(zero_first: bool, place: str = "cpu") -> Any:
    """A step that leaves its gradients behind, or one that does not."""
    model = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Dropout(0.5), nn.Linear(HIDDEN, 8)).to(place)
    optimizer = optim.Adam(model.parameters())

    @tg.jit
    def step(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        if zero_first:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if not zero_first:
            optimizer.zero_grad()
        return loss

    return step


@pytest.mark.parametrize("zero_first", [True, False])
def test_nothing_new_is_allocated(zero_first: bool) -> None:
    """The pool takes nothing from the system, and holds no more than before."""
    step, cpu = step_of(zero_first), device("cpu")
    x, y = tg.rand(32, 64), tg.zeros(32, dtype=tg.int64)
    for _ in range(3):
        loss = step(x, y)
    before = cpu.statistics
    for _ in range(10):
        loss = step(x, y)
    after = cpu.statistics
    assert (after.held, after.live) == (before.held, before.live)
    assert loss.item() > 0


@pytest.mark.parametrize("zero_first", [True, False])
def test_the_old_gradients_make_room_for_the_new(zero_first: bool) -> None:
    """The null device counts every byte, and frees it at once."""
    step, null = step_of(zero_first, "null"), device("null")
    x, y = tg.zeros(32, 64, device="null"), tg.zeros(32, dtype=tg.int64, device="null")
    for _ in range(3):
        loss = step(x, y)
    live = null.usage.live
    null.usage.peak = live
    loss = step(x, y)
    assert null.usage.peak - live <= 64
    assert loss.shape == ()
