"""Chains longer than Python's stack is deep: recorded, looked at, differentiated, deleted, pickled, explained."""

import gc
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import tilegrad as tg

LENGTH = 1200


def chosen(x: tg.Tensor, i: int) -> tg.Tensor:
    return tg.where(x > 2, x, x + 1)


STEPS: dict[str, Callable[[tg.Tensor, int], tg.Tensor]] = {
    "pointwise": lambda x, i: x * 0.5 + 1,
    "in_place": lambda x, i: (x * 1 if i == 0 else x).add_(1),
    "views": lambda x, i: x.view(2, 2).t().reshape(4),
    "chosen": chosen,
    "joined": lambda x, i: tg.cat([x[1:], x[:1] + 1]),
    "multiplied": lambda x, i: (x.view(2, 2) @ tg.eye(2)).view(4),
    "detached": lambda x, i: (x * 1).detach() if i % 2 else x + 1,
}


def step_by_step(name: str) -> np.ndarray:
    """Compute the same chain without recording anything: each step on its own."""
    x = tg.arange(4.0)
    for i in range(LENGTH):
        x = tg.tensor(STEPS[name](tg.tensor(x.numpy()), 0 if name == "in_place" else i).numpy())
    return x.numpy()


def chain(name: str, *, tracked: bool) -> tuple[tg.Tensor, tg.Tensor]:
    leaf = x = tg.arange(4.0).requires_grad_(tracked)
    for i in range(LENGTH):
        x = STEPS[name](x, i)
    return leaf, x


@pytest.mark.parametrize("name", STEPS)
def test_values(name: str) -> None:
    expected = step_by_step(name)
    np.testing.assert_allclose(chain(name, tracked=False)[1].numpy(), expected, rtol=1e-5)
    with tg.no_grad():
        np.testing.assert_allclose(chain(name, tracked=True)[1].numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(chain(name, tracked=False)[1])).numpy(), expected, rtol=1e-5)


SLOPES = {"pointwise": 0.0}
"""Derivatives of the sum that are not one."""


@pytest.mark.parametrize("name", [name for name in STEPS if name != "detached"])
def test_gradients(name: str) -> None:
    leaf, x = chain(name, tracked=True)
    x.sum().backward()
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad.numpy(), np.full(4, SLOPES.get(name, 1.0)), atol=1e-6)


@pytest.mark.parametrize("name", STEPS)
def test_deleted(name: str) -> None:
    leaf, x = chain(name, tracked=True)
    del leaf, x
    gc.collect()


@pytest.mark.parametrize("name", ["views", "chosen"])
def test_explained(name: str, compiled: None) -> None:
    assert str(tg.explain(chain(name, tracked=False)[1]))
