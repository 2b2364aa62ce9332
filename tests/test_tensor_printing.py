"""Tensors print as PyTorch's do, letter for letter."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch

torch = pytorch()

rng = np.random.default_rng(0)
CASES: list[Any] = [
    [1.0, 2.0], [1.5, -2.25], [[1.0, 2.0], [3.0, 4.5]], 3.14159, 7, True, [True, False], [1, -100, 20], [], [[]],
    [0.0, 0.0],
    [1e-5, 1.0], [1e9, 1.0], [float("nan"), 1.5], [float("inf"), 1.0], [float("inf"), 1.5], [-0.0], [1e10],
    [123456.0, 0.5],
    [1e-8], [[[1.0], [2.0]], [[3.0], [4.0]]], np.zeros((0, 3), np.float32), np.zeros(0, np.int64), np.zeros((2, 0),
    np.int32),
    np.arange(30.0).astype(np.float32), np.arange(2000), np.arange(10000.0).reshape(100, 100).astype(np.float32),
    rng.normal(size=(2, 3, 4)).astype(np.float32), rng.normal(size=(40, 50)), rng.normal(size=(1, 2000)) * 1e6,
    np.arange(12).astype(np.int8).reshape(3, 4), np.ones((2, 2), np.uint8), np.ones(3, np.float16), np.ones((20, 20,
    20), np.int16),
    [999.0, 1000.0, 1.0], [1001.0, 1.0], [0.0001, 0.5], [99999999.0, 1.0], rng.integers(0, 2, (50, 30)).astype(bool),
    np.float64(2.5), np.array(3, np.int32),
]  # fmt: skip


@pytest.mark.parametrize("data", CASES, ids=lambda d: str(np.shape(d)))
def test_same_as_pytorch(data: Any) -> None:
    assert repr(tg.tensor(data)) == repr(torch.tensor(data)).replace("torch.", "tilegrad.")


def test_gradients_are_named() -> None:
    def shown(t: Any) -> list[str]:
        x = t.tensor([1.0, 2.0], requires_grad=True)
        return [
            repr(x),
            repr(x * 2),
            repr((x * 0.5).exp()),
            repr(x.detach()),
            repr(t.ones(40, requires_grad=True) * 1.5),
        ]

    assert shown(tg) == shown(torch)


def test_print_options() -> None:
    x = np.random.default_rng(1).normal(size=(8, 30))
    try:
        for options in ({"precision": 2}, {"edgeitems": 2, "threshold": 10}, {"linewidth": 40}, {"sci_mode": True}):
            torch.set_printoptions(profile="default")
            torch.set_printoptions(**options)
            tg.set_printoptions(profile="default")
            tg.set_printoptions(**options)
            assert repr(tg.tensor(x)) == repr(torch.tensor(x)).replace("torch.", "tilegrad.")
    finally:
        torch.set_printoptions(profile="default", sci_mode=None)
        tg.set_printoptions(profile="default")
