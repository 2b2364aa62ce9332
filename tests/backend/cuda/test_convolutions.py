"""Convolutions on GPUs: how operands reach the tensor cores, and what is compiled."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backend.cuda import emulated
from tests.backend.cuda.test_dot import compiled
from tests.ops.examples_windows import sliding
from tilegrad.backend.cuda.build import build_kernel
from tilegrad.backend.cuda.code.dot_warpgroup import WarpgroupLoop
from tilegrad.backend.cuda.code.lower import CudaLowering, lower
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.backend.cuda.tensor_map import TensorMap
from tilegrad.backend.reference.tile import run
from tilegrad.ir.dtype import bfloat16, float32
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.program import Launch
from tilegrad.ir.tile import Kernel
from tilegrad.ops import convolution
from tilegrad.ops.activation import relu
from tilegrad.ops.comparison import gt
from tilegrad.ops.control import where
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse
from tilegrad.transform.pipeline import optimise

GPU = gpu_model(132)
FIRST = (sliding(224, 11, 4), sliding(224, 11, 4))
MIDDLE = (sliding(26, 5, 1, 2), sliding(26, 5, 1, 2))
LATE = (sliding(12, 3, 1, 1), sliding(12, 3, 1, 1))


def given(*shape: int) -> Input:
    return Input(TensorType(bfloat16, shape))


def last_kernel(value: Value, *inputs: Input) -> Kernel:
    graph = Graph(inputs, (value,))
    graph = optimise(graph, GPU)
    steps = [s.kernel for s in assemble(fuse(graph, GPU)).steps if isinstance(s, Launch)]
    return next(k for k in reversed(steps) if "tl.dot" in str(k))


def forward(axes: convolution.Windows, channels: int, outputs: int) -> Kernel:
    x = given(128, 1, channels, *[a.extent for a in axes])  # type: ignore[list-item]
    w = given(1, outputs, channels, *[a.taps for a in axes])
    return last_kernel(relu(convolution.Convolve(x, w, axes)), x, w)


def weight(axes: convolution.Windows, channels: int, outputs: int) -> Kernel:
    x = given(128, 1, channels, *[a.extent for a in axes])  # type: ignore[list-item]
    y = given(128, 1, outputs, *[a.count for a in axes])  # type: ignore[list-item]
    return last_kernel(convolution.ConvolveWeight(x, y, axes), x, y)


KERNELS = {
    "first": lambda: forward(FIRST, 1, 96),
    "middle": lambda: forward(MIDDLE, 96, 256),
    "late": lambda: forward(LATE, 256, 384),
    "first weight": lambda: weight(FIRST, 1, 96),
    "middle weight": lambda: weight(MIDDLE, 96, 256),
}


@pytest.mark.parametrize("name", KERNELS)
def test_operands_are_copied_in_boxes(name: str) -> None:
    plan = CudaLowering(KERNELS[name](), "sm_90a").products.warpgroup
    assert isinstance(plan, WarpgroupLoop)
    assert plan.x.boxes + plan.y.boxes >= 2


def test_lines_of_an_operand_may_overlap() -> None:
    plan = CudaLowering(KERNELS["first"](), "sm_90a").products.warpgroup
    assert plan is not None
    assert (plan.y.map.pitch, plan.y.map.columns) == (48, 144), "a window is 144 numbers, 48 on from the one before"
    plan = CudaLowering(KERNELS["middle"](), "sm_90a").products.warpgroup
    assert plan is not None
    assert (plan.y.map.pitch, plan.y.map.columns) == (96, 480)


def test_a_matrix_may_begin_anywhere() -> None:
    found = lower(KERNELS["middle"](), "sm_90a")
    assert found.maps[0].anywhere, "the weights of a row of taps are not the first of their lines"
    assert "x_start" in found.text
    assert "tensor.3d" in found.text
    rank, _, dims, strides, box, *_ = found.maps[0].arguments(0)[1:]
    assert (rank, dims[0], list(strides), box[2]) == (3, 480, [4800, 16], 1)
    assert TensorMap.unpacked(found.maps[0].packed()) == found.maps[0]


@compiled
@pytest.mark.parametrize("name", ["first", "late", "first weight"])
def test_convolutions_compile_without_spills(name: str) -> None:
    made = build_kernel(KERNELS[name](), "sm_90a")
    assert made.spills <= 64
    assert len(made.maps) == 2


@compiled
def test_convolutions_compile_elsewhere() -> None:
    for architecture in ("sm_80", "sm_120"):
        assert build_kernel(KERNELS["late"](), architecture).spills <= 256


@pytest.mark.parametrize(
    ("outputs", "wanted"), [(64, (1, 256, 2, 160)), (96, (2, 96, 2, 288)), (192, (2, 192, 1, 384))]
)
def test_tiles_hold_all_rows(outputs: int, wanted: tuple[int, ...]) -> None:
    """With few rows two tiles share a multiprocessor; row counts that are no power of two become columns."""
    plan = CudaLowering(forward(MIDDLE, 64, outputs), "sm_90a").products.warpgroup
    assert plan is not None
    assert (plan.tiling.down, plan.tiling.columns, plan.blocks, plan.threads) == wanted
    assert plan.tiling.swapped == (outputs > 64)


def test_tf32_weight_gradients_have_an_operand_contiguous_along_k() -> None:
    x, y = (Input(TensorType(float32, (128, 1, 64, 12, 12))) for _ in range(2))
    kernel = last_kernel(convolution.ConvolveWeight(x, y, LATE, "high"), x, y)
    plan = CudaLowering(kernel, "sm_90a").products.warpgroup
    assert plan is not None
    assert [side.transposed for side in plan.sides] == [True, False]


# --- emulated ------------------------------------------------------------------------------------


def launches() -> list[tuple[Kernel, tuple[int, ...]]]:
    """Return the kernels and grids of a small convolution with ReLU and its gradients."""
    axes = (sliding(7, 3, 1, 1), sliding(6, 3, 1, 1))
    x, w, y = given(3, 1, 16, 7, 6), given(1, 24, 16, 3, 3), given(3, 1, 24, 7, 6)
    made = relu(convolution.Convolve(x, w, axes))
    back = where(gt(made, 0.0), y, 0.0)
    masked = where(gt(x, 0.0), convolution.convolve_back(back, w, axes), 0.0)  # what is loaded there lies in gaps
    outputs = (made, masked, convolution.ConvolveWeight(x, back, axes))
    graph = Graph((x, w, y), outputs)
    graph = optimise(graph, GPU)
    steps = [s for s in assemble(fuse(graph, GPU)).steps if isinstance(s, Launch)]
    return [(s.kernel, tuple([t.count({}) for t in s.grid])) for s in steps]


def test_results_are_those_of_the_interpreter() -> None:
    if not emulated.has_compiler():
        pytest.skip("no C++ compiler")
    found = launches()
    assert sum("tl.dot" in str(kernel) for kernel, _ in found) == 3
    emulation = emulated.Emulated([kernel for kernel, _ in found], "sm_80")
    random = np.random.default_rng(0)
    for n, (kernel, grid) in enumerate(found):
        arrays = [random.standard_normal(1 << 14).astype(p.dtype.numpy) for p in kernel.parameters]
        wanted, got = [a.copy() for a in arrays], [a.copy() for a in arrays]
        run(kernel, wanted, grid)
        emulation.run(n, got, grid, True)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=2e-2, atol=2e-2)
