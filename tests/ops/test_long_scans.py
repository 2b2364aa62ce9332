"""Gradients of running products and extremes of long rows: not by all pairs of their elements."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.ops.scan import MAX_PAIRWISE

torch = pytorch()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("n", [MAX_PAIRWISE, MAX_PAIRWISE + 1, 100, 128, 257])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["cumprod", "cummax", "cummin"])
def test_they_are_those_of_short_ones(name: str, dtype: str, n: int, axis: int) -> None:
    rng = np.random.default_rng(n)
    x = 1 + 0.2 * rng.standard_normal((3, n)).astype(np.float32)
    x[1, n // 2] = 0
    x[2, [3, n - 2]] = 0, 0
    x, upstream = (a if axis else a.T.copy() for a in (x, rng.standard_normal((3, n)).astype(np.float32)))
    grads = []
    for library in (tg, torch):
        t = library.tensor(x).to(getattr(library, dtype)).requires_grad_()
        made = getattr(library, name)(t, axis)
        made = made if name == "cumprod" else made[0]
        (made.float() * library.tensor(upstream)).sum().backward()
        grads.append(t.grad.float().numpy())
    off = 0.05 if dtype == "bfloat16" else 1e-4
    np.testing.assert_allclose(*grads, rtol=off, atol=off * np.abs(grads[1]).max())


def test_second_derivatives_of_a_running_product() -> None:
    x = 1 + 0.1 * np.random.default_rng(0).standard_normal(80)
    x[40] = 0
    found = []
    for library in (tg, torch):
        t = library.tensor(x, requires_grad=True)
        (first,) = library.autograd.grad((t.cumprod(0) ** 2).sum(), [t], create_graph=True)
        (second,) = library.autograd.grad((first * first).sum(), [t])
        found.append(second.numpy())
    np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-8)
