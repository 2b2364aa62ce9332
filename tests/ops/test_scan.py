"""Running logs of sums in blocks: their values and gradients are those of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch


@pytest.mark.parametrize(("shape", "axis"), [((300,), 0), ((33,), 0), ((3, 70), 1), ((50, 2), 0)])
def test_logcumsumexp(shape: tuple[int, ...], axis: int) -> None:
    torch = pytorch()
    rng = np.random.default_rng(0)
    array, upstream = rng.standard_normal(shape) * 20, rng.standard_normal(shape)
    x, theirs = tg.tensor(array).requires_grad_(), torch.tensor(array, requires_grad=True)
    found, wanted = x.logcumsumexp(axis), theirs.logcumsumexp(axis)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-12)
    found.backward(tg.tensor(upstream))
    wanted.backward(torch.tensor(upstream))
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-7, atol=1e-9)


def test_logcumsumexp_of_what_is_not_finite() -> None:
    torch = pytorch()
    array = np.random.default_rng(1).standard_normal(100)
    array[:20] = -np.inf
    for place, number in ((90, np.inf), (70, np.nan)):
        array[place] = number
        np.testing.assert_allclose(tg.tensor(array).logcumsumexp(0).numpy(), torch.tensor(array).logcumsumexp(0))
    x = tg.tensor(array[:60]).requires_grad_()
    x.logcumsumexp(0)[30:].sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
