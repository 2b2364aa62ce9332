"""Chains of scans and reductions of long rows compile, whatever is fused: their tiles fit on the stack."""

import random
from collections.abc import Callable

import numpy as np
import pytest

import tilegrad as tg

STEPS: dict[str, Callable[[tg.Tensor], tg.Tensor]] = {
    "cumsum": lambda y: y.cumsum(-1) * 0.001,
    "cummax": lambda y: y.cummax(-1).values,
    "places": lambda y: y.cummax(-1).indices * y,
    "cumprod": lambda y: y.cumprod(-1),
    "logcumsumexp": lambda y: y.logcumsumexp(-1),
    "softmax": lambda y: y.softmax(-1),
    "norm": lambda y: tg.nn.functional.layer_norm(y, y.shape[-1:]),
    "flip": lambda y: y.flip(-1),
}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("seed", range(12))
def test_chains_of_long_rows_compile(seed: int) -> None:
    draw = random.Random(seed)
    rows, extent = draw.choice([1, 2, 3]), draw.choice([65535, 131072, 200003, 262143])
    steps = [draw.choice(list(STEPS.values())) for _ in range(draw.randint(1, 3))]
    dtype = draw.choice([tg.float32, tg.float64])
    data = np.random.default_rng(seed).random((rows, extent))

    def chain(x: tg.Tensor) -> tg.Tensor:
        for step in steps:
            x = step(x)
        return x

    x = tg.tensor(data).to(dtype)
    pieces = x
    for step in steps:
        pieces = step(pieces).clone()
        pieces.numpy()
    np.testing.assert_allclose(chain(x).numpy(), pieces.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("compiled")
def test_many_scans_are_cut_into_kernels() -> None:
    x = tg.ones(1 << 18)
    for _ in range(8):
        x = x.cumsum(0) * 1e-6
    assert np.isfinite(x.numpy()).all()
