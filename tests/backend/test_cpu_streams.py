"""Long rows that are reduced together, as streams of memory beside each other."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl


@tg.kernel
def reduced(x: Any, out: Any, FN: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr) -> None:
    rows = tl.arange(0, ROWS)
    tile = tl.load(x + rows[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out + rows, tl.max(tile, axis=1) if FN == "max" else tl.sum(tile, axis=1))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("columns", [1023, 1024, 1037, 2001])
@pytest.mark.parametrize("fn", ["sum", "max"])
def test_any_number_of_rows(rows: int, columns: int, fn: str) -> None:
    x = tg.randint(-1000, 1000, (rows, columns)).float()
    out = tg.empty(rows)
    reduced[(1,)](x, out, fn, rows, columns)
    np.testing.assert_array_equal(out.numpy(), getattr(x.numpy(), fn)(axis=1))


@pytest.mark.parametrize("dtype", [tg.float32, tg.float16, tg.bfloat16, tg.int32, tg.float64])
def test_a_matrix_by_a_vector_goes_through_four_rows_at_a_time(dtype: tg.dtype) -> None:
    x, w = tg.randint(-9, 9, (1, 1500)).to(dtype), tg.randint(-9, 9, (96, 1500)).to(dtype)
    product = tg.jit(lambda x, w: (x * w).sum(1) if dtype is tg.int32 else tg.nn.functional.linear(x, w))
    expected = x.double().numpy() @ w.double().numpy().T
    np.testing.assert_allclose(product(x, w).double().numpy().reshape(1, -1), expected, rtol=1e-2)
    assert "rows height=4" in str(tg.explain(product, x, w))
