"""Scattering: every way that elements meet, all sizes of work, places out of range."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.registry import floats, ints
from tests.ops.registry import given as given_array
from tests.ops.test_opaque import check_kernel, given
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import bfloat16, float32, int64
from tilegrad.ir.graph import Graph
from tilegrad.ops.indexing import Gather, Scatter, index_add
from tilegrad.ops.scatter import FUNCTIONS, broadcast_strides


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_every_way_to_meet_and_many_columns(fn: str) -> None:
    random = np.random.default_rng(0)
    base, source = random.random((4, 150), np.float32), random.random((9, 150), np.float32)
    index = random.integers(-4, 4, 9)
    value = Scatter(given(float32, 4, 150), (given(int64, 9),), given(float32, 9, 150), (0,), (4, 150), fn)
    check_kernel(value, [base, index, source], {})


def test_what_is_scattered_out_of_range_is_kept_inside() -> None:
    value = Scatter(given(float32), (given(int64, 3),), given(float32, 3), (0,), (4,), "add")
    check_kernel(value, [np.zeros((), np.float32), np.array([9, -9, 1]), np.ones(3, np.float32)], {})
    read = Gather(given(float32, 4), (given(int64, 3),), (0,))
    (found,) = interpret(Graph(read.inputs, (read,)), [np.arange(4, dtype=np.float32), np.array([9, -9, 1])])
    assert found.tolist() == [3, 0, 1]


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 300, 1100])
def test_every_number_of_columns(columns: int) -> None:
    base, source = floats(4, columns), floats(6, columns, seed=1)
    value = index_add(given_array(base), 0, given_array(ints(6, low=0, high=4)), given_array(source))
    check_kernel(value, [base, ints(6, low=0, high=4), source], {})


def test_half_precision_rounds_every_sum() -> None:
    value = Scatter(given(bfloat16), (given(int64, 300),), given(bfloat16, 300), (0,), (2,), "add")
    ones = np.ones(300, bfloat16.numpy)
    check_kernel(value, [np.zeros((), bfloat16.numpy), np.zeros(300, np.int64), ones], {})


def test_strides_of_what_is_repeated() -> None:
    assert broadcast_strides((3, 1, 5), (2, 3, 4, 5)) == (0, 5, 0, 1)
