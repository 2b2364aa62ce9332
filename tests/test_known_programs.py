"""A structure that runs compiled is found by one look-up: for its numbers, its thread, and the settings."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tilegrad as tg
from tests.test_few_elements import calls_of
from tilegrad import config
from tilegrad.lazy import realize
from tilegrad.lazy.known_programs import forget_programs

ROOT = Path(__file__).parents[1]
MAX_CALLS = 110
"""Python functions that recording, computing and reading a sum of two tensors takes, once its program is known."""


def searches(use: Callable[[], Any]) -> int:
    """Count how often a program is searched for."""
    with mock.patch.object(realize, "_plan", wraps=realize._plan) as searched:
        use()
    return int(searched.call_count)


def many(start: float = 0.0) -> tg.Tensor:
    return tg.tensor(np.arange(start, start + 300, dtype=np.float32))


def known_work() -> int:
    x, y = many(), many(1.0)
    for _ in range(4):
        (x + y).numpy()
    return calls_of(lambda: (x + y).numpy())


def test_known_work_takes_few_calls() -> None:
    """In a process of its own: other tests leave devices, and observers of evaluations."""
    script = "from tests.test_known_programs import known_work; print(known_work())"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) <= MAX_CALLS


def test_a_structure_is_searched_for_until_it_is_compiled() -> None:
    x = many(2.0)
    found = [searches(lambda: (x.cos() * x).numpy()) for _ in range(5)]
    assert found == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("numbers", [[2.0] * 3 + [3.0, 2.0, 4.0, 2.0, 5.0], [1.0, 2.0, 3.0, 4.0, 4.0, 0.0, -0.0]])
def test_numbers_are_those_of_the_call(numbers: list[float]) -> None:
    x = many(3.0)
    for number in numbers:
        np.testing.assert_allclose((x.sin() * number + 0.5).numpy(), np.sin(x.numpy()) * number + 0.5, rtol=2e-6)
        assert np.signbit((x.sin() * number).numpy()[1]) == np.signbit(np.sin(np.float32(4)) * number)


def test_numbers_that_vary_are_passed() -> None:
    x = many(4.0)
    found = [searches(lambda n=n: (x.tan() - 0.25 * n).numpy()) for n in range(1, 9)]  # type: ignore[misc]
    assert found[-1] == 0


def test_settings_and_evictions_are_respected() -> None:
    x = many(5.0)

    def use() -> None:
        (x.exp2() * x).numpy()

    for _ in range(4):
        use()
    assert searches(use) == 0
    with config.changed(tier="interpreted"):
        assert searches(use) == 1
    assert searches(use) == 1
    assert searches(use) == 0
    forget_programs()
    assert searches(use) == 1


def test_each_thread_counts_for_itself() -> None:
    x, seen = many(6.0), []

    def use() -> None:
        (x.atan() * x).numpy()

    for _ in range(4):
        use()
    thread = threading.Thread(target=lambda: seen.extend(searches(use) for _ in range(4)))
    thread.start()
    thread.join()
    assert seen == [1, 1, 1, 0]
