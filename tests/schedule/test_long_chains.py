"""Long chains of operations that nobody looks at between: neither order of evaluation is a deep recursion."""

from collections.abc import Callable

import numpy as np
import pytest

import tilegrad as tg

LENGTH = 250


def written(n: int) -> tuple[tg.Tensor, np.ndarray]:
    """A table filled element by element."""
    x = tg.zeros(n)
    for i in range(n):
        x[i] = i
    return x, np.arange(n)


def written_where(n: int) -> tuple[tg.Tensor, np.ndarray]:
    """Elements that are wanted only under a condition on what was read before: each is read under its own guard."""
    table, at = tg.arange(float(n)), tg.arange(n)
    x = tg.zeros(n)
    for i in range(n):
        x = tg.where(at == i, table[(at + i) % n], x)
    return x, 2 * np.arange(n) % n


def discounted(n: int) -> tuple[tg.Tensor, np.ndarray]:
    """The gradient of a sum that a loop over the elements makes."""
    x = tg.ones(n, requires_grad=True)
    total = tg.zeros(())
    for element in x:
        total = total * 0.9 + element
    total.backward()
    assert x.grad is not None
    return x.grad, 0.9 ** np.arange(n)[::-1]


@pytest.mark.parametrize("make", [written, written_where, discounted])
def test_a_loop_over_elements(make: Callable[[int], tuple[tg.Tensor, np.ndarray]]) -> None:
    x, expected = make(LENGTH // 2 if make is written_where else LENGTH)
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-4, atol=1e-12)
