"""Recorded work is bounded: history ends at `detach`, at updates of leaves and after a number of operations. Seen by
the programs that are compiled and by the values that wait, not by a clock.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.ir.graph import topological
from tilegrad.lazy import bounded_recording
from tilegrad.lazy.bounded_recording import CHECKED_OPS, MAX_RECORDED_OPS
from tilegrad.lazy.evaluation import live_bytes
from tilegrad.runtime import events

WARM = 4


def compiles(fn: Callable[[], object]) -> int:
    """Count the programs that are compiled meanwhile, without the instructions of the block interpreter."""
    found: list[events.TimedEvent] = []
    with events.listening(found.append):
        fn()
    return sum(e.kind == "compile" and not e.name.startswith("block") for e in found)


def waiting(x: tg.Tensor) -> int:
    """Count the values, of those that a tensor depends on, that are not computed."""
    return sum(v.buffer is None for v in topological([x.own_value()], lambda v: v.buffer is not None))


def truncated(h: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
    """Back-propagation through the last five steps."""
    h = h.detach()
    for _ in range(5):
        h = tg.tanh(h @ w)
    (g,) = tg.autograd.grad(h.square().sum(), [w])
    g.sum().item()
    return h


def by_data(h: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
    h = (h.data @ w).tanh()
    (h * 1).sum().item()
    return h


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("step", [truncated, by_data], ids=lambda step: step.__name__)
def test_history_ends_at_detach(step: Callable[[tg.Tensor, tg.Tensor], tg.Tensor]) -> None:
    w, h = tg.rand(3, 3, requires_grad=True), tg.ones(2, 3)
    for _ in range(WARM):
        h = step(h, w)
    before = waiting(h)

    def more() -> None:
        nonlocal h
        for _ in range(WARM):
            h = step(h, w)

    assert compiles(more) == 0
    assert waiting(h) <= before


def test_a_detached_value_releases_what_it_was_computed_from() -> None:
    x = tg.ones(4, requires_grad=True)
    y = (x * 2 + 1).exp()
    z = y.detach()
    tg.ones(3).exp().sum().item()  # any evaluation
    assert z._value.buffer is not None
    assert all(v.buffer is not None for v in z._value.inputs)
    gc.collect()
    y.sum().backward()
    assert x.grad is not None
    assert z.tolist() == pytest.approx(y.tolist())
    assert x.grad.tolist() == pytest.approx([2 * v for v in z.tolist()])


def written(w: tg.Tensor, gradient: tg.Tensor) -> tg.Tensor:
    with tg.no_grad():
        w -= 0.1 * gradient
    return w


def replaced(w: tg.Tensor, gradient: tg.Tensor) -> tg.Tensor:
    return (w - 0.1 * gradient).detach().requires_grad_()


@pytest.mark.parametrize("update", [written, replaced], ids=lambda update: update.__name__)
def test_steps_of_training_by_hand_run_one_by_one(update: Callable[[tg.Tensor, tg.Tensor], tg.Tensor]) -> None:
    x, w, expected = tg.tensor([1.0, 2.0]), tg.zeros(2).requires_grad_(), [0.0, 0.0]

    def steps(count: int) -> None:
        nonlocal w
        for _ in range(count):
            (g,) = tg.autograd.grad((w * x - 1).square().sum(), [w])
            w = update(w, g)
            expected[:] = [v - 0.2 * k * (v * k - 1) for v, k in zip(expected, (1.0, 2.0), strict=True)]

    steps(WARM)
    steps(WARM)  # begins without a gradient that the caller holds
    before = waiting(w)
    assert compiles(lambda: steps(WARM)) == 0
    assert waiting(w) <= before
    assert w.tolist() == pytest.approx(expected)


def counted(total: tg.Tensor, w: tg.Tensor, step: tg.optim.Optimizer) -> tg.Tensor:
    """A count of what the network finds, which nobody looks at within the loop."""
    y = tg.ones(2, 3) @ w
    total = total + (y.argmax(1) == 0).sum()
    step.zero_grad()
    y.square().sum().backward()
    step.step()
    return total


def test_history_ends_at_steps_of_an_optimizer() -> None:
    w = tg.rand(3, 3, requires_grad=True)
    step = tg.optim.SGD([w], lr=0.1)
    total = tg.zeros((), dtype=tg.int64)

    def steps() -> None:
        nonlocal total
        for _ in range(WARM):
            total = counted(total, w, step)

    steps()
    assert compiles(steps) == 0
    assert waiting(total) == 0


A, W = tg.tensor([0.9, 0.8, 0.7, 0.6]).realize(), tg.rand(4, 4, requires_grad=True)


def two_on_a_line(x: tg.Tensor) -> tg.Tensor:
    return x * 0.999 + 0.001


def three_lines(x: tg.Tensor) -> tg.Tensor:
    x = x * A
    x = x + A
    return x.sqrt()


def in_place(x: tg.Tensor) -> tg.Tensor:
    return x.mul_(A).add_(1)


def through_a_view(x: tg.Tensor) -> tg.Tensor:
    x[1:3].mul_(0.5)
    return x


def becoming_a_view(x: tg.Tensor) -> tg.Tensor:
    return (x.reshape(2, 2) + 1)[:, :].t().reshape(4)


def within_no_grad(x: tg.Tensor) -> tg.Tensor:
    with tg.no_grad():
        return (x @ W).tanh()


def looking_at_others(x: tg.Tensor) -> tg.Tensor:
    tg.full((), 2.0).sqrt().item()
    return x * A + 1


LOOPS = [
    two_on_a_line, three_lines, in_place, through_a_view, becoming_a_view, within_no_grad, looking_at_others,
]  # fmt: skip
LENGTH = 6 * MAX_RECORDED_OPS


@pytest.mark.parametrize("step", LOOPS, ids=lambda step: step.__name__)
def test_a_loop_that_nobody_looks_at_runs_in_equal_chunks(step: Callable[[tg.Tensor], tg.Tensor]) -> None:
    x, most = tg.ones(4).realize(), 0

    def loop() -> None:
        nonlocal x, most
        for n in range(LENGTH):
            x = step(x)
            if n % 64 == 0:
                most = max(most, waiting(x))

    before = live_bytes()
    assert compiles(loop) <= 10  # 12 chunks or more; a program may be compiled for each tier
    assert most <= 16 * MAX_RECORDED_OPS
    assert waiting(x) <= 16 * MAX_RECORDED_OPS
    x.sum().item()
    assert live_bytes() - before < 1 << 20


def test_chunks_give_the_same_results() -> None:
    x, y = tg.ones(4), np.ones(4, np.float32)
    values = []
    for n in range(3 * MAX_RECORDED_OPS):
        x = x * A + 1
        y = (y * A.numpy() + np.float32(1)).astype(np.float32)
        if n % 100 == 0:
            values.append((x, y))
    for mine, expected in [*values, (x, y)]:
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-5)


def test_large_operands_are_not_kept_by_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    most_bytes, count, rows = 1 << 20, 4 * CHECKED_OPS, 1 << 14
    monkeypatch.setattr(bounded_recording, "MAX_RECORDED_BYTES", most_bytes)
    tg.ones(3).realize()
    total, most, before = tg.zeros(()), 0, live_bytes()
    for n in range(count):
        total = total + tg.tensor(np.full(rows, float(n), np.float32))[:8].sum()
        most = max(most, live_bytes() - before)
    assert most < 3 * most_bytes < 4 * rows * count
    assert total.item() == pytest.approx(8 * sum(range(count)))


def test_work_that_a_gradient_needs_is_not_computed_separately() -> None:
    """Statistics beside a network, as those of a batch normalisation, wait for its step."""
    x = w = tg.ones(4, requires_grad=True)
    total = tg.zeros(4)
    for _ in range(20):
        x = x * 1.001
        for _ in range(MAX_RECORDED_OPS // 16):
            total = total + x.detach()
    assert x._value.buffer is total._value.buffer is None
    x.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == pytest.approx([1.001**20] * 4, rel=1e-3)


def test_work_of_which_little_can_be_computed_is_examined_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics that wait for the step of a network, and a count of batches that does not."""
    examine, examined = bounded_recording._waiting, []
    monkeypatch.setattr(bounded_recording, "_waiting", lambda: examined.append(1) or examine())  # type: ignore[func-returns-value]
    x = tg.ones(4, requires_grad=True) * 1.001
    tg.ones(3).realize()
    batches, statistics = tg.zeros(4), []
    for _ in range(8 * MAX_RECORDED_OPS):
        statistics.append(x.detach() * 2)
        batches = batches + 1
    assert 0 < len(examined) <= 6
    assert batches.tolist() == [8 * MAX_RECORDED_OPS] * 4


def test_an_index_outside_is_found_where_its_chunk_runs() -> None:
    table, at = tg.rand(5).realize(), tg.tensor([1, 7]) * 1

    def loop() -> None:
        x = table[at]
        for _ in range(2 * MAX_RECORDED_OPS):
            x = x * 0.5 + 1

    with pytest.raises(IndexError, match="7"):
        loop()


def test_functions_are_traced_and_mapped_whole() -> None:
    def long(x: tg.Tensor) -> tg.Tensor:
        for _ in range(MAX_RECORDED_OPS):
            x = x * A + 1
        return x

    x = tg.rand(3, 4)
    expected = tg.stack([long(row) for row in x])
    for found in (tg.jit(long)(x), tg.vmap(long)(x)):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4)
