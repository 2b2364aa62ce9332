"""Convolutions as products over packed rows: the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.examples_windows import sliding
from tests.ops.registry import floats, given
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import bfloat16
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.program import Launch, Program
from tilegrad.ops import convolution
from tilegrad.ops.packed_rows import PackedConvolve, PackedConvolveWeight, PackedRows
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse
from tilegrad.transform.implicit_gemm import implicit_gemm
from tilegrad.transform.pipeline import PASSES, optimise

GPU = gpu_model(132)
CASES = {
    "same": ((9, 3, 1, 1), (7, 3, 1, 1)),
    "uneven": ((8, 3), (11, 5, 1, 2)),
    "far": ((19, 11, 4), (23, 7, 4, 2)),
    "one tap": ((8, 1, 2), (8, 1, 2)),
    "overlapping": ((13, 3, 2, 1), (10, 3, 2, 1)),
    "apart": ((9, 3, 1, 2, 2), (9, 3, 1, 1, 3)),
    "beyond": ((8, 4, 1, 3), (8, 4, 1, 3)),
    "far beyond": ((8, 3, 1, 4), (8, 2, 1, 3)),
    "volume": ((5, 3, 1, 1), (6, 2), (7, 3, 2)),
    "line": ((17, 5, 1, 2),),
}


def check(graph: Graph, made: Graph, arrays: list[np.ndarray]) -> None:
    for a, b in zip(interpret(graph, arrays), interpret(made, arrays), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("groups", "channels", "outputs"), [(1, 3, 4), (1, 40, 2), (2, 8, 9)])
def test_convolutions_as_products_of_packed_rows(name: str, groups: int, channels: int, outputs: int) -> None:
    axes = tuple([sliding(*each) for each in CASES[name]])
    arrays = [
        floats(2, groups, channels, *[a.extent for a in axes]),
        floats(groups, outputs, channels, *[a.taps for a in axes], seed=1),
        floats(2, groups, outputs, *[a.count for a in axes], seed=2),
    ]
    x, w, y = map(given, arrays)
    made = (
        convolution.Convolve(x, w, axes),
        convolution.convolve_back(y, w, axes),
        convolution.ConvolveWeight(x, y, axes),
    )
    graph = Graph((x, w, y), made)
    other = implicit_gemm(graph, GPU)
    kinds = {type(v) for v in other.values()}
    assert {PackedRows, PackedConvolve, PackedConvolveWeight} <= kinds
    assert not kinds & {convolution.Convolve, convolution.ConvolveWeight}
    check(graph, other, arrays)
    assert not any(step.applies(TargetModel()) for step in PASSES if step.run is implicit_gemm)


def test_convolutions_that_are_not_rewritten() -> None:
    x, w = given(floats(2, 1, 3, 9)), given(floats(1, 4, 3, 3))
    far_apart = Graph((x, w), (convolution.Convolve(x, w, (sliding(9, 3, 2, 0, 2),)),))
    assert implicit_gemm(far_apart, GPU) is far_apart
    x, w = given(floats(2, 5, 1, 9)), given(floats(5, 1, 1, 3))
    narrow = Graph((x, w), (convolution.Convolve(x, w, (sliding(9, 3),)),))
    assert implicit_gemm(narrow, GPU) is narrow, "products of one channel each are no matrix products"


def program(value: Value, *inputs: Value) -> Program:
    graph = Graph(inputs, (value,))  # type: ignore[arg-type]
    graph = optimise(graph, GPU)
    return assemble(fuse(graph, GPU))


def test_short_axes_are_one_with_gaps_between_them() -> None:
    axes = (sliding(26, 5, 1, 2), sliding(26, 5, 1, 2))
    x, w = (Input(TensorType(bfloat16, shape)) for shape in ((128, 1, 96, 26, 26), (1, 256, 96, 5, 5)))
    *laying, launch = program(convolution.Convolve(x, w, axes), x, w).steps
    assert isinstance(launch, Launch)
    assert [step.kernel.name for step in laying if isinstance(step, Launch)] == ["packed_rows", "packed_rows"]
    text = str(launch.kernel)
    assert "tl.load(packed_rows_2 + ((k * 2688 + i * 96)[None, :] + ks[:, None])" in text, (
        "the row of a window is one number"
    )
    assert "mask=((i4 < 26) & (i3 < 26))[None, :]" in text, "what is in the gaps is not stored"
    assert launch.grid[0].extent == 128 * 28 * 28


def test_sums_over_lines_fill_the_machine() -> None:
    axes = (sliding(26, 5, 1, 2), sliding(26, 5, 1, 2))
    x, y = (Input(TensorType(bfloat16, shape)) for shape in ((128, 1, 96, 26, 26), (128, 1, 256, 26, 26)))
    steps = program(convolution.ConvolveWeight(x, y, axes), x, y).steps
    counts = {s.kernel.name: int(np.prod([t.count({}) for t in s.grid])) for s in steps if isinstance(s, Launch)}
    assert 100 <= counts["packed_convolve_weight_pieces"] <= GPU.workers, "a tile for each multiprocessor"
