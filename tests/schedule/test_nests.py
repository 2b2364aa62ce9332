"""Reductions of reductions where rows and columns have one varying size: each takes a loop of its own."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg

SIZES = (3, 2, 5, 40, 2100)
"""The first two have a program made for all sizes; the last one is longer than a turn of its loops."""


@pytest.mark.parametrize("outer", ["sum", "amax", "mean"])
@pytest.mark.parametrize("inner", ["sum", "amax", "mean"])
def test_reduced_rows_are_reduced_once_for_each_column(inner: str, outer: str) -> None:
    @tg.jit
    def reduced(x: tg.Tensor) -> tg.Tensor:
        return getattr(getattr(x, inner)(1).expand(x.shape), outer)(0)  # type: ignore[no-any-return]

    for n in SIZES:
        x = np.random.default_rng(n).random((n, n))
        row = getattr(np, inner)(x, 1)
        np.testing.assert_allclose(reduced(tg.tensor(x)).numpy(), row * n if outer == "sum" else row, rtol=1e-9)
