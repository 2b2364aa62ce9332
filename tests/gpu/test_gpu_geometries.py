"""Layers of common networks at their sizes, with all gradients, in each arithmetic, against float64."""

from __future__ import annotations

import pytest

from tests.geometries.comparing import ARITHMETICS, faults
from tests.geometries.table import Case, cases

MOST, BATCH = 1.5e9, 0
"""Products that a layer adds up at most: its batch is smaller, if there are more."""
ALL = cases(MOST, BATCH)


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
def test_layer(case: Case) -> None:
    assert not faults(case, turns(case), "cuda:0")


def turns(case: Case) -> list[str]:
    """bfloat16, in which networks are trained, and the others in turn."""
    others = [name for name in ARITHMETICS if name != "bfloat16"]
    return ["bfloat16", others[case.number % len(others)]]
