"""Each pass rewrites the graphs it is for, and returns others unchanged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.checklist import checklist
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import bool_, float16, float32, float64, int64
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.size import Size
from tilegrad.ops.arithmetic import add, mul, sub
from tilegrad.ops.broadcasting import expand, fill, reduce_sum, reshape
from tilegrad.ops.cast import Cast, cast, detach
from tilegrad.ops.comparison import lt
from tilegrad.ops.control import where
from tilegrad.ops.creation import positions
from tilegrad.ops.exponential import exp
from tilegrad.ops.indexing import index
from tilegrad.ops.movement import Cat, cat, flip, pad, permute, slice_axis, split
from tilegrad.ops.reduction import amax, argmin, reduce_all, reduce_prod
from tilegrad.ops.scan import cumsum
from tilegrad.ops.sorting import sort
from tilegrad.schedule.fuse import fuse
from tilegrad.transform.fold_movement import fold_movement
from tilegrad.transform.move_casts import move_casts
from tilegrad.transform.pipeline import PASSES, optimise
from tilegrad.transform.simplify import simplify

X = Input(TensorType(float32, (4, 6)), "x")
Y = Input(TensorType(float16, (4, 6)), "y")
N = Input(TensorType(float32, (Size.named("n"), 6)), "v")


def ops(graph: Graph) -> list[str]:
    return [v.op for v in graph.values() if v not in graph.inputs]


# --- fold ---------------------------------------------------------------------------------------

NOTHING: list[Callable[[Value], Value]] = [
    lambda x: permute(permute(x, (1, 0)), (1, 0)),
    lambda x: reshape(reshape(x, (-1,)), x.shape),
    lambda x: cat([x], 0),
    lambda x: pad(x, [(0, 0), (0, 0)]),
    lambda x: slice_axis(x, 0, None, None),
    lambda x: flip(flip(x, (0, 1)), (1, 0)),
    lambda x: slice_axis(pad(x, [(1, 2), (0, 0)]), 0, 1, x.shape[0] + 1 if isinstance(x.shape[0], int) else None),
    lambda x: cat(split(x, 2, 1), 1),
    lambda x: cat([slice_axis(x, 1, 0, 1), cat([slice_axis(x, 1, 1, 5), slice_axis(x, 1, 5)], 1)], 1),
    lambda x: expand(expand(x, x.shape), x.shape),
]


@pytest.mark.parametrize("there_and_back", NOTHING[:6] + NOTHING[7:])
@pytest.mark.parametrize("x", [X, N], ids=["known", "varying"])
def test_movement_that_comes_to_nothing(there_and_back: Callable[[Value], Value], x: Input) -> None:
    assert fold_movement(Graph((x,), (there_and_back(x),))).outputs == (x,)


def test_a_slice_of_padding_is_what_was_padded() -> None:
    assert fold_movement(Graph((X,), (NOTHING[6](X),))).outputs == (X,)


def test_two_movements_become_one() -> None:
    x = Input(TensorType(float32, (2, 3, 20)), "x")
    twice = [
        permute(permute(x, (2, 0, 1)), (1, 2, 0)),
        slice_axis(slice_axis(x, 2, 1, None, 3), 2, None, None, -2),
        pad(pad(x, [(1, 0), (0, 0), (0, 2)], 3.0), [(0, 4), (0, 0), (1, 0)], 3.0),
        expand(expand(reshape(x, (2, 1, 1, 60)), (2, 1, 5, 60)), (7, 2, 3, 5, 60)),
        slice_axis(cat([x, x, x], 1), 1, 4, 6),
        cat([cat([x, x], 1), slice_axis(x, 1, 0, 0)], 1),
    ]
    array = np.arange(120, dtype=np.float32).reshape(2, 3, 20)
    for value in twice:
        graph = fold_movement(Graph((x,), (value,)))
        assert len(ops(graph)) < len(ops(Graph((x,), (value,))))
        np.testing.assert_array_equal(*(interpret(g, [array])[0] for g in (graph, Graph((x,), (value,)))))


def test_padding_of_another_number_stays() -> None:
    graph = Graph((X,), (pad(pad(X, [(1, 0), (0, 0)], 1.0), [(1, 0), (0, 0)], 2.0),))
    assert fold_movement(graph) is graph


def test_a_stopped_gradient_is_nothing_once_gradients_are_taken() -> None:
    x = Input(TensorType(float32, (3,)), "x")
    x.__dict__["tracked"] = True
    assert fold_movement(Graph((x,), (detach(x),))).outputs == (x,)


# --- constants ----------------------------------------------------------------------------------

ONES, TRUE = fill(1.0, (4, 6), float32), fill(True, (4, 6), bool_)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (reduce_sum(ONES), 24.0),
        (reduce_sum(fill(0.0, (0, 3), float32), 0), 0.0),
        (amax(fill(-2.5, (4, 6), float32)), -2.5),
        (argmin(ONES, 1), 0),
        (reduce_prod(ONES), 1.0),
        (reduce_all(TRUE), True),
        (lt(ONES, 2.0), True),
        (pad(ONES, [(1, 1), (0, 0)], 1.0), 1.0),
        (cat([ONES, ONES], 0), 1.0),
        (slice_axis(permute(ONES, (1, 0)), 0, 1, 3), 1.0),
        (mul(add(ONES, ONES), 0.5), 1.0),
        (cast(ONES, int64), 1),
        (exp(fill(0.0, (0, 2), float32)), 0.0),
    ],
    ids=str,
)
def test_constants_are_computed(value: Value, number: float) -> None:
    (made,) = simplify(Graph((), (value,))).outputs
    assert made.op == "fill"
    assert (made.value, type(made.value)) == (number, type(number))  # type: ignore[attr-defined]
    assert made.type == value.type


def test_sums_that_would_be_rounded_are_not_folded() -> None:
    graph = Graph((), (reduce_sum(fill(0.1, (1000,), float32)), reduce_sum(fill(1.0, (1 << 25,), float32))))
    assert simplify(graph) is graph


def test_a_choice_that_is_made() -> None:
    y = Input(TensorType(float32, (6,)), "y")
    chosen = simplify(Graph((X, y), (where(TRUE, X, y), where(fill(False, (4, 6), bool_), X, y))))
    assert chosen.outputs[0] is X
    assert ops(chosen) == ["expand"]


# --- casts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (slice_axis(cast(Y, float32), 0, 1, 3), ["slice", "cast"]),
        (index(cast(Y, float32), (positions(2),), (0,)), ["iota", "gather", "cast"]),
        (permute(cast(Y, float32), (1, 0)), ["permute", "cast"]),
        (cast(permute(X, (1, 0)), float16), ["cast", "permute"]),
        (cast(expand(X, (9, 4, 6)), float64), ["cast", "expand"]),
        (amax(cast(Y, float32), (1,)), ["max", "cast"]),
        (cast(index(X, (positions(2),), (0,)), float16), ["iota", "gather", "cast"]),
        (expand(cast(Y, float32), (9, 4, 6)), ["cast", "expand"]),
    ],
    ids=str,
)
def test_casts_are_where_there_are_few_elements(value: Value, expected: list[str]) -> None:
    graph = Graph((X, Y), (value,))
    placed = move_casts(graph)
    assert ops(placed) == expected
    assert move_casts(placed) is placed
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((4, 6)).astype(np.float32), rng.standard_normal((4, 6)).astype(np.float16)]
    np.testing.assert_array_equal(interpret(placed, arrays)[0], interpret(graph, arrays)[0])


def test_a_cast_of_some_rows_stays_where_nobody_knows_of_how_many() -> None:
    x = Input(TensorType(float32, (Size.named("n"), 6)), "x")
    graph = Graph((x,), (cast(index(x, (positions(2),), (0,)), float16),))
    assert move_casts(graph) is graph


def test_a_cast_that_others_need_stays() -> None:
    wide = Cast(Y, float32)
    graph = Graph((Y,), (slice_axis(wide, 0, 1, 3), exp(wide)))
    assert move_casts(graph) is graph


# --- work that nobody needs ---------------------------------------------------------------------


@checklist(37)
def test_what_no_output_needs_is_not_there() -> None:
    """A graph consists of the values that its outputs reach."""
    unused = sort(cumsum(exp(X), 0), 1)
    del unused
    graph = Graph((X, Y), (mul(X, 2.0), sub(Y, fill(0.0, (), float16))))
    graph = optimise(graph)
    assert ops(graph) == ["fill", "mul"]
    assert graph.outputs[1] is Y
    assert len(fuse(graph).groups) == 1


def test_what_turns_out_to_be_unneeded_is_not_computed() -> None:
    """Along an axis of one element nobody asks for the place."""
    x = Input(TensorType(float32, (5, 1)), "x")
    order = sort(x, 1)
    assert [g.kind for g in fuse(Graph((x,), (order.values,))).groups] == ["map"]


def test_passes_give_the_same_object_if_there_is_nothing_to_do() -> None:
    e = exp(X)
    graph = Graph((X,), (reduce_sum(e, 1), cat([X, e], 0)))
    for change in PASSES:
        assert change(graph) is graph
    assert any(isinstance(v, Cat) for v in graph.values())
