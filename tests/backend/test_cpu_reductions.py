"""Reductions of several long rows in one loop."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
from tilegrad.backend.cpu.code.lower import lower
from tilegrad.backend.cpu.target import Target
from tilegrad.ir.program import Launch


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
def test_matrix_vector_products_reduce_four_rows_at_a_time(dtype: tg.dtype) -> None:
    x, w = tg.randint(-9, 9, (1, 1500)).to(dtype), tg.randint(-9, 9, (96, 1500)).to(dtype)
    product = tg.jit(lambda x, w: (x * w).sum(1) if dtype is tg.int32 else tg.nn.functional.linear(x, w))
    expected = x.double().numpy() @ w.double().numpy().T
    np.testing.assert_allclose(product(x, w).double().numpy().reshape(1, -1), expected, rtol=1e-2)
    assert "rows height=4" in str(tg.explain(product, x, w))


@pytest.mark.parametrize("dtype", [tg.float32, tg.float16, tg.int32])
@pytest.mark.parametrize("shape", [(1, 40, 24), (1, 37, 1001), (1, 8, 3)])
def test_vector_matrix_products_accumulate_in_place(dtype: tg.dtype, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, y = tg.randint(-9, 9, (m, k)).to(dtype), tg.randint(-9, 9, (k, n)).to(dtype)
    product = tg.jit(lambda x, y: x @ y)
    np.testing.assert_array_equal(product(x, y).double().numpy(), x.double().numpy() @ y.double().numpy())


@tg.kernel
def sums_of_sums(x: Any, out: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    total = tl.zeros([N], tl.float32)
    other = tl.zeros([N], tl.float32)
    for k in range(0, 16, 4):
        rows = tl.load(x + (k + tl.arange(0, 4))[:, None] * N + i[None, :])
        total += tl.sum(rows + total[None, :], axis=0)
        other = tl.max(rows, axis=0) - other
    tl.store(out + i, total)
    tl.store(out + N + i, other)


def test_an_in_place_reduction_may_read_its_accumulator() -> None:
    x, out = tg.randint(-9, 9, (16, 19)).float(), tg.empty(2, 19)
    sums_of_sums[(1,)](x, out, 19)
    total = other = np.zeros(19)
    for rows in x.numpy().reshape(4, 4, 19):
        total, other = total + (rows + total).sum(0), rows.max(0) - other
    np.testing.assert_array_equal(out.numpy(), [total, other])


@pytest.mark.parametrize(("cache", "asked"), [(32 << 20, 8), (64 << 20, 0)])
def test_only_rows_beyond_the_cache_are_prefetched(cache: int, asked: int) -> None:
    x, y = tg.empty(1, 4096), tg.empty(4096, 4096)
    (launch,) = tg.explain(lambda x, y: x @ y, x, y).kernels.launches
    assert isinstance(launch, Launch)
    text = lower(launch.kernel, Target("x86", 32, 16, l3_bytes=cache))
    assert text.count("call void @llvm.prefetch") == asked
    assert "reduced.tile = alloca" not in text
