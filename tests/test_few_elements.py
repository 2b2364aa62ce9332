"""Tensors of a few elements are combined at once, with the results of recorded work, and in few calls."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.errors import ShapeError

CALLS = {
    "x + y": 26, "x * 0.9": 25, "2 - x": 26, "x < y": 24, "-x": 18, "x.sum().item()": 26, "x.mean()": 22,
    "(x + y).tolist()": 37,
}  # fmt: skip
"""The most Python functions that each takes, four of which allocate memory until native code does."""


def in_memory(*numbers: float, dtype: Any = None) -> tg.Tensor:
    return tg.tensor(numbers, dtype=dtype)


def is_computed(x: tg.Tensor) -> bool:
    return x._value.buffer is not None


def calls_of(use: Callable[[], Any]) -> int:
    """Count the calls of Python functions, without the one that is counted."""
    for _ in range(3):
        use()
    count = -1

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        use()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("text", CALLS)
def test_calls(text: str) -> None:
    x, y = (tg.tensor(np.arange(16, dtype=np.float32).reshape(4, 4) + n) for n in range(2))
    assert calls_of(eval(f"lambda: {text}", {"x": x, "y": y})) <= CALLS[text]


def test_sums_are_rounded_once() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 3, 16, 250):
        x = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float32)
        t = tg.tensor(x)
        assert is_computed(t.sum())
        assert t.sum().item() == np.float32(x.astype(np.longdouble).sum())
        assert t.mean().item() == pytest.approx(x.astype(np.float64).mean(), rel=1e-6)
    assert in_memory(200, 100, dtype=tg.uint8).sum().item() == 300
    assert in_memory(True, False, True).sum().item() == 2
    assert in_memory(float("inf"), 1).sum().item() == float("inf")
    assert np.isnan(in_memory(float("inf"), -float("inf")).sum().item())


def test_what_is_not_python_s_is_recorded() -> None:
    x, y = in_memory(1.0, 2.0), in_memory(3.0, 0.0)
    recorded = [
        x / y, x * in_memory(1, 2), x + in_memory(1.0), x.exp() + y, tg.tensor([1.0, 2.0], requires_grad=True) * y,
        in_memory(250, 250, dtype=tg.uint8) + in_memory(10, 10, dtype=tg.uint8), tg.ones(17) + 1, x.sum(0),
        x.half() * 2, tg.arange(6.0).reshape(2, 3).T + 1,
    ]  # fmt: skip
    assert [is_computed(z) for z in recorded] == [False] * len(recorded)
    found = [z.tolist() for z in recorded[:7]]
    assert found[0] == [pytest.approx(1 / 3), float("inf")]
    assert found[5] == [4, 4]
    with pytest.raises(ShapeError):
        x + in_memory(1.0, 2.0, 3.0)


def test_whoever_observes_programs_sees_all() -> None:
    x = in_memory(1.0, 2.0)
    with config.changed(tier="compiled"):
        assert not is_computed(x + x)
    with tg.profiler.profile() as seen:
        assert not is_computed(x + x)
        (x + x).tolist()
    assert seen is not None
    assert is_computed(x + x)
    assert not is_computed(tg.jit(lambda x: x + x)(x) * x.exp())


def test_the_elements_are_those_of_the_moment() -> None:
    x, y = in_memory(1.0, 2.0, 3.0), tg.zeros(3)
    z, w = x + y, y + x[0]
    x[0] = 9
    y += x
    array = np.ones(3, np.float32)
    shared = tg.from_numpy(array)
    before = shared * 2
    array[:] = 5
    assert (z.tolist(), w.tolist(), y.tolist()) == ([1, 2, 3], [1, 1, 1], [9, 2, 3])
    assert (before.tolist(), (shared * 2).tolist(), x._version, y._version) == ([2, 2, 2], [10, 10, 10], 1, 1)


def test_nothing_is_compiled() -> None:
    x = in_memory(*range(16), dtype=tg.float32)
    with mock.patch("tilegrad.lazy.realize.realize") as ran:
        for _ in range(50):
            x = x * 0.5 + 0.25
            assert x.sum().item() > 0
        assert not ran.called
