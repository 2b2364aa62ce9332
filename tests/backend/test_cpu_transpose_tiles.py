"""Transposed loads that are stored by squares of vectors."""

from __future__ import annotations

import platform
from collections.abc import Callable

import numpy as np
import pytest

import tilegrad as tg

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(64, 96), (256, 64), (33, 64), (64, 33), (3, 63, 31), (1000, 1024), (5, 7)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int16"])
def test_transposing_copies(shape: tuple[int, ...], dtype: str) -> None:
    x = (100 * numbers(*shape)).astype(dtype)
    turned = tg.jit(lambda x: x.transpose(-1, -2).contiguous() + 0)
    np.testing.assert_array_equal(turned(tg.tensor(x)).numpy(), x.swapaxes(-1, -2))


FUNCTIONS: dict[str, Callable[..., object]] = {
    "something of each row and column": lambda x, y, a, b: (x.t() + a) * b[:, None],
    "two that lie across": lambda x, y, a, b: x.t() - y.t(),
    "one across and one along": lambda x, y, a, b: x.t() + y.reshape(96, 64),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_intermediate_tiles(case: str) -> None:
    arrays = numbers(64, 96), numbers(64, 96), numbers(64), numbers(96)
    function = FUNCTIONS[case]
    x, y, a, b = arrays
    wanted = {
        "something of each row and column": (x.T + a) * b[:, None],
        "two that lie across": x.T - y.T,
        "one across and one along": x.T + y.reshape(96, 64),
    }[case]
    np.testing.assert_allclose(tg.jit(function)(*map(tg.tensor, arrays)).numpy(), wanted, rtol=1e-6, atol=1e-6)  # type: ignore[attr-defined]


def test_gathered_rows_are_transposed() -> None:
    table, entries = numbers(50, 128), RNG.integers(-50, 50, (64, 32))
    turned = tg.jit(lambda table, i: table[i].transpose(1, 2).contiguous())
    np.testing.assert_array_equal(turned(tg.tensor(table), tg.tensor(entries)).numpy(), table[entries].swapaxes(1, 2))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the assembly of x86")
def test_nothing_is_read_element_by_element() -> None:
    x = tg.tensor(numbers(1024, 512))
    text = str(tg.explain(lambda x: x.t().contiguous() + 1, x).assembly.full)
    assert "gather" not in text
    assert "vinsertps" not in text


def test_in_place_updates_happen_once() -> None:
    """The last squares overlap those before them, unless an element depends on its old value."""
    x, y = numbers(33, 47), tg.tensor(numbers(47, 33))
    before = y.numpy().copy()

    @tg.jit
    def step(x: tg.Tensor) -> None:
        y.add_(x.t())

    for n in range(3):
        np.testing.assert_allclose(y.numpy(), before + n * x.T, rtol=1e-5, atol=1e-5)
        step(tg.tensor(x))


def test_shared_subexpressions_are_analysed_once() -> None:
    """Forty sums, each of the one before it and itself: as a tree they would be 2**40 expressions."""

    def fn(x: tg.Tensor) -> tg.Tensor:
        y = x.T + 0.0
        for _ in range(40):
            y = y * 0.5 + y * 0.25
        return y

    x = numbers(48, 80)
    np.testing.assert_allclose(tg.jit(fn)(tg.tensor(x)).numpy(), x.T * 0.75**40, rtol=1e-4)
