"""Layers of common networks at their sizes, with all gradients, in each precision, compared with float64."""

from __future__ import annotations

import pytest

from tests.geometries.comparing import ARITHMETICS, faults
from tests.geometries.table import Case, cases

MOST, BATCH = 1.5e9, 0
"""Most multiply-adds of a layer, beyond which its batch is reduced; and the batch."""
ALL = cases(MOST, BATCH)


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
def test_layer(case: Case) -> None:
    assert not faults(case, turns(case), "cuda:0")


def turns(case: Case) -> list[str]:
    """Yield bfloat16, which networks are trained in, and one of the other precisions in turn."""
    others = [name for name in ARITHMETICS if name != "bfloat16"]
    return ["bfloat16", others[case.number % len(others)]]
