"""Derivatives where functions have kinks, zeros and infinities: forward as in reverse, and as in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sqrt": lambda to, x: to.sqrt(x),
    "abs": lambda to, x: to.abs(x),
    "norm": lambda to, x: x.norm(),
    "norm of 1": lambda to, x: x.norm(1),
    "norm of 3": lambda to, x: x.norm(3),
    "greatest norm": lambda to, x: x.norm(math.inf),
    "prod": lambda to, x: x.prod(),
    "cumprod": lambda to, x: to.cumprod(x, 0),
    "atan2": lambda to, x: to.atan2(x, x.flip(0)),
    "hypot": lambda to, x: to.hypot(x, x * 0),
    "sinc": lambda to, x: to.sinc(x),
    "logsumexp": lambda to, x: to.logsumexp(to.cat([to.where(x > 0, x, to.full_like(x, -math.inf)), x[:1]]), 0),
    "masked": lambda to, x: to.where(x > 0, to.log(to.where(x > 0, x, x * 0 + 1)), x * 0),
    "maximum": lambda to, x: to.maximum(x, x * 0),
    "clamp": lambda to, x: x.clamp(0, 1),
    "amax": lambda to, x: x.amax(),
    "square": lambda to, x: x**2,
    "cube": lambda to, x: x**3,
    "root": lambda to, x: x**0.5,
    "power 1.5": lambda to, x: x**1.5,
    "power 0": lambda to, x: x**0,
    "powers": lambda to, x: x ** to.tensor([2.0, 0.0, 1.0, 3.0], dtype=x.dtype),
    "as exponents": lambda to, x: to.tensor([0.0, 0.0, 2.0, 1.0], dtype=x.dtype) ** x,
    "both": lambda to, x: x.abs() ** x.abs(),
    "normalize": lambda to, x: to.nn.functional.normalize(x * 0, dim=0),
    "huber": lambda to, x: to.nn.functional.huber_loss(x, x * 0),
}
POINTS = {"zeros": [0.0] * 4, "one zero": [1.0, 0.0, 2.0, 3.0], "two zeros": [1.0, 0.0, 0.0, 3.0]}
SINGULAR = {"sqrt", "root", "hypot"}
"""Their derivatives at 0 are not finite: 0 times infinity is NaN, in other places forward than in reverse."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_as_in_reverse_and_as_in_pytorch(name: str) -> None:
    fn = FUNCTIONS[name]
    for point in POINTS.values():
        x = tg.tensor(point, dtype=tg.float64)
        reverse, forward = (transform(lambda x: fn(tg, x))(x).numpy() for transform in (tg.jacrev, tg.jacfwd))
        if name not in SINGULAR:
            np.testing.assert_allclose(forward, reverse, 1e-12, 1e-12, err_msg=str(point))
            assert np.isfinite(reverse).all()
        else:
            np.testing.assert_allclose(forward.T, reverse, 1e-12, 1e-12, err_msg=str(point))
        try:
            import torch
        except ImportError:
            continue
        given = torch.tensor(point, dtype=torch.float64)
        expected = torch.autograd.functional.jacobian(lambda x: fn(torch, x), given).numpy()
        np.testing.assert_allclose(reverse, expected, 1e-12, 1e-12, err_msg=str(point))


def test_powers_at_zero() -> None:
    """Along both operands, to second order."""
    zero, two = tg.tensor(0.0), tg.tensor(2.0)

    def power(x: Any, y: Any) -> Any:
        return x**y

    assert tg.jvp(power, (zero, two), (tg.tensor(1.0), zero))[1].item() == 0
    assert tg.jvp(power, (zero, two), (zero, tg.tensor(1.0)))[1].item() == 0
    assert tg.jvp(power, (zero, zero), (tg.tensor(1.0), tg.tensor(1.0)))[1].item() == 0
    for transform in (tg.jacfwd, tg.jacrev):
        found = transform(tg.jacrev(power, (0, 1)), (0, 1))(zero, two)
        assert [[part.item() for part in row] for row in found] == [[2, 0], [0, 0]]


def test_sinc_near_zero() -> None:
    """First and second derivatives, where the quotient would lose all digits."""
    places = [0.0, 1e-9, 1e-4, 0.02, 0.049, 0.051, 0.3]
    for dtype, near in ((tg.float64, 1e-9), (tg.float32, 2e-3)):
        x = tg.tensor(places, dtype=dtype, requires_grad=True)
        (first,) = tg.autograd.grad(x.sinc().sum(), x, create_graph=True)
        (second,) = tg.autograd.grad(first.sum(), x)
        for at, a, b in zip(places, first.tolist(), second.tolist(), strict=True):
            terms = [(-1) ** n * math.pi ** (2 * n) / math.factorial(2 * n + 1) for n in range(12)]
            assert a == pytest.approx(sum(2 * n * c * at ** (2 * n - 1) for n, c in enumerate(terms) if n), abs=near)
            slopes = [2 * n * (2 * n - 1) * c * at ** (2 * n - 2) for n, c in enumerate(terms) if n]
            assert b == pytest.approx(sum(slopes), abs=near)


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16])
def test_norms_of_equal_halves(dtype: tg.DType) -> None:
    """1 / the standard deviation is 316 there, and its cube in the gradient no float16."""
    x = tg.ones(2, 4, dtype=dtype, requires_grad=True)
    made = tg.native_layer_norm(x, (4,), None, None, 1e-5)
    assert [part.dtype for part in made] == [dtype] * 3
    (slopes,) = tg.autograd.grad((made[0] * tg.tensor([1.0, 2, 3, 4], dtype=dtype)).sum(), x)
    assert slopes.float()[0].tolist() == pytest.approx([-474.3, -158.1, 158.1, 474.3], rel=0.02)
