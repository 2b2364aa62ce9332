"""Code of matrix products on the CPU: blocks at the ends of a result, index expressions, vector loads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilegrad as tg
import tilegrad.language as tl
from tests.backend.matrix_unit import assembly
from tests.checklist import checklist
from tests.recorded import pytorch
from tilegrad.backend.cpu.build import kernel_ir
from tilegrad.backend.cpu.code.blocks import padded_shape, register_block
from tilegrad.backend.cpu.code.lower import lower
from tilegrad.backend.cpu.code.peepholes import _scale
from tilegrad.backend.cpu.costs import ALIASING_STRIDE_BYTES, PADDING_BYTES
from tilegrad.backend.cpu.target import Target
from tilegrad.compiler import compile
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType
from tilegrad.ir.program import Launch
from tilegrad.ops.arithmetic import add
from tilegrad.ops.contraction import matmul
from tilegrad.ops.convolution import Convolve
from tilegrad.ops.sliding import Sliding
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule.flatten import flatten
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.strategies import default

TARGETS = [Target("x86", 32, 16), Target("x86", 64, 32), Target("arm", 16, 32)]


@given(st.sampled_from(TARGETS), st.integers(1, 300), st.integers(1, 300))
def test_blocks_cover_a_result_and_fit_the_registers(target: Target, m: int, n: int) -> None:
    rows, wide, _tail = register_block(target, float32, (m, n))
    height, width = padded_shape(target, float32, (m, n))
    lanes = target.lanes(4)

    assert rows * wide + wide + 1 <= target.registers
    assert height % rows == 0
    assert m <= height < m + rows
    assert n <= width < n + (wide + 2) * lanes + PADDING_BYTES // 4
    assert width * 4 % ALIASING_STRIDE_BYTES, "rows of the result do not fall on each other in a cache"


@given(st.integers(1, 5000), st.integers(0, 1 << 20))
def test_a_product_divides_all_numbers_that_there_are(divisor: int, most: int) -> None:
    scale = _scale(divisor, most, 32)
    if scale is None:
        return
    factor, shift = scale
    ends = [q * divisor + d for q in (0, 1, most // divisor // 2, most // divisor) for d in (-1, 0, 1)]
    for x in [x for x in ends if 0 <= x <= most] + [most]:
        assert x * factor < 1 << 32
        assert x * factor >> shift == x // divisor


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.architecture}-{target.vector_bytes}")
def test_integers_of_eight_bits_are_multiplied_in_pairs(target: Target) -> None:
    """Bytes are packed as 16 bits, so that no sum of two products overflows, where the processor multiplies them."""
    x, y = tg.ones(40, 64, dtype=tg.int8), tg.ones(64, 48, dtype=tg.int8)
    (launch,) = tg.explain(lambda x, y: x.int() @ y.int(), x, y).kernels.launches
    assert isinstance(launch, Launch)
    text = lower(launch.kernel, target)
    assert ("pmadd" in text) is (target.architecture == "x86")
    if target.vector_bytes == 64:
        assert "vpmaddwd\t" in assembly(launch, target)
    assert "vpmaddubsw" not in text


@pytest.mark.parametrize("m, n, k", [(7, 9, 3), (13, 40, 5), (8, 24, 33), (25, 56, 7), (6, 200, 2), (30, 17, 1)])
@pytest.mark.parametrize("across", [False, True])
def test_products_at_the_borders_of_blocks(m: int, n: int, k: int, across: bool) -> None:
    rng = np.random.default_rng(m)
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    if across:
        found = tg.tensor(x.T.copy()).T @ tg.tensor(y.T.copy()).T
    else:
        found = tg.tensor(x) @ tg.tensor(y)
    np.testing.assert_allclose(found.numpy(), x.astype(np.float64) @ y, rtol=1e-4, atol=1e-5)


@tg.kernel
def sum_that_is_read_early(x, out):
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    total = tl.zeros((16, 16), tl.float32)
    tl.store(out + 256 + at, total)
    total = tl.dot(tl.load(x + at), tl.load(x + at), total)
    for _ in range(2):
        total = tl.dot(tl.load(x + at), tl.load(x + at), total)
    tl.store(out + at, total)


def test_a_sum_that_begins_with_a_product_stores_no_zeros() -> None:
    x, y = (Input(TensorType(float32, shape), name) for name, shape in (("x", (24, 8)), ("y", (8, 40))))
    program = compile(Graph((x, y), (matmul(x, y),))).program
    (kernel,) = [step.kernel for step in program.steps if isinstance(step, Launch)]
    zeros = [line for line in kernel_ir(kernel).splitlines() if "store <" in line and "> splat (float" in line]
    assert not zeros

    given, out = tg.randn(16, 16), tg.full((512,), 7.0)
    sum_that_is_read_early[(1,)](given, out)
    product = given.numpy().astype(np.float64) @ given.numpy()
    np.testing.assert_allclose(out.numpy()[:256].reshape(16, 16), 3 * product, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(out.numpy()[256:], 0)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "n", "k", "packed"), [(28, 128, 64, False), (31, 128, 64, True), (588, 512, 64, True)])
def test_left_operands_that_few_columns_read_are_not_packed(m: int, n: int, k: int, packed: bool, turned: bool) -> None:
    x, y = tg.randn(k, m).T if turned else tg.randn(m, k), tg.randn(k, n)
    explanation = tg.explain(lambda x, y: x @ y, x, y)
    (launch,) = explanation.kernels.launches
    assert isinstance(launch, Launch)
    assert ("left.tile = alloca" in lower(launch.kernel, Target("x86", 64, 32))) == packed
    np.testing.assert_allclose((x @ y).numpy(), x.numpy().astype(np.float64) @ y.numpy(), rtol=1e-4, atol=1e-4)


def test_a_computed_left_operand_is_computed_by_vectors() -> None:
    """Also for a result that is one vector wide."""
    x, y = tg.randn(40, 64), tg.randn(10, 64)
    (launch,) = tg.explain(lambda x, y: tg.relu(x) @ y.T, x, y).kernels.launches
    assert isinstance(launch, Launch)
    ir = lower(launch.kernel, Target("x86", 64, 32))
    assert "fcmp ogt <16 x float>" in ir
    assert "fcmp ogt float" not in ir
    product = np.maximum(x.numpy(), 0).astype(np.float64) @ y.numpy().T
    np.testing.assert_allclose((tg.relu(x) @ y.T).numpy(), product, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [1, 9, 15])
def test_ends_of_rows_are_stored_without_masks(width: int) -> None:
    x = Input(TensorType(float32, (7, width)), "x")
    program = compile(Graph((x,), (add(x, x),))).program
    (kernel,) = [step.kernel for step in program.steps if isinstance(step, Launch)]
    assert "masked.store" not in kernel_ir(kernel)
    array = np.arange(7 * width, dtype=np.float32).reshape(7, width)
    np.testing.assert_array_equal((tg.tensor(array) + tg.tensor(array)).numpy(), array * 2)


@pytest.mark.parametrize("groups, channels, stride", [(1, 5, 1), (6, 1, 1), (6, 1, 2)])
def test_windows_without_products_are_summed_by_columns(groups: int, channels: int, stride: int) -> None:
    x = Input(TensorType(float32, (2, groups, channels, 33, 33)), "x")
    w = Input(TensorType(float32, (groups, 1, channels, 3, 3)), "w")
    axis = Sliding(33, 33 if stride == 1 else 17, 3, stride, 1)
    (group,) = fuse(Graph((x, w), (Convolve(x, w, (axis, axis)),))).groups

    assert group.kind == "rows"
    assert default(flatten(group), TargetModel()).strategy == "beside"


@checklist(52)
@pytest.mark.parametrize("taps, stride, padding", [(3, 2, 1), (2, 2, 0), (1, 2, 0), (5, 3, 2), (2, 3, 1), (11, 4, 3)])
def test_gradients_of_strided_convolutions_reach_only_what_windows_cover(taps: int, stride: int, padding: int) -> None:
    """An infinity in the gradient of one window reaches the gradients of its elements, and no others."""
    torch = pytorch()
    rng = np.random.default_rng(taps)
    x = rng.standard_normal((2, 3, 23, 19)).astype(np.float32)
    w = rng.standard_normal((4, 3, taps, taps)).astype(np.float32)
    theirs, ours = torch.tensor(x, requires_grad=True), tg.tensor(x, requires_grad=True)
    y = torch.nn.functional.conv2d(theirs, torch.tensor(w), stride=stride, padding=padding)
    z = tg.nn.functional.conv2d(ours, tg.tensor(w), stride=stride, padding=padding)
    upstream = rng.standard_normal(tuple(y.shape)).astype(np.float32)
    y.backward(torch.tensor(upstream), retain_graph=True)
    z.backward(tg.tensor(upstream))
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-4)

    upstream[1, :, 2, 1] = np.inf
    found = tg.vjp(lambda x: tg.nn.functional.conv2d(x, tg.tensor(w), stride=stride, padding=padding), tg.tensor(x))
    (gradient,) = found[1](tg.tensor(upstream))
    reached = np.zeros((23, 19), bool)
    first, second = (slice(max(0, q * stride - padding), q * stride - padding + taps) for q in (2, 1))
    reached[first, second] = True
    np.testing.assert_array_equal(~np.isfinite(gradient.numpy()).all(axis=1)[1], reached)
    assert np.isfinite(gradient.numpy()[0]).all()
