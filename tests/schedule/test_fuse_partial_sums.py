"""Sums across rows whose parts are made on the way along them: what is joined, and that the results stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.schedule.test_lowering import check
from tilegrad.ir.dtype import float64
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ops.arithmetic import add, div, mul, sub
from tilegrad.ops.broadcasting import reduce_sum
from tilegrad.ops.exponential import exp
from tilegrad.ops.movement import permute
from tilegrad.ops.reduction import amax, argmax
from tilegrad.ops.scan import cumsum
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule.fuse import fuse
from tilegrad.transform import column_sums
from tilegrad.transform.share import share

TARGET = TargetModel()._replace(column_sum_parts=1, single_instance_elements=0)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split the sums of small tensors as those of large ones."""
    for name, value in {"MIN_ELEMENTS": 1, "MIN_PART_ROWS": 2, "MAX_PART_ROWS": 4}.items():
        monkeypatch.setattr(column_sums, name, value)


def mean(x: Value) -> Value:
    return mul(reduce_sum(x, (x.type.rank - 1,), True), 1 / 6)


def rows(x: Value) -> tuple[int, ...]:
    return tuple(range(x.type.rank - 1))


def softmax(x: Value) -> Value:
    e = exp(sub(x, amax(x, (x.type.rank - 1,), True)))
    return div(e, reduce_sum(e, (x.type.rank - 1,), True))


CASES: dict[str, Callable[[Value], tuple[Value, ...]]] = {
    "of what is read": lambda x: (sub(x, mean(x)), reduce_sum(x, rows(x))),
    "of what is made": lambda x: (softmax(x), reduce_sum(softmax(x), rows(x))),
    "two": lambda x: (softmax(x), reduce_sum(mul(softmax(x), x), rows(x)), reduce_sum(x, rows(x), True)),
    "of a row's result": lambda x: (mean(x), reduce_sum(add(mean(x), x), rows(x))),
    "beside places": lambda x: (argmax(x, x.type.rank - 1), reduce_sum(exp(x), rows(x))),
}


@pytest.mark.parametrize(
    "shape", [(8, 6), (12, 5), (7, 6), (3, 8, 6), (2, 4, 6), (2, 3, 4, 5), (8, 70), (4, 3000)], ids=str
)
@pytest.mark.parametrize("case", CASES)
def test_one_kernel_along_rows_and_across(case: str, shape: tuple[int, ...]) -> None:
    x = Input(TensorType(float64, shape), "x")
    graph = Graph((x,), CASES[case](x))
    groups = fuse(column_sums.column_sums(share(graph), TARGET), TARGET).groups

    if shape != (7, 6):  # 7 rows cannot be cut
        assert len(groups) == 2, "the parts of the sums, and their sums"
    check(graph, [np.random.default_rng(0).standard_normal(shape)], TARGET)


def test_what_keeps_them_apart_is_said() -> None:
    x = Input(TensorType(float64, (8, 6)), "x")
    graph = Graph((x,), (cumsum(sub(x, mean(x)), 1), reduce_sum(x, (0,))))
    schedule = fuse(column_sums.column_sums(graph, TARGET), TARGET)

    assert len(schedule.groups) == 3
    check(graph, [np.random.default_rng(0).standard_normal((8, 6))], TARGET)


def test_running_results_across_rows_have_a_loop_of_their_own() -> None:
    x = Input(TensorType(float64, (8, 4, 6)), "x")
    graph = Graph((x,), (reduce_sum(permute(x, (1, 0, 2)), (2,)), cumsum(x, 0)))
    check(graph, [np.random.default_rng(0).standard_normal((8, 4, 6))], TARGET)


def test_sums_alone_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Input(TensorType(float64, (8, 6)), "x")
    alone = Graph((x,), (reduce_sum(x, (0,)),))
    assert column_sums.column_sums(alone, TARGET) is alone
    monkeypatch.undo()
    few = Graph((x,), (mean(x), reduce_sum(x, (0,))))
    assert column_sums.column_sums(few) is few
