"""Recorded work is bounded: history ends at `detach`, at updates of leaves and after a number of operations. Seen by
the programs that are compiled and by the values that wait, not by a clock.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

import tilegrad as tg
from tilegrad.ir.graph import topological
from tilegrad.runtime import events

WARM = 4


def compiles(fn: Callable[[], object]) -> int:
    """Count the programs that are compiled meanwhile."""
    found: list[events.TimedEvent] = []
    with events.listening(found.append):
        fn()
    return sum(e.kind == "compile" for e in found)


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
    (tg.ones(3) + 1).sum().item()  # any evaluation
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
