"""Vectors of elements that are not contiguous: short rows of windows, and strides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilegrad as tg
import tilegrad.language as tl
from tilegrad.backend.cpu.code.lower import lower
from tilegrad.backend.cpu.target import Target
from tilegrad.ir.program import Launch

TARGETS = [Target("x86", 32, 16), Target("x86", 64, 32)]
STEPS = [-5, -4, -3, -2, -1, 2, 3, 4, 5]


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("side", [6, 8, 9, 11, 12, 14, 16, 17, 20, 23])
def test_windows_in_rows_shorter_than_a_vector(side: int, padding: int) -> None:
    """Rows of 2 to 23 positions, and of 5 taps for the gradient of the weights."""
    x, weights = tg.randn(3, 2, side, side), tg.randn(7, 2, 5, 5, requires_grad=True)
    found = tg.nn.functional.conv2d(x, weights, padding=padding)
    upstream = tg.randn(*found.shape)
    (found * upstream).sum().backward()
    padded = np.pad(x.numpy().astype(np.float64), [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), (2, 3))
    wanted = np.einsum("bcyxij,fcij->bfyx", windows, weights.detach().numpy())
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-4, atol=1e-4)
    assert weights.grad is not None
    wanted = np.einsum("bcyxij,bfyx->fcij", windows, upstream.numpy())
    np.testing.assert_allclose(weights.grad.numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target.vector_bytes))
def test_rows_shorter_than_a_vector_are_not_gathered(target: Target) -> None:
    x, weights = tg.randn(2, 6, 14, 14), tg.randn(16, 6, 5, 5)
    explanation = tg.explain(lambda x, weights: tg.nn.functional.conv2d(x, weights), x, weights)
    (launch,) = explanation.kernels.launches
    assert isinstance(launch, Launch)
    text = lower(launch.kernel, target)
    assert "masked.load" in text
    assert "masked.gather" not in text


@tg.kernel
def apart(x, out, first: tl.constexpr, step: tl.constexpr, count: tl.constexpr):
    i = tl.arange(0, count)
    tl.store(out + i, tl.load(x + first + i * step))


@given(st.sampled_from(STEPS), st.integers(1, 70), st.sampled_from(["float32", "float64", "int32", "int8", "bfloat16"]))
def test_strided_loads(step: int, count: int, dtype: str) -> None:
    """Memory before the first element and after the last is not read."""
    length = abs(step) * (count - 1) + 1
    x, out = (tg.arange(n).to(getattr(tg, dtype)) for n in (length, count))
    apart[(1,)](x, out, 0 if step > 0 else length - 1, step, count)
    np.testing.assert_array_equal(out.float().numpy(), x.float().numpy()[::step])


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target.vector_bytes))
def test_a_stride_of_two_is_not_gathered(target: Target) -> None:
    (launch,) = tg.explain(lambda x: tg.nn.functional.max_pool2d(x, 2), tg.randn(2, 3, 64, 64)).kernels.launches
    assert isinstance(launch, Launch)
    text = lower(launch.kernel, target)
    assert "masked.gather" not in text
    assert "insertelement" not in text


@pytest.mark.parametrize("columns", [5, 6, 7, 9, 11, 14])
def test_halves_of_a_load_take_their_lanes_of_a_mask_in_registers(columns: int) -> None:
    """The kernel of a scatter loads and stores with one mask, whose value exists for the whole vector."""
    random = np.random.default_rng(0)
    index = random.integers(0, 5, (3, 5, 2))
    for dtype in (np.float32, np.float64):
        x, source = (random.integers(0, 9, shape).astype(dtype) for shape in ((3, 5, columns), index.shape))
        expected = x.copy()
        for (i, j, k), to in np.ndenumerate(index):
            expected[i, to, k] += source[i, j, k]
        np.testing.assert_array_equal(
            tg.tensor(x).scatter_add(1, tg.tensor(index), tg.tensor(source)).numpy(), expected
        )
