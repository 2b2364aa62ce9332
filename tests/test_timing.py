"""Whoever measures time measures the work: what is recorded between two looks at the clock is computed between them,
also when nobody keeps it. Seen by the kernels that are launched, not by a clock.
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tilegrad as tg
import tilegrad.torch as torch
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Input, TensorType
from tilegrad.lazy import handle, timing
from tilegrad.lazy.handle import wrap
from tilegrad.runtime import events
from tilegrad.torch import accelerator, cpu

WARM = 3


@pytest.fixture(autouse=True)
def nobody_measures() -> Iterator[None]:
    """Each test begins and ends in a process in which nobody has measured time."""
    handle.watch_with(None)
    timing._watch = timing.WorkTracker()
    yield
    handle.watch_with(None)


def seen(kind: str, fn: Callable[[], Any]) -> list[str]:
    """The names of what is launched or compiled meanwhile."""
    found: list[events.TimedEvent] = []
    with events.listening(found.append):
        fn()
    return [e.name for e in found if e.kind == kind]


X, W = tg.rand(40, 30).realize(), tg.rand(30, 20).realize()
V = tg.rand(30, 20).requires_grad_()


def several(x: Any) -> Any:
    y = x * 2
    for _ in range(5):
        y = (y + 1).relu()
    return y.sum(0), y.mean(1)


def differentiated(x: Any) -> Any:
    V.grad = None
    (x @ V).square().sum().backward()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "square": lambda x: x * x,
    "matmul": lambda x: x @ W,
    "several": several,
    "in place": lambda x: x.clone().mul_(3).add_(1),
    "through a view": lambda x: x.clone()[1:].mul_(3),
    "an item": lambda x: x.clone().__setitem__(0, 1.0),
    "reshaped": lambda x: (x * 3).reshape(-1),
    "gradient": differentiated,
    "transform": tg.grad(lambda x: (x @ W).square().sum()),
    "mapped": tg.vmap(lambda row: row.softmax(0)),
    "jitted": tg.jit(lambda x: x.softmax(1) * 2),
    "no gradient": lambda x: tg.no_grad()(lambda: (x @ V).sum())(),
    "random": lambda x: tg.rand(10, 10) + 1,
    "sorted": lambda x: x.sort(1),
}


def by_events(call: Callable[[], Any]) -> list[str]:
    """Time by events, as lectures do."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(WARM):
        call()
    start.record()

    def measured() -> None:
        call()
        end.record()

    launched = seen("launch", measured)
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    return launched


def by(synchronize: Callable[[], None]) -> Callable[[Callable[[], Any]], list[str]]:
    """Time by Python's clock between two calls of `synchronize`."""

    def measure(call: Callable[[], Any]) -> list[str]:
        synchronize()
        for _ in range(WARM):
            call()
        synchronize()

        def measured() -> None:
            call()
            synchronize()

        return seen("launch", measured)

    return measure


WAYS = {
    "events": by_events,
    "cuda": by(torch.cuda.synchronize),
    "tilegrad": by(tg.synchronize),
    "cpu": by(cpu.synchronize),
    "accelerator": by(accelerator.synchronize),
}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_the_work_is_measured(way: str, name: str) -> None:
    """All of it, once, and nothing of the warm-up; nor is anything compiled meanwhile."""
    fn = FUNCTIONS[name]

    def looked_at() -> None:
        result = fn(X)
        given = [V.grad, *(result if isinstance(result, tuple) else (result,))]
        tg.compute(*[x for x in given if isinstance(x, tg.Tensor)])

    for _ in range(WARM):
        looked_at()
    wanted = seen("launch", looked_at)
    launched = WAYS[way](lambda: fn(X))
    assert launched
    # what `looked_at` does not know of is computed too, such as the value of a function that is differentiated
    assert abs(len(launched) - len(wanted)) <= 1, (launched, wanted)
    assert not seen("compile", lambda: WAYS[way](lambda: fn(X)))
    assert WAYS[way](lambda: fn(X)) == launched


