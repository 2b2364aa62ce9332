"""Sums of products of bfloat16 numbers that are read in pairs."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg


def rows(x: Any, w: Any) -> Any:
    return tg.jit(lambda x, w: tg.nn.functional.linear(x, w))(x, w).float().numpy()


@pytest.mark.parametrize("count", [1, 8, 31, 32, 33, 64, 95, 100, 1030])
def test_rows_times_one_row(count: int) -> None:
    x, w = tg.randn(1, count).bfloat16(), tg.randn(7, count).bfloat16()
    expected = x.float().numpy().astype(np.float64) @ w.float().numpy().T.astype(np.float64)
    np.testing.assert_allclose(rows(x, w), expected, rtol=1e-2, atol=1e-2 * np.sqrt(count))


@pytest.mark.parametrize("place", range(0, 70, 9))
@pytest.mark.parametrize("odd", [float("inf"), float("nan"), -3e38, 1e-40])
def test_numbers_out_of_range_anywhere(place: int, odd: float) -> None:
    values = np.zeros((3, 70), np.float32)
    values[1, place] = odd
    found = rows(tg.ones(1, 70).bfloat16(), tg.tensor(values).bfloat16())
    expected = tg.tensor(np.array([[0.0, odd, 0.0]], np.float32)).bfloat16().float().numpy()
    np.testing.assert_array_equal(found, expected)


def test_the_loop_reads_words() -> None:
    x, w = tg.randn(1, 4096).bfloat16(), tg.randn(64, 4096).bfloat16()
    source = tg.explain(lambda x, w: tg.nn.functional.linear(x, w), x, w).source()
    assert "x i32>, ptr" in source
