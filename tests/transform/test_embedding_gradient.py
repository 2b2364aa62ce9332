"""Gradients of embedding tables as segment sums: the same sums, and scatters that are not rewritten."""

from __future__ import annotations

import numpy as np
import pytest

from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import DType, float16, float32, int32, int64
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ops.broadcasting import expand, fill
from tilegrad.ops.indexing import Scatter
from tilegrad.runtime.target_model import TargetModel
from tilegrad.transform.embedding_gradient import embedding_gradient

GPU = gpu_model(132)


def graph(
    shape: tuple[int, ...] = (20, 30), rows: int = 50, width: int = 40, index: DType = int64, dtype: DType = float32
) -> Graph:
    letters = Input(TensorType(index, shape), "letters")
    given = Input(TensorType(dtype, (*shape, width)), "given")
    return Graph((letters, given), (Scatter(zero(dtype), (letters,), given, (0,), (rows, width), "add"),))


def zero(dtype: DType) -> Value:
    return fill(0.0, (), dtype)


def ops(made: Graph) -> set[str]:
    return {v.op for v in made.values()}


@pytest.mark.parametrize("index", [int32, int64])
def test_sums_are_the_same(index: DType) -> None:
    plain = graph(index=index)
    made = embedding_gradient(plain, GPU)
    assert {"sorted_keys", "segment_starts", "segment_sums"} <= ops(made)
    assert "scatter" not in ops(made)
    random = np.random.default_rng(0)
    letters = random.integers(-60, 60, (20, 30)).astype(index.numpy)  # some count from the end, some are beyond
    given = random.integers(-9, 9, (20, 30, 40)).astype(np.float32)
    for found, wanted in zip(interpret(made, [letters, given]), interpret(plain, [letters, given]), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_is_left_to_a_scatter() -> None:
    letters, given = graph().inputs
    table = Input(TensorType(float32, (50, 40)), "table")
    added = Graph((letters, given, table), (Scatter(table, (letters,), given, (0,), (50, 40), "add"),))
    least = Graph((letters, given), (Scatter(zero(float32), (letters,), given, (0,), (50, 40), "minimum"),))
    for other in (graph((5, 5)), graph(width=3), graph(dtype=float16), added, least):
        assert embedding_gradient(other, GPU) is other
    assert embedding_gradient(graph(), TargetModel()).outputs[0].op == "scatter"


def test_zeros_that_are_repeated() -> None:
    letters, given = graph().inputs
    whole = Scatter(expand(zero(float32), (50, 40)), (letters,), given, (0,), (50, 40), "add")
    assert "segment_sums" in ops(embedding_gradient(Graph((letters, given), (whole,)), GPU))


def test_wide_entries_are_added_up_row_by_row() -> None:
    y, i = (Input(TensorType(dtype, shape), "yi") for dtype, shape in ((float32, (512, 128)), (int64, (512,))))
    added = Scatter(fill(0.0, (), float32), (i,), y, (0,), (30, 128), "add")
    graph = Graph((y, i), (added,))
    made = embedding_gradient(graph)
    assert "segment_sums" in [v.op for v in made.values()]
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal((512, 128)).astype(np.float32), rng.integers(-30, 30, 512)]
    np.testing.assert_allclose(*interpret(made, arrays), *interpret(graph, arrays), atol=1e-4)
    narrow = Scatter(fill(0.0, (), float32), (i,), Input(TensorType(float32, (512, 64)), "y"), (0,), (30, 64), "add")
    assert embedding_gradient(Graph((narrow.source, i), (narrow,))).outputs == (narrow,)  # type: ignore[arg-type]
