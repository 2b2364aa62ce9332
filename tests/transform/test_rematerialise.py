"""`tg.jit(fit=...)`: programs fit into the memory budget and compute the same. Memory is that of plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tests.checklist import checklist
from tests.schedule.programs import given, labels
from tests.schedule.test_counts import Block
from tilegrad import nn, optim
from tilegrad.errors import ArgumentError, BudgetError
from tilegrad.ir.program import Program
from tilegrad.ir.program_printer import peak


def step_of(model: nn.Module, make: Any = optim.SGD) -> Any:
    optimizer = make(model.parameters(), lr=0.1)

    def step(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def attending() -> nn.Module:
    return nn.Sequential(*(Block(32) for _ in range(2)), nn.Linear(32, 10)).to("null")


def whole(made: Program) -> int:
    temporaries, rest = peak(made)
    return int(temporaries) + int(rest)


def planned(fit: str | float | None) -> Any:
    tg.manual_seed(0)
    step = tg.jit(step_of(attending()), fit=fit)
    step.prepared(given(512, 32), labels(512))
    return step


@checklist(182)
def test_it_fits_and_says_what_that_costs(golden: Callable[[object], None]) -> None:
    free = planned(None)
    most = whole(free.programs[0].compiled.program)
    assert free.memory.peak == most
    assert (free.memory.values, free.memory.again) == (0, "nothing")
    costs, told = [], []
    for share in (0.85, 0.75):
        step = planned(share * most)
        found = step.memory
        assert whole(step.programs[0].compiled.program) == found.peak <= share * most
        assert found.values > 0
        assert "computed again" in str(found)
        costs.append(found.share)
        told.append(str(found))
    assert 0 < costs[0] <= costs[1] < 0.5  # as much as the forward part again, or less
    golden("\n\n".join(told))


def test_what_cannot_fit_says_how_far_it_came() -> None:
    with pytest.raises(BudgetError, match=r"fit=10,000 bytes cannot be.*and still [\d,]+ with \d+% more operations"):
        tg.jit(step_of(nn.Linear(64, 10).to("null")), fit="10kB").prepared(given(64, 64), labels(64))
    with pytest.raises(BudgetError, match=r"with [1-9]\d?% more operations"):
        tg.jit(step_of(attending()), fit="100kB").prepared(given(512, 32), labels(512))


def test_what_fits_anyway_is_not_changed() -> None:
    free, fitted = planned(None), planned("1GB")
    programs = [s.programs[0].compiled.program for s in (free, fitted)]
    assert len(programs[0].steps) == len(programs[1].steps)
    assert not fitted.programs[0].compiled.stages["rematerialise"].changed


def test_the_numbers_are_the_same() -> None:
    """Dropout's masks are drawn again, and are the same; updates in place wait for what is computed again."""
    found = []
    for fit in (None, 19_500):
        tg.manual_seed(3)
        layers = [nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Softmax(-1)) for _ in range(4)]
        model = nn.Sequential(*layers, nn.Linear(8, 10))
        step = tg.jit(step_of(model), fit=fit)
        x, y = tg.randn(64, 8), tg.arange(64) % 10
        losses = [step(x, y).item() for _ in range(3)]
        found.append((losses, [p.detach().numpy() for p in model.parameters()]))
        memory = step.memory
        assert memory is not None
        assert (memory.values > 0) is (fit is not None)
        assert fit is None or int(memory.peak) <= fit
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-6)
    for ours, wanted in zip(found[1][1], found[0][1], strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("fit", ["2 apples", "", "0GB", "0.1B", 0, -5, True, float("nan")])
def test_amounts_that_are_none(fit: Any) -> None:
    with pytest.raises(ArgumentError, match="an amount of memory is wanted, such as '2GB'"):
        tg.jit(lambda x: x, fit=fit)


def test_before_a_call_nothing_is_known() -> None:
    assert tg.jit(lambda x: x + 1, fit="1MB").memory is None


def test_gradients_that_stay_are_named() -> None:
    model = nn.Linear(64, 64).to("null")

    @tg.jit
    def step(x: tg.Tensor) -> tg.Tensor:
        model.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss

    step(given(4, 64))
    assert step.memory is not None
    assert step.memory.gradients == 4 * (64 * 64 + 64)
    assert "16.6 kB are gradients that stay: with optimizer.zero_grad()" in str(step.memory)
