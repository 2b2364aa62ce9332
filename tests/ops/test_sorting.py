"""Sorting: order, ties, special values, long rows, pieces of unique."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.ops.registry import floats, given, ints
from tests.ops.test_opaque import check_kernel
from tilegrad.backend.reference.graph import interpret
from tilegrad.errors import ArgumentError, AxisError, ShapeError
from tilegrad.ir.graph import Graph, Value
from tilegrad.ops.selection import count_true, masked_select
from tilegrad.ops.sorting import SmallestKeys, SortedKeys, argsort, kthvalue, median, sort, sorted_runs, topk


def computed(build: Callable[[Value], Any], array: np.ndarray) -> list[Any]:
    x = given(array)
    made = build(x)
    return interpret(Graph((x,), made if isinstance(made, tuple) else (made,)), [array])


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 64, 257])
def test_kernel_for_every_length_of_row(length: int) -> None:
    keys = ints(2, length, low=-50, high=50, dtype=np.int32)
    check_kernel(SortedKeys(given(keys)), [keys], {})


def test_kernels_with_the_extreme_keys() -> None:
    keys = np.array([[(1 << 31) - 1, -(1 << 31), 0, -1, (1 << 31) - 1, -(1 << 31)]], np.int32)
    check_kernel(SortedKeys(given(keys)), [keys], {})
    for count in range(1, 7):
        check_kernel(SmallestKeys(given(keys), count), [keys], {})
        check_kernel(SmallestKeys(given(keys[:, ::-1].copy()), count), [keys[:, ::-1].copy()], {})


@pytest.mark.parametrize(("length", "count"), [(63, 5), (64, 64), (65, 1), (300, 9)])
def test_the_least_keys_of_every_length_of_row(length: int, count: int) -> None:
    for keys in (ints(2, length, low=-50, high=50, dtype=np.int32), -np.arange(length, dtype=np.int32)[None]):
        check_kernel(SmallestKeys(given(keys), count), [keys], {})


@settings(max_examples=60, deadline=None)
@drawn(
    arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32, allow_nan=True, allow_subnormal=True)),
    st.booleans(),
)
def test_any_floats_stay_stable_with_nan_greatest(x: np.ndarray, descending: bool) -> None:
    (order,) = computed(lambda v: argsort(v, 0, descending), x)
    key = [(np.isnan(v), 0.0 if np.isnan(v) else float(v)) for v in x]
    wanted = sorted(range(len(x)), key=lambda n: key[n])
    if descending:
        wanted = sorted(range(len(x)), key=lambda n: (not key[n][0], -key[n][1]))
    assert order.tolist() == wanted


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.uint64])
def test_64_bits(dtype: Any) -> None:
    x = np.random.default_rng(0).integers(-(1 << 63), (1 << 63) - 1, 200).astype(np.int64)
    x[:50] = x[50:100] ^ 1  # such that only the low words differ
    x = x.view(np.uint64) if dtype is np.uint64 else x.astype(dtype)
    (order,) = computed(argsort, x)
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))


def test_a_tensor_without_axes() -> None:
    values, order = computed(sort, np.array(3.0))
    assert (values, order) == (3, 0)
    assert computed(lambda x: topk(x, 1), np.array(3.0))[0] == 3


def test_median_passes_nan_on() -> None:
    values, places = computed(lambda x: median(x, 1), np.array([[1, np.nan, 0], [3, 1, 2]], np.float32))
    np.testing.assert_array_equal(values, [np.nan, 2])
    assert places.tolist() == [1, 2]


def test_kept_axes() -> None:
    x = floats(4, 5)
    assert computed(lambda v: kthvalue(v, 2, 0, keepdim=True), x)[0].shape == (1, 5)
    assert computed(lambda v: median(v, 1, keepdim=True), x)[1].shape == (4, 1)


def test_unique_elements_from_runs() -> None:
    x = ints(4, 9, low=0, high=6)
    runs = computed(lambda v: tuple(sorted_runs(v)), x)
    values, starts = given(runs[0]), given(runs[1])
    (count,) = interpret(Graph((starts,), (count_true(starts),)), [runs[1]])
    (unique,) = interpret(Graph((values, starts), (masked_select(values, starts, int(count)),)), runs[:2])
    np.testing.assert_array_equal(unique, np.unique(x))


X = given(np.zeros((3, 4)))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: argsort(X, 2), AxisError, "there is no axis 2"),
        (lambda: topk(X, 5, 1), ArgumentError, r"axis 1 of \(3, 4\) has 4 elements, and k is 5"),
        (lambda: kthvalue(X, 0), ArgumentError, "k is 0"),
        (lambda: median(given(np.zeros((3, 0))), 1), ShapeError, "at least one"),
    ],
)
def test_what_is_refused(wrong: Callable[[], Value], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()
