"""Fused groups for shapes with different kernel layouts, and their results."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.test_lowering import check
from tilegrad.ir.dtype import float64
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ops.arithmetic import add, div, mul, neg, sub
from tilegrad.ops.broadcasting import reduce_sum, reshape
from tilegrad.ops.exponential import exp
from tilegrad.ops.movement import permute
from tilegrad.ops.pooling import WindowArgmax
from tilegrad.ops.reduction import amax, argmax
from tilegrad.ops.sliding import Sliding
from tilegrad.schedule.fuse import fuse


def given(*shapes: tuple[int, ...]) -> tuple[tuple[Input, ...], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    inputs = tuple(Input(TensorType(float64, shape), "xyz"[n]) for n, shape in enumerate(shapes))
    return inputs, [rng.standard_normal(shape) for shape in shapes]


def product(x: Value, y: Value) -> Value:
    return reduce_sum(mul(reshape(x, (*x.shape, 1)), y), (1,))


@pytest.mark.parametrize(("m", "k", "n"), [(3, 4, 5), (64, 784, 10), (65, 300, 130), (1, 7, 9), (7, 1, 9), (9, 7, 1)])
def test_a_matrix_product_takes_in_what_stands_around_it(m: int, k: int, n: int) -> None:
    (x, y, b), arrays = given((m, k), (n, k), (n,))
    made = exp(mul(add(product(mul(x, 0.1), permute(y, (1, 0))), b), 0.05))
    graph = Graph((x, y, b), (made,))

    assert len(fuse(graph).groups) == 1
    check(graph, arrays)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((5, 7), (1,)),
        ((5, 7), (0,)),
        ((5, 7), (0, 1)),
        ((4, 5, 6), (0, 2)),
        ((4, 5, 6), (1,)),
        ((40, 50, 60), (0, 2)),
        ((300, 7), (0,)),
    ],
)
def test_softmax_is_one_kernel_along_any_axes(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    (x,), arrays = given(shape)
    e = exp(sub(x, amax(x, axes, True)))
    graph = Graph((x,), (div(e, reduce_sum(e, axes, True)),))

    assert len(fuse(graph).groups) == 1
    check(graph, arrays)


@pytest.mark.parametrize(("shape", "axis"), [((5, 7), 1), ((5, 7), 0), ((3, 20000), 1), ((20000, 3), 0), ((9,), 0)])
def test_places_of_extremes(shape: tuple[int, ...], axis: int) -> None:
    (x,), (a,) = given(shape)

    check(Graph((x,), (argmax(x, axis), amax(x, (axis,)))), [a])
    check(Graph((x,), (argmax(neg(x), axis),)), [np.where(a > 1, np.nan, a)])


def test_why_two_kernels_stay_apart_is_said() -> None:
    (x,), _ = given((600, 600))
    e = exp(x)
    schedule = fuse(Graph((x,), (reduce_sum(e, (0,)), reduce_sum(e, (1,)))))

    assert len(schedule.groups) == 2
    assert "apart: " in str(schedule)


def test_a_reduction_that_is_used_twice_is_one() -> None:
    """The element of a value may use its reduction several times: `WindowArgmax` asks where the place it found is."""
    inputs, arrays = given((2, 60))
    graph = Graph(inputs, (WindowArgmax(inputs[0], (Sliding(60, 21, 20, 2, 1),)),))
    assert [group.kind for group in fuse(graph).groups] == ["rows"]
    check(graph, arrays)


def test_a_copy_that_turns_is_not_made_in_the_loops_of_a_sum() -> None:
    """The copy would be stored element by element, each in another cache line."""
    (x,), arrays = given((16, 128, 32))
    turned = permute(x, (0, 2, 1))
    graph = Graph((x,), (turned, reduce_sum(turned, (0, 1))))
    assert [g.kind for g in fuse(graph).groups] == ["map", "rows"]
    check(graph, arrays)
    for batch in (4, 64):
        (x,), _ = given((batch, 8, 32))
        turned = permute(x, (0, 2, 1))
        assert len(fuse(Graph((x,), (turned, reduce_sum(turned, (0, 1))))).groups) == 1


@pytest.mark.parametrize("size", [33, 300])
def test_what_reads_a_number_and_other_elements_of_a_square_stays_apart(size: int) -> None:
    (x, number), arrays = given((size, size), ())
    graph = Graph((x, number), (mul(x, number), mul(permute(x, (1, 0)), number)))
    assert len(fuse(graph).groups) == 2
    check(graph, arrays)
    assert len(fuse(Graph((x, number), (mul(x, number), add(x, number)))).groups) == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_a_number_in_memory_lies_no_way(axis: int) -> None:
    """A scalar in memory has no axis that could be transposed."""
    (x, number), arrays = given((512, 256), ())
    scaled = mul(x, number)
    check(Graph((x, number), (scaled, reduce_sum(scaled, (axis,)))), arrays)
