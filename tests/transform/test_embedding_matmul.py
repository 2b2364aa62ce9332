"""Products with gathered rows as products with the table: the same results, and products that are not rewritten."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import DType, bfloat16, float32, int64
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ops.broadcasting import fill
from tilegrad.ops.contraction import Contract
from tilegrad.ops.indexing import Gather, Scatter
from tilegrad.ops.movement import permute
from tilegrad.transform.autodiff import gradients, tracked_input
from tilegrad.transform.embedding_matmul import embedding_matmul
from tilegrad.transform.pipeline import PASSES
from tilegrad.transform.share import share

ROWS, DEPTH, WIDTH, LENGTH, BATCH = 7, 96, 5, 16, 12
I = Input(TensorType(int64, (LENGTH, BATCH)), "i")
ENTRIES = np.random.default_rng(0).integers(-ROWS, ROWS - 2, (LENGTH, BATCH))
ENTRIES[0, 0], ENTRIES[1, 1] = 40, -40  # beyond the ends: the last row, the first
ENTRIES[ENTRIES % ROWS == 3] = 2  # nobody looks up row 3

EQUATIONS = {
    "rows": ("nmk,kj->nmj", None),
    "on the right": ("kj,nmk->jnm", None),
    "turned": ("mnk,kj->njm", (1, 0, 2)),
    "depth first": ("knm,kj->mjn", (2, 0, 1)),
}


def example(case: str) -> tuple[Graph, Value]:
    """A product with looked up rows, and its gradients; and the product."""
    equation, order = EQUATIONS[case]
    table = tracked_input(TensorType(float32, (ROWS, DEPTH)), "table")
    w = tracked_input(TensorType(float32, (DEPTH, WIDTH)), "w")
    x: Value = Gather(table, (I,), (0,))
    x = x if order is None else permute(x, order)
    y = Contract(*((w, x) if case == "on the right" else (x, w)), equation)
    upstream = Input(y.type, "u")
    found = [g for g in gradients([y], [upstream], [table, w]) if g is not None]
    return share(Graph((table, I, w, upstream), (y, *found))), y


def arrays(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    table, _, w, u = (rng.standard_normal(x.shape).astype(np.float32) for x in graph.inputs)
    return [table, ENTRIES, w, u]


def arrays_for(graph: Graph) -> list[np.ndarray]:
    """Arrays for a table, its indices, and a matrix."""
    rng = np.random.default_rng(1)
    table, _, other = (rng.standard_normal(x.shape).astype(np.float32) for x in graph.inputs)
    return [table, ENTRIES, other]


def products(graph: Graph) -> list[Contract]:
    return [v for v in graph.values() if isinstance(v, Contract)]


@pytest.mark.parametrize("case", EQUATIONS)
def test_forward_and_both_gradients_are_made_of_the_table(case: str) -> None:
    graph, _ = example(case)
    made = share(embedding_matmul(graph))
    assert len(products(made)) == 3
    assert all(ROWS in x.inputs[0].shape + x.inputs[1].shape for x in products(made))
    assert not any(LENGTH in x.inputs[0].shape + x.inputs[1].shape for x in products(made))
    given = arrays(graph)
    for ours, wanted in zip(interpret(made, given), interpret(graph, given), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_row_that_nobody_looks_up_has_no_part_in_a_result(odd: float) -> None:
    graph, _ = example("rows")
    table, entries, w, u = arrays(graph)
    table[3] = odd
    outputs = interpret(embedding_matmul(graph), [table, entries, w, u])
    assert all(np.isfinite(x).all() for x in outputs)
    w[0, 0] = odd
    y, to_table, _ = interpret(embedding_matmul(graph), [table, entries, w, u])
    assert not np.isfinite(y).all()
    np.testing.assert_array_equal(to_table[3], 0)
    assert not np.isfinite(to_table[2]).all()


def test_what_arrives_is_added_up_once_for_both_gradients() -> None:
    made = share(embedding_matmul(example("turned")[0]))
    assert sum(isinstance(v, Scatter) and v.dtype is float32 for v in made.values()) == 1


def _alone(table: tuple[int, ...], entries: tuple[int, ...], dtype: DType = float32) -> Graph:
    x = Input(TensorType(dtype, table), "table")
    i, w = Input(TensorType(int64, entries), "i"), Input(TensorType(dtype, (table[-1], WIDTH)), "w")
    letters = "abc"[: len(entries)]
    return Graph((x, i, w), (Contract(Gather(x, (i,), (0,)), w, f"{letters}k,kj->{letters}j"),))


def test_it_must_pay() -> None:
    assert embedding_matmul(_alone((100, 128), (256,))).outputs[0].op == "gather"
    for graph in (_alone((200, 128), (256,)), _alone((300, 128), (256,)), _alone((8, 32), (4096,))):
        assert embedding_matmul(graph) is graph


def test_what_stays() -> None:
    """Products that someone else needs before they are added up, and sums that would be rounded each time."""
    y, w = Input(TensorType(float32, (192, DEPTH)), "y"), Input(TensorType(float32, (96, DEPTH)), "w")
    i = Input(TensorType(int64, (192,)), "i")
    made = Contract(y, w, "nk,jk->nj")
    added = Scatter(fill(0.0, (), float32), (i,), made, (0,), (ROWS, 96), "add")
    assert products(embedding_matmul(Graph((y, w, i), (added,))))[0].shape == (ROWS, 96)
    base = Scatter(fill(1.0, (), float32), (i,), made, (0,), (ROWS, 96), "add")
    written = Scatter(fill(0.0, (), float32), (i,), made, (0,), (ROWS, 96))
    for outputs in ((added, made), (base,), (written,)):
        graph = Graph((y, w, i), outputs)
        assert embedding_matmul(graph) is graph
    half = Input(TensorType(bfloat16, (ROWS, DEPTH)), "half")
    u = Input(TensorType(bfloat16, (LENGTH, BATCH, WIDTH)), "u")
    graph = Graph((half, I, u), (Contract(Gather(half, (I,), (0,)), u, "nmk,nmj->kj"),))
    assert embedding_matmul(graph) is graph
    table, entries = (Input(t, "x") for t in (TensorType(float32, (ROWS, DEPTH)), I.type))
    for equation, shape in (("nmk,j->kj", (5,)), ("nmk,mj->kj", (BATCH, 5))):  # entries that the other side lacks
        y = Input(TensorType(float32, shape), "y")
        graph = Graph((table, entries, y), (Contract(Gather(table, (entries,), (0,)), y, equation),))
        found, wanted = (interpret(g, arrays_for(g)) for g in (embedding_matmul(graph), graph))
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-3)
    assert embedding_matmul(_alone((100, 128), (256,), bfloat16)).outputs[0].op == "gather"
    assert not any(step.applies(gpu_model(132)) for step in PASSES if step.run is embedding_matmul)


def test_a_step_of_training() -> None:
    """Against the same step with the rows of the table as an input."""
    rng = np.random.default_rng(2)
    entries = rng.integers(0, 20, (32, 16))
    numbers = rng.standard_normal((30, 128)).astype(np.float32), rng.standard_normal((64, 128)).astype(np.float32)

    @tg.jit
    def step(table: tg.Tensor, w: tg.Tensor, i: tg.Tensor) -> tuple[tg.Tensor, ...]:
        y, back = tg.vjp(lambda t, w: tg.nn.functional.linear(t[i].transpose(0, 1), w).sin(), table, w)
        return (y, *back(y))

    y, to_table, to_w = step(*map(tg.tensor, (*numbers, entries)))
    table, w = (x.astype(np.float64) for x in numbers)
    rows = table[entries].swapaxes(0, 1)
    made = rows @ w.T
    back = np.sin(made) * np.cos(made)
    wanted = np.zeros_like(table)
    np.add.at(wanted, entries, (back @ w).swapaxes(0, 1))
    np.testing.assert_allclose(y.numpy(), np.sin(made), atol=2e-4)
    np.testing.assert_allclose(to_table.numpy(), wanted, atol=2e-2)
    np.testing.assert_allclose(to_w.numpy(), np.einsum("abj,abk->jk", back, rows), atol=2e-2)
