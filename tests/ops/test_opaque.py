"""The kernels of opaque ops do what their references say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.registry import Example, all_examples
from tests.ops.test_examples import DIFFERENTIABLE, backward
from tilegrad.backend.reference.graph import interpret
from tilegrad.backend.reference.tile import run
from tilegrad.errors import ShapeError
from tilegrad.ir.dtype import bfloat16, float32, int32, int64
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.size import Size, known
from tilegrad.ir.tile_parser import parse
from tilegrad.ops.attention import Attention
from tilegrad.ops.attention_gradient import AttentionGradient
from tilegrad.ops.batched import Batched
from tilegrad.ops.bind_sizes import with_sizes
from tilegrad.ops.external_call import ExternalCall
from tilegrad.ops.indexing import index_add
from tilegrad.ops.odd_tiles import RepairedTiles
from tilegrad.ops.opaque import Opaque
from tilegrad.ops.ranges import RangeReduce, block_levels
from tilegrad.ops.recurrence import Recurrence, RecurrenceGradient
from tilegrad.ops.recurrence_tangent import RecurrenceTangent
from tilegrad.ops.sorting import SortedKeys
from tilegrad.transform.batch import batch

GRAPHS = [(e, e.graph()) for e in all_examples()] + [(e, backward(e.graph())) for e in DIFFERENTIABLE]
OPAQUE = [(e, g) for e, g in GRAPHS if e.op is not ExternalCall and any(v.opaque for v in g.values())]
"""Without calls of foreign work: their code is their meaning, and their examples say what it computes."""
ROUNDING = (Attention, AttentionGradient, Recurrence, RecurrenceGradient, RecurrenceTangent, RepairedTiles)
"""Sums of these are taken in another order than in their references."""


@pytest.mark.parametrize(("e", "graph"), OPAQUE, ids=lambda x: x.name if isinstance(x, Example) else "")
def test_kernels_compute_what_references_do(e: Example, graph: Graph) -> None:
    upstreams = [np.random.default_rng(4).uniform(0.5, 1.5, x.shape) for x in graph.inputs[len(e.arrays) :]]
    for value in [v for v in graph.values() if v.opaque]:
        inputs = interpret(Graph(graph.inputs, value.inputs), [*e.arrays, *upstreams])
        check_kernel(value, inputs, {})


def check_kernel(value: Value, inputs: list[Any], sizes: dict[str, int]) -> None:
    assert isinstance(value, (Opaque, Batched))
    fixed = with_sizes(value, sizes)
    assert isinstance(fixed, (Opaque, Batched))
    wanted = fixed.reference(*inputs)
    code = value.kernel()
    assert parse(str(code.kernel)) == code.kernel
    shape = tuple(known(extent, sizes) for extent in value.shape)
    assert wanted.shape == shape
    assert wanted.dtype == value.dtype.numpy
    found = np.zeros(shape, value.dtype.numpy)
    numbers = [known(size, sizes) for size in code.sizes]
    run(code.kernel, [*inputs, found, *numbers], [tiles.count(sizes) for tiles in code.grid], checked=True)
    if value.dtype is bfloat16:  # weights are rounded before they are multiplied
        np.testing.assert_allclose(*[x.astype(np.float64) for x in (found, wanted)], rtol=2e-2, atol=2e-2)
    elif isinstance(value, ROUNDING):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    else:
        np.testing.assert_array_equal(found, wanted)


def given(dtype: Any, *shape: Any) -> Input:
    return Input(TensorType(dtype, shape))


def test_sizes_that_vary_are_parameters() -> None:
    n, m = Size.named("n"), Size.named("m")
    value = index_add(given(float32, n, m), 0, given(int64, 3), given(float32, 3, m))
    random = np.random.default_rng(0)
    base, source = random.random((5, 70), np.float32), random.random((3, 70), np.float32)
    check_kernel(value, [base, np.array([4, -5, 0]), source], {"n": 5, "m": 70})
    assert [str(size) for size in value.kernel().sizes] == ["m", "n"]  # type: ignore[attr-defined]


def test_ranges_whose_number_varies() -> None:
    starts, entries = given(int64, Size.named("n")), given(float32, 70, Size.named("m"))
    value = RangeReduce(starts, block_levels(entries, "maximum"), "maximum")
    arrays = [np.array([0, 3, 3, 69, 70]), np.random.default_rng(0).random((70, 3), np.float32)]
    check_kernel(value, [*arrays, np.stack([arrays[1][:64].max(0), arrays[1][64:].max(0)])], {"n": 5, "m": 3})
    with pytest.raises(ShapeError, match="n entries, a size that varies"):
        block_levels(given(float32, Size.named("n"), 3), "maximum")


def test_a_batch_of_a_size_that_varies() -> None:
    n, m = Size.named("n"), Size.named("m")
    one, many = given(int64, 4), given(int64, n, 4)
    table, tables = given(float32, m, 3), given(float32, n, m, 3)
    (value,) = batch([index_add(table, 0, one, given(float32, 4, 3))], {one: many, table: tables})
    assert isinstance(value, Batched)
    random = np.random.default_rng(0)
    inputs = [random.random((2, 6, 3), np.float32), np.array([[1, 1, 5, -6], [0, 2, 0, 3]])]
    check_kernel(value, [*inputs, random.random((4, 3), np.float32)], {"n": 2, "m": 6})


def test_twice_batched() -> None:
    keys = given(int32, 5)
    inner = given(keys.dtype, 2, 5)
    outer = given(keys.dtype, 3, 2, 5)
    (once,) = batch([SortedKeys(keys)], {keys: inner})
    (twice,) = batch([once], {inner: outer})
    array = np.random.default_rng(0).integers(-9, 9, (3, 2, 5)).astype(np.int32)
    check_kernel(twice, [array], {})
