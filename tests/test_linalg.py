"""`tilegrad.linalg` computes what numpy.linalg does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg

A = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0], [2.0, 0.0, 1.5]])
U, V = A[0], A[1]
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "cross": (tg.linalg.cross, np.cross, (U, V)),
    "vecdot": (tg.linalg.vecdot, lambda x, y: (x * y).sum(-1), (A, A[::-1].copy())),
    "vector_norm": (tg.linalg.vector_norm, lambda x: np.sqrt((x * x).sum()), (A,)),
    "matrix_norm": (tg.linalg.matrix_norm, np.linalg.norm, (A,)),
    "norm of order 1": (lambda x: tg.linalg.norm(x, 1), lambda x: np.linalg.norm(x, 1), (A,)),
    "norm of order infinity": (lambda x: tg.linalg.norm(x, float("inf")), lambda x: np.linalg.norm(x, np.inf), (A,)),
    "matrix_power": (lambda x: tg.linalg.matrix_power(x, 5), lambda x: np.linalg.matrix_power(x, 5), (A,)),
    "multi_dot": (lambda *x: tg.linalg.multi_dot(x), lambda *x: np.linalg.multi_dot(x), (A, A, U)),
    "diagonal": (tg.linalg.diagonal, np.diagonal, (A,)),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_numpy(name: str) -> None:
    ours, theirs, arguments = CASES[name]
    found = ours(*map(tg.tensor, arguments))
    np.testing.assert_allclose(found.numpy(), theirs(*arguments), rtol=1e-12)
