"""Steps that several threads begin with at once are taken one after another: what one leaves, the next one finds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import nn

F = nn.functional


@pytest.fixture
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def trained(threads: int, adam: bool) -> np.ndarray:
    """The weights after eight steps."""
    tg.manual_seed(0)
    table, layer = nn.Embedding(16, 8), nn.Linear(8, 8)
    weights = [*table.parameters(), *layer.parameters()]
    optimizer = tg.optim.AdamW(weights, lr=1e-2) if adam else tg.optim.SGD(weights, lr=1e-2)
    letters = tg.arange(64) % 16

    @tg.jit
    def step(letters: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(layer(table(letters)).relu() @ table.weight.T, letters)
        loss.backward()
        optimizer.step()
        return loss

    together = threading.Barrier(threads)
    failures: list[BaseException] = []

    def work() -> None:
        together.wait()
        try:
            for _ in range(8 // threads):
                step(letters).item()
        except BaseException as failure:
            failures.append(failure)

    team = [threading.Thread(target=work) for _ in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    assert not failures
    return layer.weight.detach().numpy()


@pytest.mark.parametrize("adam", [False, True])
def test_first_steps_from_several_threads(adam: bool, eager_switching: None) -> None:
    alone = trained(1, adam)
    for _ in range(6):
        np.testing.assert_array_equal(trained(4, adam), alone)


shared = 1.0


def test_first_calls_with_changing_numbers_and_flags(eager_switching: None) -> None:
    """Each thread calls with numbers, sizes and modes of its own; one changes a global, that plain code reads, too."""
    scaled, moved = tg.jit(lambda x, s: x * s), tg.jit(lambda x: x + shared)
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def call(k: int) -> None:
        global shared
        try:
            start.wait()
            for n in range(18):
                if k == 0:
                    shared = [1.0, 2.0, 4.0][n % 3]
                s, x = [1, 2, 0.5, 1.5, 3, 0.25][(n + k) % 6], tg.full((2 + n % 2,), float(k + 1))
                with tg.no_grad() if n % 2 else tg.enable_grad():
                    assert scaled(x, s).tolist() == [(k + 1) * s] * len(x)
                first, *rest = (moved(tg.zeros(2)) if k < 2 else tg.zeros(2) + shared).tolist()
                assert first in (1, 2, 4)
                assert rest == [first]
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
