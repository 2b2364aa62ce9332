"""Signs of float16 numbers converted from float64: LLVM must not merge both conversions."""

from __future__ import annotations

import math

import pytest

import tilegrad as tg


@pytest.mark.parametrize("name", ["tanh", "asinh", "sinh", "atan", "atanh", "erf"])
def test_odd_functions_of_one_number(name: str) -> None:
    x = tg.tensor(-0.5, dtype=tg.float64).to(tg.float16)
    assert getattr(tg, name)(x).item() == pytest.approx(getattr(math, name)(-0.5), rel=2e-3)


def test_copysign() -> None:
    x = tg.tensor(0.5, dtype=tg.float64)
    assert tg.copysign(x.float(), -x.to(tg.float16)).item() == -0.5
    assert tg.copysign(x.to(tg.float16), -x).item() == -0.5
