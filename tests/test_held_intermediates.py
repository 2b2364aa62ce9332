"""The value of a live tensor is computed once, however often and wherever it is read; counted in work, not in time."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.deferred import part
from tilegrad.ir.graph import topological
from tilegrad.lazy import held_intermediates
from tilegrad.lazy.evaluation import live_bytes


@pytest.fixture(params=["compiled", "interpreted", "counted"], autouse=True)
def tier(request: pytest.FixtureRequest) -> Iterator[None]:
    with config.changed(tier=request.param):
        yield


def waiting(x: tg.Tensor) -> int:
    """Count the values, of those that a tensor depends on, that are not computed."""
    return sum(v.buffer is None for v in topological([x.own_value()], lambda v: v.buffer is not None))


def cat_of_tokens(length: int) -> tuple[list[int], Any]:
    """A loop that looks at the next token alone."""
    weight, tokens = tg.arange(30.0).reshape(6, 5).sin(), tg.tensor([1, 2])
    sizes = []
    for _ in range(length):
        following = (weight[tokens].sum(0).argmax() + tokens.sum()).reshape(1) % 6
        tokens = tg.cat([tokens, following])
        following.item()
        sizes.append(waiting(tokens))
    return sizes, tokens.tolist()


def hidden_state(length: int) -> tuple[list[int], Any]:
    """A recurrence of which one number is looked at."""
    weight, h = tg.arange(9.0).reshape(3, 3).cos(), tg.ones(1, 3)
    sizes = []
    for _ in range(length):
        h = tg.tanh(h @ weight)
        (h.sum() * 2).item()
        sizes.append(waiting(h))
    return sizes, h.tolist()


def hidden_state_with_gradients(length: int) -> tuple[list[int], Any]:
    weight, h = tg.arange(9.0).reshape(3, 3).cos().requires_grad_(), tg.ones(1, 3)
    sizes = []
    for _ in range(length):
        h = tg.tanh(h @ weight)
        (h.sum() * 2).item()
        sizes.append(waiting(h))
    h.sum().backward()
    assert weight.grad is not None
    return sizes, weight.grad.tolist()


def view_of_a_cache(length: int) -> tuple[list[int], Any]:
    """A cache of which a view is held."""
    last = cache = tg.zeros(1, 4)
    sizes = []
    for n in range(length):
        cache = tg.cat([last, tg.full((1, 4), n * 1.5)])
        last = cache[-2:]
        last.sum().item()
        sizes.append(waiting(last))
    return sizes, cache.tolist()


@pytest.mark.parametrize("loop", [cat_of_tokens, hidden_state, hidden_state_with_gradients, view_of_a_cache])
def test_loops_keep_what_they_hold(loop: Callable[[int], tuple[list[int], Any]]) -> None:
    sizes, found = loop(12)
    assert max(sizes) <= 2, "nothing but a view, or the latest piece, waits"
    with config.changed(tier="interpreted"):
        assert np.allclose(found, loop(12)[1], rtol=1e-4)


def test_history_of_what_waits_is_dropped() -> None:
    gc.collect()
    before = live_bytes()
    tokens = tg.zeros(64)
    for n in range(30):
        following = (tokens * 2).sum() + n
        tokens = tg.cat([tokens[1:], following.reshape(1)])
        following.item()
    assert live_bytes() - before <= 10 * 64 * 4


def test_large_ones_are_kept_when_they_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_intermediates, "MIN_KEPT_BYTES", 0)
    h = tg.ones(64, 64).exp() + tg.arange(64)
    h.sum().item()
    assert waiting(h)
    h.max().item()
    assert not waiting(h)


def test_memory_is_that_of_live_tensors() -> None:
    gc.collect()
    before = live_bytes()

    def step() -> tg.Tensor:
        h = tg.arange(100.0).exp()
        y = (h * 2).tanh()
        y.sum().item()
        return y

    y = step()
    assert live_bytes() - before <= 2 * y.numel() * y.element_size()
    del y
    assert live_bytes() == before
    chain = tg.ones(8)
    for _ in range(20):
        chain = chain * 1.5
        chain.sum().item()
    assert live_bytes() - before <= 2 * 8 * 4, "no history is kept"


class Holder:
    def __init__(self, x: tg.Tensor) -> None:
        self.x, self.own = x, self


@pytest.mark.parametrize("collected", [False, True])
def test_the_garbage_collector_decides_nothing(collected: bool) -> None:
    chosen: list[int] = []
    real = held_intermediates.kept_values

    def noted(*args: Any) -> Any:
        found = real(*args)
        chosen.append(len(found))
        return found

    h = tg.arange(5.0).exp()
    total = (h * 3).sum()
    Holder(h)
    del h
    if collected:
        gc.collect()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tilegrad.lazy.realize.part", lambda module, name: noted if name == "kept_values" else part(module, name)
        )
        total.item()
    assert chosen == [1]
    gc.collect()


def test_threads_keep_their_own() -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(hidden_state(10))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert all(max(sizes) == 0 for sizes, _ in found)
    assert all(np.allclose(values, found[0][1]) for _, values in found)
