"""Loops are cut into equal segments, which are planned once; the results are those of one plan for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config, nn
from tilegrad.first_tier import repeated_segments, step_plan
from tilegrad.lazy.realize import structure
from tilegrad.runtime.device import device

STEPS = 40


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(repeated_segments, "MIN_VALUES", 64)
    monkeypatch.setattr(repeated_segments, "MIN_SEGMENT_VALUES", 16)
    monkeypatch.setattr(repeated_segments, "MIN_SHARED", 1.5)
    monkeypatch.setattr(step_plan, "_plans", {})
    with config.changed(tier="interpreted"):
        yield


def normal(*shape: int) -> Any:
    return tg.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32))


def recurrence() -> list[Any]:
    w, x, h = (normal(5, 5) / 4).requires_grad_(), normal(STEPS, 3, 5), tg.zeros(3, 5)
    for t in range(STEPS):
        h = (h @ w + x[t]).tanh()
    h.pow(2).sum().backward()
    return [h, w.grad]


def cells() -> list[Any]:
    tg.manual_seed(0)
    first, second = nn.LSTMCell(3, 4), nn.GRUCell(4, 5)
    x, h, loss = normal(STEPS, 2, 3), tg.zeros(2, 5), tg.zeros(())
    state = tg.zeros(2, 4), tg.zeros(2, 4)
    for t in range(STEPS):
        state = first(x[t], state)
        h = second(state[0], h)
        loss = loss + h.pow(2).mean()
    loss.backward()
    return [loss, *[p.grad for p in (*first.parameters(), *second.parameters())]]


def views() -> list[Any]:
    """Views that cross the cuts, also such as need a copy."""
    x, kept = normal(4, 6) * 1, []
    for t in range(STEPS):
        y = (x.T * 0.5).reshape(4, 6)
        x = (y + x.flip(0)).sin().unsqueeze(0).expand(2, 4, 6)[t % 2] * 1.0
        kept.append(y.T.reshape(2, 12))
    return [x, tg.stack(kept), kept[3], sum(k[1, 2:5] for k in kept)]


def slices() -> list[Any]:
    """Rows of something computed: their places differ in each iteration."""
    x = normal(STEPS, 7) * 2
    y = x.cumsum(0)
    total = tg.zeros(7)
    for t in range(STEPS):
        total = (total * 0.5 + y[t]).relu() - x[STEPS - 1 - t]
    return [total]


def integers() -> list[Any]:
    x = tg.arange(20) * 1
    for t in range(STEPS):
        x = (x * 1103515245 + 12345 + t) % 65537
        x = tg.where(x > 30000, x - 7, x + 3)
    return [x, (x > 30000).sum()]


def early_values() -> list[Any]:
    """Results of all iterations are asked for, and something early is read late."""
    x = normal(30) * 1
    first = x.exp()
    found = []
    for _ in range(STEPS):
        x = (x * 0.9 + first).sin() / 2
        found.append(x.sum())
    return [*found, first, x]


def two_loops() -> list[Any]:
    x = normal(3, 3) * 1
    for _ in range(STEPS):
        x = (x @ x).tanh() + 0.1
    y = x
    for _ in range(STEPS):
        y = (y * 1.01).cos().softmax(0).T
    return [x, y]


LOOPS = [recurrence, cells, views, slices, integers, early_values, two_loops]


def computed(loop: Callable[[], list[Any]]) -> list[Any]:
    results = loop()
    tg.compute(*results)
    return [x.detach().numpy() for x in results]


@pytest.mark.parametrize("loop", LOOPS)
def test_results_are_those_of_one_plan(loop: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    cut = []
    original = step_plan.repeated_segments
    monkeypatch.setattr(step_plan, "repeated_segments", lambda *args: cut.append(original(*args)) or cut[-1])
    got = computed(loop)
    monkeypatch.setattr(step_plan, "_plans", {})
    monkeypatch.setattr(step_plan, "repeated_segments", lambda key, order: [])
    for a, b in zip(got, computed(loop), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(cut) or loop is slices


@pytest.mark.parametrize("loop", [recurrence, cells])
def test_a_longer_loop_needs_few_new_plans(loop: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    computed(loop)
    known = len(step_plan._plans)
    monkeypatch.setitem(globals(), "STEPS", 2 * STEPS)
    computed(loop)
    assert len(step_plan._plans) <= known + 8


def test_memory_is_released_as_without_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    place: Any = device("cpu")
    peaks = []
    for n in range(3):
        if n == 2:
            monkeypatch.setattr(step_plan, "_plans", {})
            monkeypatch.setattr(step_plan, "repeated_segments", lambda key, order: [])
        x = normal(1 << 16) * 1
        x.numpy()
        place.reset_peaks()
        before = place.statistics.live
        for _ in range(STEPS):
            x = (x * 0.5).cumsum(0).sin()
        x.numpy()
        peaks.append(place.statistics.peak - before)
    assert peaks[1] <= peaks[2]  # the first one makes the steps


def test_calls_of_operators_with_several_results_are_made_once() -> None:
    calls = []

    @tg.op("tests::counted(x: F[n]) -> (values: F[n], places: int64[n])", arrays=True)
    def counted(x: Any) -> Any:
        calls.append(x)
        return np.sort(x), np.argsort(x)

    x, total = normal(20) * 1, tg.zeros(20, dtype=tg.int64)
    for _ in range(STEPS):
        x, places = counted((x * 0.5).sin())
        total = total + places * 2
    tg.compute(x, total)
    assert len(calls) == STEPS


def test_what_does_not_repeat_is_not_cut() -> None:
    x = normal(6) * 1
    ops: list[Callable[[Any], Any]] = [tg.sin, tg.exp, tg.cos, tg.tanh, tg.abs, tg.sqrt, tg.relu, lambda y: y.cumsum(0)]
    chosen = np.random.default_rng(0).integers(0, len(ops), 200)
    for n in chosen:
        x = ops[n](x)
    key, order, _, _ = structure([x.value])
    assert repeated_segments.repeated_segments(key, order) == []
