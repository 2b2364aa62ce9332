"""Indexing by tensors: shapes, empty cases, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ops.registry import floats, given, ints
from tilegrad.backend.reference.graph import interpret
from tilegrad.errors import AxisError, DTypeError, InPlaceError, ShapeError
from tilegrad.ir.graph import Graph, Value
from tilegrad.ops.broadcasting import expand, reshape
from tilegrad.ops.indexing import (
    embedding,
    index,
    index_bounds,
    index_put,
    index_select,
    put,
    scatter_along,
    take_along,
)
from tilegrad.ops.movement import flip, permute, slice_axis
from tilegrad.ops.windows import unfold


def computed(build: Callable[..., Value], *arrays: Any) -> Any:
    inputs = tuple(given(np.asarray(a)) for a in arrays)
    (found,) = interpret(Graph(inputs, (build(*inputs),)), [np.asarray(a) for a in arrays])
    return found


@pytest.mark.parametrize("axes", [(0,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2), (1, 3), (3, 0, 1)])
def test_the_indexed_axes_go_where_numpy_puts_them(axes: tuple[int, ...]) -> None:
    x = floats(3, 4, 5, 2)
    arrays = [ints(2, 1, low=0, high=x.shape[axes[0]]), *(ints(3, low=0, high=x.shape[a], seed=a) for a in axes[1:])]
    key: list[Any] = [slice(None)] * 4
    for axis, array in zip(axes, arrays, strict=True):
        key[axis] = array
    found = computed(lambda v, *i: index(v, i, axes), x, *arrays)
    np.testing.assert_array_equal(found, x[tuple(key)])


def test_scalars_and_empty_tensors() -> None:
    assert computed(lambda x, i: take_along(x, i, 0), np.array(4.0), np.array(0)) == 4
    assert computed(lambda x, i: index(x, (i,), (0,)), floats(5), np.array(-1)) == floats(5)[-1]
    assert computed(lambda x, i: index_select(x, i, 0), floats(5, 2), np.array([], np.int64)).shape == (0, 2)
    assert computed(lambda x, i: take_along(x, i, 1), floats(3, 0), np.zeros((3, 0), np.int64)).shape == (3, 0)
    assert computed(embedding, floats(5, 2), np.zeros((0, 3), np.int64)).shape == (0, 3, 2)
    base, nothing = floats(4, 3), np.zeros((0, 3))
    kept = computed(lambda b, i, s: scatter_along(b, i, s, 0, "add"), base, np.zeros((0, 3), np.int64), nothing)
    np.testing.assert_array_equal(kept, base)


def test_later_entries_win() -> None:
    found = computed(lambda b, i, s: index_put(b, (i,), (0,), s), np.zeros(3), np.array([1, 1, 1]), [1.0, 2.0, 3.0])
    assert found.tolist() == [0, 3, 0]


def test_put_where_all_is_replaced_keeps_no_base() -> None:
    base, value = given(floats(3, 4)), given(floats(4, 3))
    made = put(base, (turned := permute(base, (1, 0)), flip(turned, 0)), value)
    assert base not in Graph((base, value), (made,)).values()


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint32, np.float16, np.float64])
def test_put_for_every_kind_of_element(dtype: Any) -> None:
    base, value = np.zeros((4, 6), dtype), np.ones((4, 2), dtype)

    def build(b: Value, v: Value) -> Value:
        flat = reshape(b, (2, 2, 6))
        return put(b, (flat, part := slice_axis(flat, 2, 5, 0, -3), reshape(part, (4, 2))), v)

    wanted = base.copy()
    wanted[:, [5, 2]] = value
    np.testing.assert_array_equal(computed(build, base, value), wanted)


def test_ranges_are_asked_separately() -> None:
    assert computed(lambda i: index_bounds(i)[0], [3, -4]) == -4
    assert computed(lambda i: index_bounds(i)[1], [3, -4]) == 3


def value(*shape: int, dtype: Any = np.float64) -> Value:
    return given(np.zeros(shape, dtype))


INDEX = value(3, dtype=np.int64)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: take_along(value(4), value(3), 0), DTypeError, "index of gather takes integer elements, not float64"),
        (lambda: take_along(value(4, 2), INDEX, 0), ShapeError, "as many axes"),
        (lambda: take_along(value(4, 2), value(3, 3, dtype=np.int64), 0), ShapeError, "3 elements along axis 1"),
        (lambda: take_along(value(4), INDEX, 1), AxisError, "no axis 1"),
        (lambda: index(value(4), (INDEX,), (1,)), AxisError, "not different axes of a tensor of 1"),
        (lambda: index(value(4, 4), (INDEX, value(2, dtype=np.int64)), (0, 1)), ShapeError, r"\(3,\) and \(2,\)"),
        (lambda: index(value(4), (value(3),), (0,)), DTypeError, "indexing takes integer"),
        (lambda: index_select(value(4), value(2, 2, dtype=np.int64), 0), ShapeError, "must have one axis"),
        (lambda: embedding(value(4), INDEX), ShapeError, "two axes"),
        (lambda: index_put(value(4), (INDEX,), (0,), value(2)), ShapeError, r"\(2,\)"),
        (lambda: index_put(value(4), (INDEX,), (0,), value(3, dtype=np.float32)), DTypeError, "source.to"),
        (lambda: scatter_along(value(4), INDEX, value(2), 0), ShapeError, "slice the index"),
        (lambda: put(value(3, 1), (expand(value(3, 1), (3, 4)),), 1.0), InPlaceError, "clone"),
        (lambda: put(value(6), (unfold(value(6), 0, 3, 1),), 1.0), InPlaceError, "unfold"),
        (lambda: put(value(6), (), value(4)), ShapeError, r"\(4,\) and \(6,\)"),
    ],
)
def test_what_is_refused(wrong: Callable[[], Value], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()
