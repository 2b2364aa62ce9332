"""Fused statements compute the same as separate ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
from tilegrad.backend.cpu.code.lower import lower
from tilegrad.backend.cpu.code.prefetch import PrefetchTile, _share
from tilegrad.backend.cpu.target import Target
from tilegrad.ir.program import Launch
from tilegrad.ir.tile import Literal, Load

ROWS, COLUMNS = 13, 21


@tg.kernel
def update(x, out):
    i, j = tl.arange(0, 13), tl.arange(0, 21)
    place = i[:, None] * 21 + j[None, :]
    state = tl.load(out + place)
    moment = tl.load(out + 273 + place)
    slope = tl.exp(tl.load(x + place)) * state
    moment = moment * 0.5 + slope
    tl.store(out + 273 + place, moment)
    tl.store(out + place, state - moment)


def updated(x: Any, out: Any) -> Any:
    moment = out[273:546] * 0.5 + np.exp(x) * out[:273]
    return np.concatenate([out[:273] - moment, moment, out[546:]])


@tg.kernel
def shifted(x, out):
    i, j = tl.arange(0, 13), tl.arange(0, 21)
    place = i[:, None] * 21 + j[None, :]
    double = tl.load(x + place) * 2
    tl.store(out + place, double)
    later = tl.load(out + 1 + place)
    tl.store(out + 1 + place, later + double)


def shifted_in_numpy(x: Any, out: Any) -> Any:
    out = np.concatenate([x * 2, out[273:]])
    out[1:274] += x * 2
    return out


@tg.kernel
def overlapping(x, out):
    i, j = tl.arange(0, 13), tl.arange(0, 21)
    place = i[:, None] * 21 + j[None, :]
    double = tl.load(x + place) * 2
    tl.store(out + 8 + place, double)
    tl.store(out + place, double + 1)


def overlapped(x: Any, out: Any) -> Any:
    out = out.copy()
    out[8:281] = x * 2
    out[:273] = x * 2 + 1
    return out


@tg.kernel
def turned(x, out):
    i, j = tl.arange(0, 13), tl.arange(0, 13)
    place = i[:, None] * 13 + j[None, :]
    state = tl.zeros((13, 13), tl.float32)
    state = tl.load(x + place)
    for _ in range(3):
        other = state + tl.trans(state)
        state = other * 0.5
        tl.store(out + place, state - other)
    tl.store(out + 169 + place, state)


def turned_in_numpy(x: Any, out: Any) -> Any:
    state = x[:169].reshape(13, 13)
    for _ in range(3):
        other = state + state.T
        state = other * 0.5
    return np.concatenate([(state - other).ravel(), state.ravel(), out[338:]])


@tg.kernel
def product_in_place(x, out):
    i, j = tl.arange(0, 13), tl.arange(0, 13)
    place = i[:, None] * 13 + j[None, :]
    total = tl.zeros((13, 13), tl.float32)
    total = tl.dot(tl.load(out + place), tl.load(x + place), total)
    tl.store(out + place, total * 2)


def product_in_numpy(x: Any, out: Any) -> Any:
    total = out[:169].reshape(13, 13) @ x[:169].reshape(13, 13)
    return np.concatenate([total.ravel() * 2, out[169:]])


@tg.kernel
def product_used_twice(x, out):
    i, j = tl.arange(0, 13), tl.arange(0, 21)
    place = i[:, None] * 21 + j[None, :]
    left = i[:, None] * 13 + i[None, :]
    total = tl.zeros((13, 21), tl.float32)
    total = tl.dot(tl.load(x + left), tl.load(x + place), total)
    level = tl.sigmoid(total + tl.load(x + j)[None, :])
    tl.store(out + place, level, mask=(i < 11)[:, None])
    sums = tl.sum(total, axis=1)
    tl.store(out + 273 + place, level * sums[:, None])


def used_twice(x: Any, out: Any) -> Any:
    total = x[:169].reshape(13, 13) @ x.reshape(13, 21)
    level = 1 / (1 + np.exp(-(total + x[:21])))
    first = np.where(np.arange(13)[:, None] < 11, level, out[:273].reshape(13, 21))
    return np.concatenate([first.ravel(), (level * total.sum(1, keepdims=True)).ravel(), out[546:]])


CASES = [
    (update, updated),
    (shifted, shifted_in_numpy),
    (overlapping, overlapped),
    (turned, turned_in_numpy),
    (product_in_place, product_in_numpy),
    (product_used_twice, used_twice),
]


@pytest.mark.parametrize("kernel, meaning", CASES, ids=[meaning.__name__ for _, meaning in CASES])
def test_order_of_statements_does_not_matter(kernel: Any, meaning: Callable[[Any, Any], Any]) -> None:
    rng = np.random.default_rng(0)
    x, out = rng.standard_normal(273).astype(np.float32), rng.standard_normal(600).astype(np.float32)
    given = tg.tensor(out)
    kernel[(1,)](tg.tensor(x), given)
    np.testing.assert_allclose(given.numpy(), meaning(x, out), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("m, n, k", [(5, 3, 2), (13, 40, 5), (31, 17, 130), (6, 16, 33), (12, 48, 8)])
def test_an_epilogue_reads_the_whole_sum(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    x, y, bias, more = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n), (n,), (m, n)))

    @tg.jit
    def cheap_and_dear(*given: Any) -> Any:
        x, y, bias, more = given
        return (x @ y + bias) * more, tg.exp(-abs(x @ y)) + more

    cheap, dear = cheap_and_dear(*map(tg.tensor, (x, y, bias, more)))
    product = x.astype(np.float64) @ y
    np.testing.assert_allclose(cheap.numpy(), (product + bias) * more, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dear.numpy(), np.exp(-abs(product)) + more, rtol=1e-4, atol=1e-4)


def test_a_product_with_an_epilogue_has_no_memory() -> None:
    x, y = tg.ones(64, 32), tg.ones(32, 64)
    (launch,) = tg.explain(lambda x, y: tg.relu(x @ y), x, y).kernels.launches
    assert isinstance(launch, Launch)
    assert "acc.tile = alloca" not in lower(launch.kernel, Target("x86", 32, 16))


@pytest.mark.parametrize(
    ("rows", "target", "asks"),
    [
        (48, Target("x86", 32, 16), True),
        (8, Target("x86", 32, 16), False),
        (48, Target("x86", 64, 32), True),
        (48, Target("x86", 64, 32, l3_bytes=64 << 20), False),
    ],
)
def test_operands_of_the_next_iteration_are_prefetched(rows: int, target: Target, asks: bool) -> None:
    x, y = tg.empty(rows, 4096), tg.empty(4096, 4096)
    (launch,) = tg.explain(lambda x, y: x @ y, x, y).kernels.launches
    assert isinstance(launch, Launch)
    assert ("i32 0, i32 2, i32 1)" in lower(launch.kernel, target)) is asks


def test_blocks_prefetch_all_operands_of_the_next_iteration() -> None:
    load = Load(Literal(0))
    for rows, lines, blocks in [(256, 16, 430), (7, 12, 5), (256, 8, 22), (100, 5, 1000)]:
        share = _share(PrefetchTile(load, 1, rows, lines), blocks)
        assert share * blocks >= rows * lines
        assert lines % share == 0 or share % lines == 0
