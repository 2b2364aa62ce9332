"""argmin and argmax with ties and NaN, in rows of every length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad.backend.cpu.code.lower import lower
from tilegrad.backend.cpu.target import Target
from tilegrad.ir.program import Launch

FLOATS = ["float16", "float32", "float64"]


@given(
    st.sampled_from([1, 2, 15, 16, 31, 32, 33, 40, 64, 100]),
    st.sampled_from([1, 3, 17]),
    st.sampled_from([*FLOATS, "int8", "int32", "int64"]),
    st.integers(0, 99),
    st.booleans(),
)
def test_the_first_of_equal_elements(length: int, others: int, dtype: str, seed: int, odd: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (others, length)).astype(dtype)
    if odd and dtype in FLOATS:
        x[rng.random(x.shape) < 1.5 / length] = np.nan
        x[rng.random(x.shape) < 0.1] = -0.0
        x[rng.random(x.shape) < 1 / length] = rng.choice([np.inf, -np.inf])
    for name in ("argmax", "argmin"):
        wanted = getattr(np, name)(x, 1)
        np.testing.assert_array_equal(getattr(tg, name)(tg.tensor(x), 1).numpy(), wanted)
        np.testing.assert_array_equal(getattr(tg, name)(tg.tensor(x.T.copy()), 0).numpy(), wanted)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("target", [Target("x86", 32, 16), Target("x86", 64, 32)], ids=lambda t: str(t.vector_bytes))
def test_argmax_is_vectorised(target: Target, axis: int) -> None:
    (launch,) = tg.explain(lambda x: tg.argmax(x, axis), tg.randn(64, 256)).kernels.launches
    assert isinstance(launch, Launch)
    lanes = target.lanes(4)
    assert f"fcmp ogt <{lanes} x float>" in lower(launch.kernel, target)
