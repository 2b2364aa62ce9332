"""Work that was recorded for long and never looked at: no walk over it may be deeper than Python allows."""

import sys
import threading
from collections.abc import Callable

import pytest

import tilegrad as tg


def added_in_place(n: int) -> tg.Tensor:
    p = tg.zeros(3).realize()
    for _ in range(n):
        p.add_(1)
    return p


def overlapping_writes(n: int) -> tg.Tensor:
    p = tg.zeros(1000)
    tg.compute(p)
    for i in range(n):
        p[i : i + 2].add_(1)
    return p


def assigned_items(n: int) -> tg.Tensor:
    y = tg.zeros(n)
    for i in range(n):
        y[i] = i
    return y


def pointwise(n: int) -> tg.Tensor:
    x = tg.ones(4)
    for _ in range(n):
        x = x + 1
    return x


def held(n: int) -> tg.Tensor:
    xs = [tg.zeros(3).realize()]
    for _ in range(n):
        xs.append(xs[-1] * 1 + 1)
    return xs[-1]


def views_of_views(n: int) -> tg.Tensor:
    x = tg.arange(4).float()
    for _ in range(n):
        x = x.view(2, 2).t().reshape(4)[:]
    return x


def chosen(n: int) -> tg.Tensor:
    x = tg.ones(4)
    for i in range(n):
        x = tg.where(x > i, x, x + 1)
    return x


def joined(n: int) -> tg.Tensor:
    x = tg.ones(2)
    for _ in range(n // 4):
        x = tg.cat([x[1:], x[:1] + 1])
    return x


def scanned_by_hand(n: int) -> tg.Tensor:
    h, x = tg.zeros(2), tg.ones(n, 2)
    for t in range(n):
        h = h * 0.5 + x[t]
    return h


def powers(n: int) -> tg.Tensor:
    x = tg.ones(2)
    for k in range(n):
        x = (x * 2 if k % 2 else x / 2).abs()
    return x


CHAINS: dict[Callable[[int], tg.Tensor], tuple[int, Callable[[int], float]]] = {
    added_in_place: (400, lambda n: 3.0 * n), overlapping_writes: (60, lambda n: 2.0 * n),
    assigned_items: (250, lambda n: n * (n - 1) / 2),
    pointwise: (5000, lambda n: 4.0 * (n + 1)), held: (1500, lambda n: 3.0 * n), views_of_views: (600, lambda n: 6.0),
    chosen: (400, lambda n: 4.0 * n), joined: (120, lambda n: 2.0 + n // 4),
    scanned_by_hand: (250, lambda n: 4.0 * (1 - 0.5**n)), powers: (1000, lambda n: 2.0),
}  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.__name__)
def test_a_long_chain_is_read(chain: Callable[[int], tg.Tensor]) -> None:
    n, expected = CHAINS[chain]
    assert chain(n).sum().item() == pytest.approx(expected(n))
    assert sys.getrecursionlimit() == 1000


@pytest.mark.parametrize("chain", [added_in_place, assigned_items, held], ids=lambda chain: chain.__name__)
def test_a_long_chain_is_read_by_another_thread(chain: Callable[[int], tg.Tensor]) -> None:
    n, expected = CHAINS[chain]
    x, found = chain(n + 3), list[float]()
    reader = threading.Thread(target=lambda: found.append(x.sum().item()))
    reader.start()
    reader.join()
    assert found == [pytest.approx(expected(n + 3))]


def added(x: tg.Tensor) -> tg.Tensor:
    y = x * 1
    return y.add_(1)


STEPS: dict[str, tuple[int, Callable[[tg.Tensor], tg.Tensor], float]] = {
    # how often, the step, and the derivative of all of them
    "pointwise": (400, lambda x: x * 1.001 + 0.001, 1.001**400), "in place": (400, added, 1.0),
    "turned": (300, lambda x: x.view(2, 2).t().reshape(4) + 0, 1.0),
    "chosen": (20, lambda x: tg.where(x > 2, x, x + 1), 1.0),
}  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
def test_gradients_of_a_long_chain(step: str) -> None:
    count, fn, slope = STEPS[step]
    x = start = tg.tensor([0.1, 0.2, 0.3, 0.4], requires_grad=True)
    for _ in range(count):
        x = fn(x)
    x.sum().backward()
    assert start.grad.tolist() == pytest.approx([slope] * 4, rel=1e-3)


@pytest.mark.parametrize("step", STEPS)
def test_a_long_chain_under_jit(step: str) -> None:
    count, fn, _ = STEPS[step]

    def run(x: tg.Tensor) -> tg.Tensor:
        for _ in range(count):
            x = fn(x)
        return x

    start = tg.tensor([0.1, 0.2, 0.3, 0.4])
    assert tg.jit(run)(start).tolist() == pytest.approx(run(start).tolist(), rel=1e-3)
