"""Programs of owning, sharing and updating give what they give in PyTorch, plainly and under `jit`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.programs import sharing, updating  # noqa: F401 - they fill the table
from tests.programs.ownership import STORIES
from tests.recorded import pytorch


def same(found: Any, wanted: Any) -> None:
    """Compares nested lists of numbers, and None."""
    if isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            same(a, b)
    elif wanted is None or isinstance(wanted, bool):
        assert found is wanted
    else:
        np.testing.assert_allclose(found, wanted, 1e-6, 1e-9)


@pytest.mark.parametrize("way", ["plainly", "jit"])
@pytest.mark.parametrize("name", STORIES)
def test_story(name: str, way: str) -> None:
    wanted = STORIES[name](pytorch(), lambda fn: fn)
    found = STORIES[name](tg, tg.jit if way == "jit" else lambda fn: fn)
    assert len(wanted) > 0
    same(found, wanted)
