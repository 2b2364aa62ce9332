"""Masks applied to pooled gradients: the same elements, without the large tensor."""

from __future__ import annotations

import numpy as np
import pytest

from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ops.activation import relu
from tilegrad.ops.broadcasting import reduce_sum
from tilegrad.ops.comparison import ge, le, lt
from tilegrad.ops.control import where
from tilegrad.ops.pooling import MaxPool, WindowArgmax, WindowScatter
from tilegrad.ops.sliding import Sliding
from tilegrad.transform.autodiff import gradients, tracked_input
from tilegrad.transform.pool_gradient import pool_gradient
from tilegrad.transform.share import share

AXES = {
    "apart": (Sliding(8, 4, 2, 2), Sliding(9, 4, 2, 2)),
    "overlapping": (Sliding(8, 3, 3, 2), Sliding(9, 4, 3, 2)),
    "padded": (Sliding(8, 5, 3, 2, 1), Sliding(9, 5, 3, 2, 1)),
    "dilated": (Sliding(8, 4, 3, 1, 0, 2), Sliding(9, 5, 3, 1, 0, 2)),
}
X = tracked_input(TensorType(float32, (2, 8, 9)), "x")


def with_gradient(y: Value) -> Graph:
    upstream = Input(y.type, "u")
    (dx,) = gradients([y], [upstream], [X])
    assert dx is not None
    return share(Graph((X, upstream), (y, dx)))


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
def test_the_gradient_is_bit_for_bit_the_same(axes: tuple[Sliding, ...]) -> None:
    graph = with_gradient(MaxPool(relu(X), axes))
    made = pool_gradient(graph)
    assert made.values()[-1].op == "window_scatter"
    rng = np.random.default_rng(0)
    x = rng.choice(np.array([-2, -0.0, 0.0, 0.5, 1, 3, np.nan, np.inf, -np.inf], np.float32), X.shape)
    u = rng.normal(size=graph.inputs[1].shape).astype(np.float32)
    for ours, wanted in zip(interpret(made, [x, u]), interpret(graph, [x, u]), strict=True):
        np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize("kept", [True, False])
def test_any_comparison_with_a_number_on_either_side(kept: bool) -> None:
    axes = AXES["overlapping"]
    pooled = MaxPool(X, axes)
    u = Input(pooled.type, "u")
    back = WindowScatter(u, WindowArgmax(X, axes), axes)
    chosen = where(ge(0.5, X), back, 0.0) if kept else where(lt(X, 0.5), 0.0, back)
    graph = Graph((X, u), (pooled, chosen))
    made = pool_gradient(graph)
    assert made is not graph
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=X.shape).astype(np.float32), rng.normal(size=u.shape).astype(np.float32)]
    for ours, wanted in zip(interpret(made, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
def test_the_sum_of_what_is_given_back(axes: tuple[Sliding, ...]) -> None:
    pooled = MaxPool(X, axes)
    u = Input(pooled.type, "u")
    back = WindowScatter(u, WindowArgmax(X, axes), axes)
    graph = Graph(
        (X, u), (pooled, back, reduce_sum(back, (1, 2)), reduce_sum(back, (0, 1, 2), True), reduce_sum(back, (0, 1)))
    )
    made = pool_gradient(graph)
    assert [v.inputs[0] is made.inputs[1] for v in made.outputs[2:]] == [True, True, False]
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=X.shape).astype(np.float32), rng.normal(size=u.shape).astype(np.float32)]
    for ours, wanted in zip(interpret(made, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-5)


def test_what_stays() -> None:
    """No mask of another tensor, of other windows, with another number than 0, or of what is needed anyway."""
    axes, other = AXES["overlapping"], AXES["padded"]
    pooled = MaxPool(X, axes)
    u, y = Input(pooled.type, "u"), Input(X.type, "y")
    back = WindowScatter(u, WindowArgmax(X, axes), axes)
    elsewhere = MaxPool(X, other)
    for outputs in (
        (pooled, where(le(y, 0.0), 0.0, back)),
        (pooled, where(le(X, y), 0.0, back)),
        (elsewhere, where(le(X, 0.0), 0.0, back)),
        (pooled, where(le(X, 0.0), -0.0, back)),
        (pooled, where(le(X, 0.0), 1.0, back)),
        (pooled, back, where(le(X, 0.0), 0.0, back)),
    ):
        graph = Graph((X, u, y), outputs)
        assert pool_gradient(graph) is graph
