"""Random graphs through every stage: each keeps the meaning.

In CI few graphs are drawn, and always the same; HYPOTHESIS_PROFILE=thorough draws many. What fails is shrunk,
and prints itself; keep the list of numbers that made it in `FOUND`.
"""

from __future__ import annotations

import importlib
import pkgutil
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilegrad.ops
from tests.checklist import checklist
from tests.fuzz.check import backward, check_gradients, check_passes, check_road, check_updates
from tests.fuzz.graphs import drawn
from tests.fuzz.worker import Workers
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.ir.graph import Value

CHOICES = st.lists(st.integers(0, 9999), min_size=60, max_size=120)

MADE = {
    "Batched",
    "JointOutput",
    "Recompute",
    "PackedRows",
    "PackedConvolve",
    "PackedConvolveWeight",
    "Materialised",
    "TransformedTiles",
}
MADE |= {"IrregularTiles", "RepairedTiles", "SegmentStarts", "SegmentSums"}
"""Made by transforms, not by users: tests/transform and tests/test_autograd.py have graphs with them."""
OWN_KERNELS = {"Attention", "AttentionGradient", "Recurrence", "RecurrenceGradient", "RecurrenceTangent"}
OWN_KERNELS |= {"TiledAttention", "TiledQueryGradient", "TiledKeyGradient"}
OWN_KERNELS |= {"PartialHistograms", "ExactSums", "SearchSorted", "DigitCounts", "SortByDigit", "RangeReduce"}
"""Each is one kernel, written by hand, that no neighbour is fused with: tests/ops and tests/nn draw its shapes."""
CHECKED = {"CheckedIndex"}
"""Reports what it is given: tests/test_index_faults.py."""
OF_USERS = {"Declared", "ExternalCall"}
"""Operators whose meaning is a user's; tests/custom and tests/test_outside.py cover them."""
NOT_DRAWN = MADE | OWN_KERNELS | CHECKED | OF_USERS


@checklist(151)
@given(CHOICES, st.booleans())
def test_passes_keep_the_meaning(choices: list[int], smooth: bool) -> None:
    check_passes(drawn(choices, smooth))


@checklist(151)
@given(CHOICES, st.booleans())
def test_kernels_compute_what_the_graph_means(choices: list[int], smooth: bool) -> None:
    check_road(drawn(choices, smooth))


@given(CHOICES, st.booleans())
def test_kernels_for_gpus_compute_what_the_graph_means(choices: list[int], smooth: bool) -> None:
    check_road(drawn(choices, smooth), gpu_model(132))


@checklist(157)
@given(CHOICES)
def test_gradients_go_the_same_road(choices: list[int]) -> None:
    check_gradients(drawn(choices, smooth=True))
    check_gradients(drawn(choices, smooth=True), gpu_model(132))


@given(CHOICES)
def test_inputs_are_renewed(choices: list[int]) -> None:
    check_updates(drawn(choices))


@pytest.fixture(scope="module")
def workers() -> Workers:
    made = Workers()
    yield made
    made.close()


@given(choices=CHOICES, smooth=st.booleans(), backward=st.booleans())
def test_machine_code_computes_what_the_graph_means(
    workers: Workers, choices: list[int], smooth: bool, backward: bool
) -> None:
    """Runs in another process, so that a crash is a failed test."""
    answer = workers.answer(choices, smooth or backward, backward)
    assert answer == "right", f"{answer}\n{drawn(choices, smooth or backward)}"


def test_every_op_is_drawn() -> None:
    for module in pkgutil.iter_modules(tilegrad.ops.__path__):
        importlib.import_module(f"tilegrad.ops.{module.name}")
    wanted = {op.__name__ for op in below(Value) if op.__module__.startswith("tilegrad.ops") and final(op)}
    found: set[str] = set()
    for seed in range(2500):
        rng = random.Random(seed)
        d = drawn([rng.randrange(10000) for _ in range(120)], smooth=seed % 3 == 0)
        for graph in (d.graph, backward(d.graph)) if seed % 3 == 0 else (d.graph,):
            found |= {type(v).__name__ for v in graph.values()}
    assert wanted - found == NOT_DRAWN


def below(cls: type[Value]) -> set[type[Value]]:
    return {cls}.union(*map(below, cls.__subclasses__()))


def final(op: type[Value]) -> bool:
    return hasattr(op, "__final__")
