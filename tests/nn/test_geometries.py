"""Layers of common networks at small batches, with all gradients, against float64: cut for the CPU and as for a GPU."""

from __future__ import annotations

import os

import pytest

import tilegrad as tg
from tests.geometries.comparing import ARITHMETICS, both, faults, given
from tests.geometries.table import Case, cases
from tests.target_models import GPU, scheduled_for
from tests.verifier import net
from tilegrad.ir.program import Launch
from tilegrad.runtime.target_model import TargetModel

EVERY = int(os.environ.get("GEOMETRIES", 4))
"""One in this many is tested; `GEOMETRIES=1` tests all, and `make gpu-test` all at their own sizes."""
ALL = cases(2e7, 0)
SOME = [case for case in ALL if case.number % EVERY == 0]


@pytest.mark.parametrize("case", SOME, ids=lambda c: c.name)
def test_layer(case: Case) -> None:
    turn = case.number // EVERY
    names = list(ARITHMETICS)
    with (
        scheduled_for(TargetModel() if turn % 5 == 4 else GPU),
        net.not_watching(),
    ):  # too large for the checked interpreter
        assert not faults(case, [names[turn % 4]], "cpu")


WAYS = {
    3: {"packed_rows", "packed_convolve", "packed_convolve_weight", "packed_convolve_pieces"},
    40: {"packed_rows", "packed_convolve_weight", "packed_convolve_pieces"},
    114: {"convolve_back"},
    299: {"contract", "permute"},
    410: {"div_rsqrt_cast"},
}
"""Kernels that exist only, or mostly, for GPUs, by the numbers of layers."""


@pytest.mark.parametrize("number", WAYS)
def test_the_ways_of_gpus_are_taken(number: int) -> None:
    """The layers above do use the strategies of GPUs: implicit GEMM over packed rows, split-K."""
    layer = ALL[number].layer
    with scheduled_for(GPU), net.not_watching():
        program = tg.jit(both(layer)).prepared(*given(ALL[number], ARITHMETICS["bfloat16"], "cpu"))
    steps = program.program.compiled.program.steps
    assert {s.kernel.name for s in steps if isinstance(s, Launch)} >= WAYS[number]