def test_ten_calls_are_ten_times_the_work() -> None:
    one = WAYS["events"](lambda: X @ W)
    kept: list[Any] = []
    assert WAYS["events"](lambda: [X @ W for _ in range(10)] and None) == one * 10
    assert WAYS["events"](lambda: kept.extend([X @ W for _ in range(10)])) == one * 10


def test_what_is_looked_at_was_computed() -> None:
    tg.synchronize()
    y = X * 2
    z = y + 1
    tg.synchronize()
    assert not seen("launch", lambda: (y.numpy(), z.numpy()))


def test_steps_to_what_was_looked_at_are_not_computed_again() -> None:
    """Intermediates are part of the program of the result; alone they may not even fit into memory."""
    tg.synchronize()
    assert tg.zeros(1 << 45).sum().item() == 0
    doubled = X * 2
    assert doubled.exp().sum().item() > 0
    del doubled
    assert not seen("launch", tg.synchronize)


def test_what_was_recorded_before_anybody_measured() -> None:
    y = X * 3
    assert seen("launch", tg.synchronize)
    assert not seen("launch", y.numpy)
    assert not seen("launch", tg.synchronize)


def test_a_view_is_no_work() -> None:
    tg.synchronize()
    views = [X.t(), X[1:], X.reshape(-1), X.expand(1 << 20, 40, 30)]
    assert not seen("launch", tg.synchronize)
    X.t()
    assert not seen("launch", tg.synchronize)
    y = (X * 2).t()
    assert len(seen("launch", tg.synchronize)) == 1
    assert y[0, 0].item() == 2 * X[0, 0].item()
    assert len(views) == 4


@pytest.mark.parametrize("traced", [0, 500])
def test_dropped_results_do_not_keep_what_they_hold(traced: int) -> None:
    """A loop that nobody ends is no leak, whatever traces have left."""
    left = [wrap(Input(TensorType(float32, (2,)), "x"))]
    for _ in range(traced):
        left.append(left[-1] * 2)
    tg.synchronize()
    made = []
    for n in range(400):
        big = tg.full((10,), float(n)).realize()
        made.append(weakref.ref(big.value.buffer))
        _ = big * 2
        del big, _
    gc.collect()
    assert sum(ref() is not None for ref in made) <= 2 * timing.MIN_DROPPED


def test_nothing_is_noted_when_nobody_measures_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert handle.watching() is None
    monkeypatch.setattr(timing, "PATIENCE", 50)
    tg.synchronize()
    assert handle.watching() is not None
    kept = [X + 1 for _ in range(60)]
    assert handle.watching() is None
    event = torch.cuda.Event(enable_timing=True)
    kept += [X + 1 for _ in range(200)]
    assert handle.watching() is not None
    del event
    kept += [X + 1 for _ in range(200)]
    assert handle.watching() is None


def test_errors_of_dropped_work_are_raised() -> None:
    tg.synchronize()
    tg.arange(5)[tg.tensor([1, 2]) * 100]
    with pytest.raises(IndexError):
        tg.synchronize()
    tg.synchronize()


def test_what_cannot_be_computed_is_tried_once() -> None:
    """Whoever holds it, the error that says so has been raised."""
    x = tg.ones(1 << 45)
    part = x + 1
    with pytest.raises(MemoryError):
        (part * 2).realize()
    tg.synchronize()
    y = tg.ones(1 << 45)
    with pytest.raises(MemoryError):
        tg.synchronize()
    tg.synchronize()
    with pytest.raises(MemoryError):
        y.realize()


def test_a_function_that_is_traced_may_measure() -> None:
    """Its first call traces it; there is nothing to be computed then."""

    @tg.jit
    def step(x: Any) -> Any:
        y = x * 2
        tg.synchronize()
        return y + 1

    for _ in range(3):
        assert step(X)[0, 0].item() == pytest.approx(2 * X[0, 0].item() + 1)
    assert tg.vmap(lambda row: (row * 2, tg.synchronize())[0])(X).shape == (40, 30)
