"""Intermediates that kernels for many multiprocessors recompute instead of storing, and one-hot sums."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg
from tests.schedule.test_lowering import check
from tests.target_models import GPU, scheduled_for
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.ir.dtype import bfloat16, float32, int64
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ops.arithmetic import mul, sub
from tilegrad.ops.broadcasting import reduce_sum, reshape
from tilegrad.ops.cast import cast
from tilegrad.ops.comparison import eq
from tilegrad.ops.contraction import matmul
from tilegrad.ops.control import where
from tilegrad.ops.creation import arange
from tilegrad.ops.exponential import exp
from tilegrad.ops.reduction import amax
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule import one_hot_reduce, recompute
from tilegrad.schedule.fuse import fuse
from tilegrad.transform.column_sums import column_sums


def given(*shape: int, name: str = "x") -> Input:
    return Input(TensorType(float32, shape), name)


def softmax_and_gradient(rows: int, columns: int) -> Graph:
    """Scores of half precision, the sums of their exponentials, and a gradient that needs these again."""
    x, y = Input(TensorType(bfloat16, (rows, columns)), "x"), given(rows, 1, name="y")
    wide = cast(x, float32)
    powers = exp(sub(wide, amax(wide, (1,), True)))
    sums = reduce_sum(powers, (1,), True)
    total = reduce_sum(mul(sums, y), (0,), True)
    return Graph((x, y), (sums, mul(powers, total)))


def test_exponentials_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "MIN_RECOMPUTED_BYTES", 1 << 10)
    graph = softmax_and_gradient(64, 300)
    stored = [g.stored for g in fuse(graph, gpu_model(132)).groups]
    assert not any(v.op == "exp" for group in stored for v in group)
    assert any(v.op == "exp" for g in fuse(graph, TargetModel()).groups for v in g.stored)
    random = np.random.default_rng(0)
    x = random.standard_normal((64, 300)).astype(bfloat16.numpy)
    check(graph, [x, random.random((64, 1), np.float32)], gpu_model(132), tolerance=1e-4)


def test_small_ones_are_stored() -> None:
    stored = [g.stored for g in fuse(softmax_and_gradient(64, 300), gpu_model(132)).groups]
    assert any(v.op == "exp" for group in stored for v in group)


def picking(rows: int, columns: int) -> Graph:
    x, label = given(rows, columns), Input(TensorType(int64, (rows,)), "label")
    there: Value = eq(reshape(label, (rows, 1)), arange(0, columns))
    return Graph((x, label), (reduce_sum(where(there, mul(x, 2.0), 0.0), (1,)),))


def test_what_a_product_reads_too_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product reads its operands many times: nothing is computed again in it, and so nowhere."""
    monkeypatch.setattr(recompute, "MIN_RECOMPUTED_BYTES", 1 << 10)
    x, w = given(4096, 32), given(32, 32, name="w")
    powers = exp(sub(x, amax(x, (1,), True)))
    graph = Graph((x, w), (reduce_sum(powers, (1,)), matmul(powers, w), reduce_sum(powers, (0,))))
    assert "exp" in [v.op for g in fuse(graph, gpu_model(132)).groups for v in g.stored]


def test_a_sum_of_one_element_is_that_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hot_reduce, "MIN_ROW_ELEMENTS", 16)
    graph = picking(8, 40)
    (group,) = fuse(graph, gpu_model(132)).groups
    assert group.kind == "map"
    assert fuse(graph, TargetModel()).groups[0].kind == "rows"


@pytest.mark.parametrize("labels", [[0, 39, 5, 7, 1, 1, 2, 38], [-1, 40, 100, -100, 3, 4, 5, 6]])
def test_labels_out_of_range_pick_nothing(labels: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hot_reduce, "MIN_ROW_ELEMENTS", 16)
    x = np.random.default_rng(0).standard_normal((8, 40)).astype(np.float32)
    check(picking(8, 40), [x, np.array(labels)], gpu_model(132))


def test_what_was_made_in_blocks_of_rows_is_computed_again_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is then the number of a block and that of a row in it, for its maker; its reader has other blocks."""
    monkeypatch.setattr(recompute, "MIN_RECOMPUTED_BYTES", 1 << 10)
    x, y = given(4096, 32), given(4096, 32, name="y")
    powers = exp(sub(x, amax(x, (1,), True)))
    sums = [reduce_sum(powers, (1,), True), reduce_sum(powers, (0,)), reduce_sum(mul(powers, y), (0, 1))]
    graph = Graph((x, y), tuple(sums))
    groups = fuse(column_sums(graph, gpu_model(132)), gpu_model(132)).groups
    assert not any(v.op == "exp" for g in groups for v in g.stored)
    random = np.random.default_rng(0)
    check(graph, [random.standard_normal((4096, 32), np.float32) for _ in range(2)], gpu_model(132), tolerance=1e-3)


def normalised_gradient() -> list[np.ndarray]:
    """The gradients of a mean of normalised rows for what was added to each image: a ViT's positions."""
    rng = np.random.default_rng(0)
    shapes = ((16, 256, 384), (256, 384), (384,), (384,))
    x, p, g, b = (tg.tensor(rng.standard_normal(s, np.float32)) for s in shapes)
    for leaf in (p, g, b):
        leaf.requires_grad = True

    @tg.jit
    def gradients(x: tg.Tensor, p: tg.Tensor, g: tg.Tensor, b: tg.Tensor) -> tuple[tg.Tensor, ...]:
        made = tg.nn.functional.layer_norm(x + p, (384,), g, b).mean(1)
        return tg.autograd.grad(made.square().mean(), (g, b, p))

    return [made.numpy() for made in gradients(x, p, g, b)]


def test_rows_of_blocks_are_computed_again() -> None:
    """A value at a row of a block of rows is recomputed at that row, in the indices of the reader."""
    right = normalised_gradient()
    with scheduled_for(GPU):
        found = normalised_gradient()
    for one, other in zip(found, right, strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-6)
