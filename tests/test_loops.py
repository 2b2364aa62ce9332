"""Loops without `jit`: what a step leaves behind is computed with what it looks at: all steps have the same to do."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import nn
from tilegrad.lazy.evaluation import live_bytes
from tilegrad.lazy.realize import compiled_programs

F = nn.functional

pytestmark = pytest.mark.usefixtures("compiled")


def programs_and_bytes(step: Callable[[], Any]) -> list[tuple[int, int]]:
    """Compiled programs and held bytes after the third and the sixth step."""
    seen = []
    gc.collect()  # what other tests left
    for _ in range(2):
        for _ in range(3):
            step()
        seen.append((len(compiled_programs()), live_bytes()))
    return seen


def by_hand(w: tg.Tensor) -> None:
    with tg.no_grad():
        w -= 0.1 * w.grad
    w.grad = None


def through_data(w: tg.Tensor) -> None:
    w.data.add_(-0.1 * w.grad.data)
    w.grad.zero_()


@pytest.mark.parametrize("update", [by_hand, through_data])
def test_parameters_that_are_updated_by_hand(update: Callable[[tg.Tensor], None]) -> None:
    x, w = tg.ones(4, 3), tg.ones(3, 2, requires_grad=True)
    losses = []

    def step() -> None:
        loss = (x @ w).square().mean()
        losses.append(loss.item())
        loss.backward()
        update(w)

    early, late = programs_and_bytes(step)
    assert early == late
    exact = [9.0 * 0.7 ** (2 * n) for n in range(6)]  # each entry of w is 1 - 0.1 * 3 * itself afterwards
    np.testing.assert_allclose(losses, exact, rtol=1e-5)


@pytest.mark.parametrize("dtype", [tg.float32, tg.bfloat16, tg.int32])
def test_numbers_that_change_are_given_to_the_program(dtype: tg.DType) -> None:
    x, n = tg.ones(3, dtype=dtype), iter(range(1, 100))
    seen = []

    def step() -> None:
        seen.append((x * next(n) - 2 + 4 * x * (next(n) + 1)).tolist())

    early, late = programs_and_bytes(step)
    assert early == late
    assert seen == [[float(k - 2 + 4 * (k + 2))] * 3 for k in range(1, 12, 2)]


def test_a_rate_that_falls() -> None:
    w, steps = tg.ones(3, requires_grad=True), iter(range(100))

    def step() -> None:
        (w * w).sum().backward()
        with tg.no_grad():
            w.sub_(0.1 / (next(steps) + 1) * w.grad)
        w.grad = None
        w.sum().item()

    early, late = programs_and_bytes(step)
    assert early == late
    np.testing.assert_allclose(w.detach().numpy(), np.prod([1 - 0.2 / (n + 1) for n in range(6)]), rtol=1e-6)


def test_a_number_is_no_tensor_in_memory() -> None:
    x, y = tg.ones(3), tg.tensor(5.0)
    for number in (2.0, 3.0, 4.0):
        assert (x * y).tolist() == [5.0] * 3
        assert (x * number).tolist() == [number] * 3


def test_exponents_belong_to_the_program() -> None:
    x = tg.tensor([3.0, -2.0])
    assert [(x**n).tolist() for n in (2, 3, 4, 0.5)][:3] == [[9.0, 4.0], [27.0, -8.0], [81.0, 16.0]]
    assert (x + 0.0).tolist() == (x - -0.0).tolist() == [3.0, -2.0]


def test_running_statistics() -> None:
    tg.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    x, y = tg.randn(8, 3), tg.arange(8) % 2

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    early, late = programs_and_bytes(step)
    assert early == late
    before = len(compiled_programs())
    assert model[1].num_batches_tracked.item() == 6
    assert model[1].running_mean.numpy().any()
    assert len(compiled_programs()) == before


def test_sums_over_a_loop() -> None:
    total, seen, table = tg.zeros(()), tg.zeros((), dtype=tg.int64), tg.zeros(3)
    x = tg.tensor([1.0, 2.0, 3.0])

    def step() -> None:
        nonlocal total
        result = x.exp()
        total += result.sum()
        seen.add_(1)
        table[1] += result[0]
        result.max().item()

    early, late = programs_and_bytes(step)
    assert early == late
    assert seen.item() == 6
    np.testing.assert_allclose([total.item(), table[1].item()], [6 * np.exp([1, 2, 3]).sum(), 6 * np.e], rtol=1e-5)


def test_what_is_written_while_vmap_maps_is_left_to_it() -> None:
    outside = tg.tensor([1.0, 2.0])

    def shifted(row: tg.Tensor) -> tg.Tensor:
        own = tg.zeros(2)
        own.copy_(row)
        return own + (outside * 2).sum().item()

    np.testing.assert_array_equal(tg.vmap(shifted)(tg.ones(3, 2)).numpy(), np.full((3, 2), 7.0))


def test_a_history_is_kept() -> None:
    x = tg.ones(3, requires_grad=True)
    y = x * 2
    y.mul_(3)
    assert tg.ones(2).sum().item() == 2
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full(3, 6.0))


def carried(n: int, memory: list[tg.Tensor]) -> tg.Tensor:
    """A state that goes from step to step without its history."""
    made = (memory[-1] * 2).tanh()
    memory[:] = [made.detach()]
    return made.sum()


def rows(n: int, memory: list[tg.Tensor]) -> tg.Tensor:
    return tg.stack([memory[0][n], memory[0][n + 1 : n + 4].sum(0)]).exp().sum()


def rows_of_a_view(n: int, memory: list[tg.Tensor]) -> tg.Tensor:
    return memory[0].view(-1, 2, 2)[n : n + 2].exp().sum()


def shuffled(n: int, memory: list[tg.Tensor]) -> tg.Tensor:
    if not n:
        memory[1:] = [tg.randperm(20)]
    return memory[0][memory[1][2 * n : 2 * n + 2]].sum()


def drawn(n: int, memory: list[tg.Tensor]) -> tg.Tensor:
    """Data that nobody has looked at as a whole."""
    if not n:
        memory[1:] = [tg.randn(20, 3) * 2 + 1]
    return memory[1][2 * n : 2 * n + 2].square().sum()


@pytest.mark.parametrize("batch", [carried, rows, rows_of_a_view, shuffled, drawn])
def test_batches_of_a_loop_have_one_program(batch: Callable[[int, list[tg.Tensor]], tg.Tensor]) -> None:
    memory = [tg.tensor(np.arange(80, dtype=np.float32).reshape(20, 4) / 80)]
    turns = iter(range(6))
    early, late = programs_and_bytes(lambda: batch(next(turns), memory).item())
    assert early[0] == late[0]


def test_rows_that_are_copied_are_still_a_view() -> None:
    x = tg.tensor(np.arange(12, dtype=np.float32).reshape(6, 2))
    part, none = x[2:4], x[1:1]
    assert (part * 2).sum().item() == 2 * (4 + 5 + 6 + 7)
    assert none.sum().item() == 0
    part += 1
    assert x[2].tolist() == [5, 6]
    x[3] = 0
    assert part.tolist() == [[5, 6], [0, 0]]
    np.testing.assert_array_equal(x[::2][1:2].flip(1).numpy(), [[6, 5]])
