"""Devices that want work cut differently: every kernel means the same, and is cut as the device wants."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.registry import Example, all_examples
from tests.schedule.test_lowering import check
from tilegrad.backend.cpu.costs import cpu_model
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.backend.reference.device import ReferenceDevice
from tilegrad.compiler import compile
from tilegrad.config import changed
from tilegrad.ir.dtype import DType, bfloat16, float32, float64
from tilegrad.ir.graph import Graph, Input, TensorType, Value, topological
from tilegrad.ir.program import Launch, Program
from tilegrad.ops.activation import softmax
from tilegrad.ops.arithmetic import add
from tilegrad.ops.broadcasting import reduce_sum
from tilegrad.ops.cast import cast
from tilegrad.ops.contraction import matmul
from tilegrad.ops.convolution import ConvolveWeight
from tilegrad.ops.exponential import exp
from tilegrad.ops.movement import permute
from tilegrad.ops.sliding import Sliding
from tilegrad.runtime.target_model import MatmulModel, TargetModel
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse
from tilegrad.transform.autodiff import leaf_gradients
from tilegrad.transform.pipeline import optimise

SMALL = gpu_model(4)._replace(
    tile_elements=16,
    loop_elements=16,
    short_row_elements=16,
    min_tile_elements=4,
    max_row_elements=32,
    single_instance_elements=8,
    column_tile_width=4,
    column_tile_depth=2,
    row_block_elements=8,
    transpose_tile_side=4,
    min_split_elements=32,
    max_split_parts=8,
    column_sum_parts=4,
    min_parallel_rows=2,
    matmul=MatmulModel(
        32,
        32,
        16,
        16,
        16,
        macs_per_cycle=64.0,
        load_cycles=1 / 16,
        pack_cycles=0.0,
        instance_cycles=100.0,
        max_result_elements=512,
        split_k_tiles=4,
        min_split_depth=8,
        min_split_macs=1,
        max_split_k=128,
    ),
)
"""Many small cores, so small that the examples of ops are large for them."""
FEW = TargetModel()._replace(
    workers=3,
    tile_elements=12,
    loop_elements=12,
    short_row_elements=12,
    max_row_elements=5,
    single_instance_elements=2,
    column_tile_width=3,
    column_tile_depth=3,
    transpose_tile_side=3,
    row_block_elements=6,
)
"""A few such cores."""
SOME = [e for n, e in enumerate(all_examples()) if n % 8 == 0]


@pytest.mark.parametrize("example", SOME, ids=lambda e: e.name)
def test_op(example: Example) -> None:
    check(example.graph(), list(example.arrays), SMALL, example.tolerance)


@pytest.mark.parametrize("example", SOME[::3], ids=lambda e: e.name)
def test_op_few(example: Example) -> None:
    check(example.graph(), list(example.arrays), FEW, example.tolerance)


@pytest.mark.parametrize("example", [e for e in SOME if e.gradient], ids=lambda e: e.name)
def test_gradient(example: Example) -> None:
    graph = example.graph()
    outputs = [v for v in graph.outputs if v.tracked]
    found = leaf_gradients(outputs, outputs)
    made = [found[x] for x in graph.inputs if x in found]
    if made:
        check(Graph(graph.inputs, tuple(made)), list(example.arrays), SMALL, example.tolerance)


@pytest.mark.parametrize(
    "example", [e for e in all_examples() if e.name.startswith(("MaxPool", "WindowScatter"))], ids=lambda e: e.name
)
def test_windows_under_masks(example: Example) -> None:
    test_op(example)
    test_gradient(example)


def given(*shape: int, dtype: DType = float32) -> Input:
    return Input(TensorType(dtype, shape), "x")


@pytest.mark.parametrize("batch", [16, 64])
def test_short_pieces_are_summed_as_one_row(batch: int) -> None:
    x = given(batch, 3, 40)
    graph = Graph((x,), (reduce_sum(x, (0, 2)),))
    numbers = np.random.default_rng(0).standard_normal((batch, 3, 40), dtype=np.float32)
    check(graph, [numbers], SMALL, 1e-5)
    (launch,) = program_of(graph.outputs[0], GPU).steps
    assert isinstance(launch, Launch)
    assert "k // 40 * 120 + row * 40 + k % 40" in str(launch.kernel)


def test_weights_that_are_renewed_meet_small_tiles() -> None:
    x, y, w = given(32, 512, dtype=bfloat16), given(32, 1024, dtype=bfloat16), given(512, 1024)
    (launch,) = program_of(add(w, cast(matmul(permute(x, (1, 0)), y), float32)), GPU).steps
    assert isinstance(launch, Launch)
    assert [part.tile for part in launch.grid] == [128, 64]


def program_of(value: Value, target: TargetModel) -> Program:
    graph = Graph(tuple(v for v in topological([value]) if isinstance(v, Input)), (value,))
    graph = optimise(graph, target)
    return assemble(fuse(graph, target))


def instances(program: Program) -> list[int]:
    """The number of instances of each launch."""
    return [int(np.prod([t.count({}) for t in s.grid])) for s in program.steps if isinstance(s, Launch)]


GPU = gpu_model(132)


@pytest.mark.parametrize(
    ("value", "launches"),
    [
        (exp(given(1 << 20)), [1024]),
        (exp(given(1 << 14)), [64]),
        (softmax(given(8192, 8192), -1), [8192]),
        (softmax(given(4096, 512), -1), [2048]),
        (softmax(given(131072, 1024), -1), [131072]),
        (reduce_sum(given(16384, 16384), (0,)), [512, 128]),
        (reduce_sum(given(16384, 16384), (1,)), [16384]),
        (reduce_sum(given(1 << 24)), [512, 1]),
        (permute(given(4096, 4096), (1, 0)), [64 * 64]),
        (permute(given(256, 256), (1, 0)), [256]),
        (matmul(given(4096, 4096, dtype=bfloat16), given(4096, 4096, dtype=bfloat16)), [512]),
        (matmul(given(2048, 2048), given(2048, 2048)), [256]),
        (matmul(given(128, 8192, dtype=bfloat16), given(8192, 256, dtype=bfloat16)), [128, 256]),
    ],
    ids=str,
)
def test_instances_for_many_small_cores(value: Value, launches: list[int]) -> None:
    assert instances(program_of(value, GPU)) == launches


def test_tiles_are_powers_of_two_where_that_is_wanted() -> None:
    for value in (exp(given(7, 1000)), softmax(given(33, 100), -1), matmul(given(100, 300), given(300, 50))):
        for step in program_of(value, GPU).steps:
            assert isinstance(step, Launch)
            found = [int(part.split(")")[0]) for part in str(step.kernel).split("tl.arange(0, ")[1:]]
            assert found
            assert all(n & (n - 1) == 0 for n in found)


def test_the_sums_of_half_precision_products_in_pieces_are_wide() -> None:
    product = matmul(given(16, 4096, dtype=bfloat16), given(4096, 16, dtype=bfloat16))
    program = program_of(product, GPU)
    assert [b.type.dtype for b in program.buffers if b.role == "temporary"] == [float32]
    assert program_of(product, TargetModel()).arena == 0
    (first, _) = program.steps
    assert isinstance(first, Launch)
    assert "tl.dot(x, x_2, acc)" in str(first.kernel) or "tl.dot(x_, x_2_, acc)" in str(first.kernel)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_products_in_pieces(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    x, y = given(3, 5, 64, dtype=dtype), given(64, 7, dtype=dtype)
    graph = Graph((x, y), (add(matmul(x, y), 1.0),))
    check(graph, [rng.integers(-3, 4, v.shape).astype(dtype.numpy) for v in (x, y)], SMALL)


def test_the_sums_of_a_convolutions_weight_gradient_in_pieces() -> None:
    """Few weights, and a sum over all places of a batch: without pieces most cores would have nothing to do."""
    x = Input(TensorType(bfloat16, (128, 1, 3, 227, 227)), "x")
    y = Input(TensorType(bfloat16, (128, 1, 64, 55, 55)), "y")
    axes = (Sliding(227, 55, 11, 4), Sliding(227, 55, 11, 4))
    program = program_of(ConvolveWeight(x, y, axes), GPU)
    counts = {s.kernel.name: n for s, n in zip(program.steps, instances(program), strict=True)}  # type: ignore[union-attr]
    assert counts["packed_convolve_weight_pieces"] >= 64
    small = (Sliding(9, 4, 3, 2), Sliding(8, 7, 2, 1))
    x, y = given(4, 2, 3, 9, 8, dtype=float64), given(4, 2, 5, 4, 7, dtype=float64)
    rng = np.random.default_rng(0)
    graph = Graph((x, y), (ConvolveWeight(x, y, small),))
    assert any(v.op == "convolve_weight_pieces" for g in fuse(graph, SMALL).groups for v in g.stored)
    check(graph, [rng.standard_normal(v.shape) for v in (x, y)], SMALL)


@pytest.mark.parametrize(("extents", "count"), [((25, 50176, 6), 4), ((150, 6400, 16), 2), ((512, 6400, 512), 1)])
def test_long_sums_with_few_results_are_shared_between_few_cores(extents: tuple[int, int, int], count: int) -> None:
    m, k, n = extents
    x, y = (Input(TensorType(float32, shape), name) for name, shape in (("x", (m, k)), ("y", (k, n))))
    first, *_ = fuse(Graph((x, y), (matmul(x, y),)), cpu_model(2, 1 << 20)).groups
    (stored,) = first.stored
    assert (stored.shape[0] if stored.op == "contract_pieces" else 1) == count


def test_tiles_grow_with_the_cache() -> None:
    assert cpu_model(2, 2 << 20).matmul.max_rows > MatmulModel().max_rows
    assert cpu_model(2, 256 << 10).matmul.max_rows < MatmulModel().max_rows


def test_a_program_is_kept_for_its_target(tmp_path: object) -> None:
    x = given(4, 1000)
    with changed(cache=str(tmp_path)):
        made = []
        for target in (TargetModel(), SMALL, TargetModel()):
            place = ReferenceDevice("cpu")
            place.__dict__["target"] = target
            made.append(compile(Graph((x,), (exp(x),)), on=place).program)
    assert made[0] == made[2] != made[1]
