"""Plans run group by group, and keep no memory longer than it is read."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.first_tier import step_plan
from tilegrad.first_tier.group_step import _steps
from tilegrad.runtime.device import device


@pytest.fixture(autouse=True)
def interpreted() -> object:
    with config.changed(tier="interpreted"):
        yield


def test_intermediate_memory_is_released_after_its_last_use() -> None:
    count = 1 << 18
    x = tg.ones(count)
    x.numpy()
    gc.collect()
    place: Any = device("cpu")
    place.reset_peaks()
    before = place.statistics.live + place.arena.blocks.bytes
    for _ in range(8):
        x = x.cumsum(0) * 1e-6
    x.numpy()
    assert place.statistics.peak - before <= 3 * 4 * count + (1 << 16)


def test_steps_are_shared_by_structures() -> None:
    x = tg.tensor(np.arange(7.0, dtype=np.float32))
    (x.exp().sum() + 1.0).numpy()
    known = len(_steps)
    (x.exp().sum().reshape(1) + 1.0).numpy()
    assert len(_steps) - known <= 1


def test_a_changed_number_is_not_a_new_structure() -> None:
    x = tg.tensor(np.arange(9.0, dtype=np.float32))
    for rate in (0.1, 0.2, 0.3):
        np.testing.assert_allclose((x * rate).numpy(), np.arange(9) * rate, rtol=1e-6)
    known = len(step_plan._plans), len(_steps)
    np.testing.assert_allclose((x * 0.4).numpy(), np.arange(9) * 0.4, rtol=1e-6)
    assert (len(step_plan._plans), len(_steps)) == known


def test_views_of_what_is_computed() -> None:
    x = tg.tensor(np.arange(12.0, dtype=np.float32).reshape(3, 4))
    y = (x + 1).detach()
    z = y.reshape(12)
    got = [t.numpy() for t in (y, z, y.T[1:], z[3:])]
    want = np.arange(1.0, 13.0).reshape(3, 4)
    for a, b in zip(got, (want, want.reshape(12), want.T[1:], want.reshape(12)[3:]), strict=True):
        np.testing.assert_array_equal(a, b)
