"""Products that share an operand run in one kernel."""

from __future__ import annotations

import numpy as np
import pytest

from tests.checklist import checklist
from tests.schedule.test_lowering import check
from tilegrad.backend.cpu.costs import cpu_model
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.ir.dtype import bfloat16, float32
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.size import Size
from tilegrad.ops.activation import sigmoid
from tilegrad.ops.arithmetic import add, mul
from tilegrad.ops.cast import cast
from tilegrad.ops.contraction import Contract, matmul
from tilegrad.ops.convolution import Convolve, ConvolveBack, ConvolveWeight
from tilegrad.ops.exponential import exp
from tilegrad.ops.movement import Slice, permute
from tilegrad.ops.sliding import Sliding
from tilegrad.ops.trigonometric import tanh
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.contract import sides
from tilegrad.schedule.flatten import flatten
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.matmul_tiles import blocks
from tilegrad.schedule.merge_axes import as_matrix
from tilegrad.schedule.products import MAX_ACCUMULATORS, totals


def given(names: str, *shape: int) -> list[Input]:
    return [Input(TensorType(float32, shape), name) for name in names.split()]


def arrays(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-0.3, 0.3, x.shape).astype(np.float32) for x in graph.inputs]  # type: ignore[arg-type]


def products(graph: Graph) -> list[int]:
    """The number of products in each kernel."""
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
    assert max(products(graph)) == MAX_ACCUMULATORS
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


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, 1, 1), (2, 0, 2)])
def test_a_convolution_and_its_gradients_are_products_of_matrices(stride: int, padding: int, dilation: int) -> None:
    """Channels and taps are one axis of a product, the places of an image another."""
    (x,), (w,) = given("x", 2, 1, 4, 11, 10), given("w", 1, 6, 4, 3, 3)
    axes = tuple(
        Sliding(n, (n + 2 * padding - 2 * dilation - 1) // stride + 1, 3, stride, padding, dilation) for n in (11, 10)
    )
    y = Convolve(x, w, axes)
    (u,), (turned,) = given("u", *[int(n) for n in y.shape]), given("turned", 1, 4, 6, 3, 3)
    back = ConvolveBack(u, turned, axes)
    graph = Graph((x, w, u, turned), (y, back, ConvolveWeight(x, u, axes)))
    groups = fuse(graph).groups
    assert [group.kind for group in groups] == ["contraction"] * 3
    joined = [as_matrix(flatten(group)) for group in groups]
    taps = 9 if stride == 1 else 4 if dilation == 1 else 9
    assert [[i.extent for i in flat.columns] for flat in joined[:2]] == [[36], [6 * taps]]
    check(graph, arrays(graph))


@pytest.mark.parametrize("varying", range(4))
def test_axes_that_vary_are_not_joined(varying: int) -> None:
    """The summed axis lies in the middle of each operand: only equal extents could make it one with another."""
    k, i, m, j = (Size.named("n") if n == varying else 5 + n for n in range(4))
    x, y = Input(TensorType(float32, (k, i, m)), "x"), Input(TensorType(float32, (j, k, m)), "y")
    graph = Graph((x, y), (Contract(x, y, "kim,jkm->ij"),))
    (group,) = fuse(graph).groups
    flat = as_matrix(flatten(group))
    assert len(flat.columns) == (2 if varying == 2 else 1)
    assert len(assemble(fuse(graph)).steps) == 1


@pytest.mark.parametrize(("side", "kernels"), [(1024, 3), (64, 1)])
def test_large_operands_are_computed_before_where_units_fetch_them(side: int, kernels: int) -> None:
    """GPUs compute them before; CPUs compute them while they pack."""
    x, w = given("x w", side, side)
    low = [cast(x, bfloat16), permute(cast(w, bfloat16), (1, 0))]
    graph = Graph((x, w), (matmul(*low),))
    groups = fuse(graph, gpu_model(132)).groups
    assert len(groups) == kernels
    assert len(fuse(graph).groups) == 1
    (product,) = [g for g in groups if g.kind == "contraction"]
    assert {v.dtype for v in product.reads()} == {bfloat16 if kernels == 3 else float32}


def test_tiles_are_small_where_the_epilogue_reads_much() -> None:
    """What it reads is on the stack meanwhile."""
    extent, count = 528, 59
    x, y = given("x y", extent, extent)
    (other,) = given("other", extent + count, extent)
    total: Value = matmul(x, y)
    for n in range(count):
        total = add(total, Slice(other, (n, 0), (1, 1), (extent, extent)))
    target = cpu_model(2, 1 << 20)
    (group,) = fuse(Graph((x, y, other), (total,)), target).groups
    extents = sides(flatten(group), target).extents
    tile, usual = blocks(extents, target), blocks(extents._replace(room=0), target)
    assert extents.epilogue_bytes == 4 * (count + 1)
    assert tile.size("m") * tile.size("n") <= extents.room < usual.size("m") * usual.size("n")
