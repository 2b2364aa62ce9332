"""Programs of courses, plainly and as one jitted step: results, gradients, parameters and state are PyTorch's."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.programs.courses import COURSES, N
from tests.recorded import pytorch

STEPS = 5


def numbers(x: Any) -> list[np.ndarray]:
    """All arrays of a result."""
    return [n for part in x for n in numbers(part)] if isinstance(x, (tuple, list)) else [np.array(x.detach().numpy())]


def trained(library: Any, name: str, way: str) -> list[np.ndarray]:
    """The results of each step, and the state after some steps."""
    rng = np.random.default_rng(5)

    def draw(*shape: int) -> Any:
        return library.tensor(0.5 * rng.standard_normal(shape)).requires_grad_()

    library.set_default_dtype(library.float64)
    try:
        step, parameters, kept = COURSES[name](library, draw)
        if way != "plain" and library is tg:
            step = tg.jit(step)
        seen = []
        for n in range(STEPS):
            places = rng.integers(0, N, (N, N))
            places[:, 1] = rng.permutation(N)
            results = step(library.tensor(rng.standard_normal((N, N))), library.tensor(places))
            if way != "late" or n == STEPS - 1:
                seen += numbers(results)
                seen += numbers([*parameters, *kept])
                seen += numbers([p.grad for p in parameters])
        return seen
    finally:
        library.set_default_dtype(library.float32)


@pytest.mark.parametrize("way", ["plain", "jitted", "late"])
@pytest.mark.parametrize("name", COURSES)
def test_course(name: str, way: str) -> None:
    torch = pytorch()
    with contextlib.redirect_stderr(io.StringIO()):
        ours = trained(tg, name, way)
    theirs = trained(torch, name, way)
    assert len(ours) == len(theirs)
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.dtype == its.dtype
        np.testing.assert_allclose(mine, its, rtol=1e-7, atol=1e-9)
