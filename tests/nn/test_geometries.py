"""Layers of common networks at small batches, with all gradients, against float64: cut for the CPU and as for a GPU."""

from __future__ import annotations

import os

import pytest

from tests.geometries.comparing import ARITHMETICS, faults
from tests.geometries.table import Case, cases
from tests.grains import GPU, cut_as
from tilegrad.runtime.grain import Grain

EVERY = int(os.environ.get("GEOMETRIES", 4))
"""One in so many is looked at here; `GEOMETRIES=1` is all of them, and `make gpu-test` has all at their own sizes."""
ALL = cases(2e7, 0)
SOME = [case for case in ALL if case.number % EVERY == 0]


@pytest.mark.parametrize("case", SOME, ids=lambda c: c.name)
def test_layer(case: Case) -> None:
    turn = case.number // EVERY
    names = list(ARITHMETICS)
    with cut_as(Grain() if turn % 5 == 4 else GPU):
        assert not faults(case, [names[turn % 4]], "cpu")
