"""`tg.checkpoint`: the same numbers in less memory, jitted or not. Memory is that of plans for the null device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tests.checklist import checklist
from tests.schedule.programs import given, labels, least_arena, program
from tests.schedule.test_counts import Block
from tilegrad import nn, optim
from tilegrad.ir.program import Launch, Program
from tilegrad.lazy.realize import compiled_programs

LAYERS = 4


class Deep(nn.Module):
    """Blocks one after the other, checkpointed or not."""

    def __init__(self, blocks: list[nn.Module], width: int, kept: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, 10)
        self.kept = kept

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        for block in self.blocks:
            apply = lambda x, block=block: F.dropout(block(x), 0.1)  # noqa: E731
            x = apply(x) if self.kept else tg.checkpoint(apply, x, use_reentrant=False)
        return self.head(x)


def step_of(model: nn.Module) -> Any:
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def planned(kept: bool, jitted: bool, rows: int = 512) -> Program:
    step = step_of(Deep([Block(32) for _ in range(LAYERS)], 32, kept).to("null"))
    if jitted:
        return program(step, given(rows, 32), labels(rows))
    before = set(map(id, compiled_programs()))
    step(given(rows, 32), labels(rows))
    made = [c.program for c in compiled_programs() if id(c) not in before]
    return max(made, key=lambda p: len(p.steps))


def scores(made: Program, rows: int) -> int:
    """The most that may live at a time, in tensors of attention scores."""
    return -(-int(made.arena) // (4 * rows * rows))


@pytest.mark.parametrize("jitted", [True, False])
@checklist(182)
def test_it_takes_the_memory_of_one_block(jitted: bool) -> None:
    """Each block has a matrix of scores, and two in its gradient; without checkpoints, as many as there are blocks."""
    rows = 512
    kept, anew = planned(True, jitted, rows), planned(False, jitted, rows)
    assert scores(kept, rows) >= 2 * LAYERS
    assert scores(anew, rows) <= 4
    assert int(anew.arena) <= 1.1 * least_arena(anew)
    launches = [sum(isinstance(s, Launch) for s in made.steps) for made in (kept, anew)]
    assert launches[0] < launches[1] <= 1.5 * launches[0]


@pytest.mark.parametrize("jitted", [True, False])
def test_the_numbers_are_the_same(jitted: bool) -> None:
    """Dropout drops the same again; and the parameters that were updated are not those that are computed with."""
    found = []
    for kept in (True, False):
        tg.manual_seed(3)
        model = Deep([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)], 8, kept)
        step = step_of(model)
        run = tg.jit(step) if jitted else step
        x, y = tg.randn(6, 8), tg.tensor([1, 2, 3, 4, 5, 6])
        losses = [run(x, y).item() for _ in range(3)]
        found.append((losses, [p.detach().numpy() for p in model.parameters()]))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5)
    for ours, wanted in zip(found[1][1], found[0][1], strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-6)


def test_keywords_go_to_the_function() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = tg.checkpoint(lambda x, power: x**power, x, power=3)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 12.0]
    z = tg.checkpoint(lambda x: x * 2)(x=x)
    assert z.tolist() == [2.0, 4.0]
