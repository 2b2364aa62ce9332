"""Products that share an operand run in one kernel."""

from __future__ import annotations

import numpy as np
import pytest

from tests.checklist import checklist
from tests.schedule.test_lowering import check
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ops.activation import sigmoid
from tilegrad.ops.arithmetic import add, mul
from tilegrad.ops.contraction import matmul
from tilegrad.ops.exponential import exp
from tilegrad.ops.movement import permute
from tilegrad.ops.trigonometric import tanh
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.products import MOST_PRODUCTS, totals


def given(names: str, *shape: int) -> list[Input]:
    return [Input(TensorType(float32, shape), name) for name in names.split()]


def arrays(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-0.3, 0.3, x.shape).astype(np.float32) for x in graph.inputs]  # type: ignore[arg-type]


def products(graph: Graph) -> list[int]:
    """How many each kernel computes."""
    return [len(totals(g)) for g in fuse(graph).groups if g.kind == "contraction"]


def gated(batch: int, width: int) -> Graph:
    """The recurrent cell of the lecture: three gates, each of the input and of the state."""
    x, h = given("x h", batch, width)
    weights = given("wf wo wz rf ro rz", width, width)
    wf, wo, wz, rf, ro, rz = weights
    f, o = (sigmoid(add(matmul(x, w), matmul(h, r))) for w, r in ((wf, rf), (wo, ro)))
    z = tanh(add(matmul(x, wz), matmul(h, rz)))
    return Graph((x, h, *weights), (add(mul(f, h), mul(o, z)),))


@checklist(9)
@pytest.mark.parametrize(("batch", "width"), [(8, 32), (3, 100), (70, 130)])
def test_six_products_of_a_recurrent_cell_are_two_kernels(batch: int, width: int) -> None:
    graph = gated(batch, width)

    assert products(graph) == [3, 3]
    assert len(fuse(graph).groups) == 2  # the gates themselves are part of the second
    check(graph, arrays(graph))


@checklist(9)
def test_products_that_share_nothing_stay_apart() -> None:
    a, b, c, d = given("a b c d", 12, 12)

    assert products(Graph((a, b, c, d), (matmul(a, b), matmul(c, d)))) == [1, 1]
    assert products(Graph((a, b, c, d), (matmul(a, b), matmul(c, a)))) == [1, 1]  # once as rows, once as columns


def test_a_product_of_a_product_comes_after_it() -> None:
    x, w = given("x w", 12, 12)
    graph = Graph((x, w), (matmul(x, exp(matmul(x, w))),))

    assert products(graph) == [1, 1]
    check(graph, arrays(graph))


def test_as_many_products_as_there_is_room_for() -> None:
    (x,), weights = given("x", 16, 40), given("a b c d e f", 40, 24)
    graph = Graph((x, *weights), tuple(matmul(x, w) for w in weights))

    assert sum(products(graph)) == 6
    assert max(products(graph)) == MOST_PRODUCTS
    check(graph, arrays(graph))


def test_weights_of_different_widths_stay_apart() -> None:
    (x,), (v,), (w,) = given("x", 16, 40), given("v", 40, 24), given("w", 40, 25)

    assert products(Graph((x, v, w), (matmul(x, v), matmul(x, w)))) == [1, 1]


def test_queries_keys_and_values() -> None:
    (x,), weights = given("x", 33, 20), given("q k v", 20, 20)
    q, k, v = (matmul(x, permute(w, (1, 0))) for w in weights)
    made: Value = matmul(exp(mul(matmul(q, permute(k, (1, 0))), 0.1)), v)
    graph = Graph((x, *weights), (made,))

    assert products(graph) == [3, 1, 1]
    check(graph, arrays(graph))
