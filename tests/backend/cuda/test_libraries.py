"""Convolutions by a library on a simulated GPU: recognised kernels and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.backend.cuda.conftest import Maker
from tests.backend.cuda.simulated_dnn import GOOD, SimulatedDnn
from tests.backend.cuda.test_convolutions import GPU, optimise
from tests.ops.examples_windows import sliding
from tests.target_models import scheduled_for
from tilegrad import config
from tilegrad.backend.cuda import choosing, libraries
from tilegrad.backend.cuda.convolutions import ConvolutionProblem, convolution_of
from tilegrad.backend.cuda.cudnn import CuDnn
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.cuda.driver import OpenLibrary
from tilegrad.backend.cuda.libraries import CUDNN, check_version
from tilegrad.backend.cuda.products import product_of
from tilegrad.ir.contraction import Contraction, ContractionAxis, ContractionOperand, IndexDigit
from tilegrad.ir.dtype import bfloat16, float16, float64
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.program import Launch
from tilegrad.ir.stored import node_of, text_of
from tilegrad.ir.tile import Kernel
from tilegrad.ops.convolution import Convolve, ConvolveWeight
from tilegrad.ops.sliding import Sliding
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse

F = tg.nn.functional

# --- what is recognised --------------------------------------------------------------------------


def products(value: Value, *inputs: Input) -> list[tuple[Kernel, tuple[int, ...]]]:
    """Return the kernels of a value that multiply tiles, with their grids."""
    graph = Graph(inputs, (value,))
    graph = optimise(graph, GPU)
    steps = [s for s in assemble(fuse(graph, GPU)).steps if isinstance(s, Launch)]
    return [(s.kernel, tuple([t.count({}) for t in s.grid])) for s in steps if "tl.dot" in str(s.kernel)]


def shape(of_weights: bool, images: int, groups: int, channels: int, outputs: int, *axes: Sliding) -> str:
    """Return the recognised problem of a bfloat16 convolution, or of its weight gradient."""
    x = Input(TensorType(bfloat16, (images, groups, channels, *[a.extent for a in axes])))
    if of_weights:
        y = Input(TensorType(bfloat16, (images, groups, outputs, *[a.count for a in axes])))
        ((kernel, _),) = products(ConvolveWeight(x, y, axes), x, y)
    else:
        w = Input(TensorType(bfloat16, (groups, outputs, channels, *[a.taps for a in axes])))
        ((kernel, _),) = products(Convolve(x, w, axes), x, w)
    return str(convolution_of(kernel.computes))


FIRST = (sliding(224, 11, 4),) * 2
LATE = (sliding(12, 3, 1, 1),) * 2


@pytest.mark.parametrize(
    ("found", "given"),
    [
        ("32 x 48 x 54x56, 96 x 1x3 bf16", (False, 32, 1, 1, 96, *FIRST)),
        ("64 x 256 x 14x14, 384 x 3x3 bf16", (False, 64, 1, 256, 384, *LATE)),
        ("2 x 32 x 128 x 14x14, 192 x 3x3 bf16", (False, 32, 2, 128, 192, *LATE)),
        ("32 x 128 x 16x16, 192 x 3x3 bf16", (False, 32, 1, 128, 192, *(sliding(12, 3, 1, 2, 2),) * 2)),
        ("32 x 128 x 102, 192 x 3 bf16", (False, 32, 1, 128, 192, sliding(100, 3, 1, 1))),
        ("weights of 1 x 256 x 3x5410, 384 x 3x3 bf16", (True, 32, 1, 256, 384, *LATE)),
        ("2 x weights of 1 x 128 x 3x5410, 192 x 3x3 bf16", (True, 32, 2, 128, 192, *LATE)),
        ("4 x weights of 1 x 128 x 810, 192 x 3 bf16", (True, 32, 1, 128, 192, sliding(100, 3, 1, 1))),
        ("None", (False, 32, 1, 64, 64, *(sliding(28, 1, 1),) * 2)),  # a product, as others are
    ],
)
def test_kernels_that_are_convolutions(found: str, given: tuple[Any, ...]) -> None:
    assert shape(*given) == found


KERNEL = Contraction(
    (
        ContractionAxis(32, 144, 0, False),
        ContractionAxis(320, 0, 16, False),
        ContractionAxis(3, 48, 128, True),
        ContractionAxis(48, 1, 1, True),
    ),
    *(ContractionOperand(n, bfloat16, 0) for n in (0, 1, 3)),
    (IndexDigit(1, 64, 0, 1152), IndexDigit(1, 8, 8, 6, 6), IndexDigit(1, 1, 8, 1, 6), IndexDigit(0, 1, 0, 36)),
    bias=2,
    bias_axis=0,
    relu=True,
)


def test_epilogues() -> None:
    found = convolution_of(KERNEL)
    assert str(found) == "5 x 16 x 8x8, 32 x 3x3 bf16 + bias, relu"
    assert isinstance(found, ConvolutionProblem)
    assert found.operations == 2.0 * 5 * 36 * 32 * 144


def with_axis(number: int, **changes: Any) -> Contraction:
    axes = list(KERNEL.axes)
    axes[number] = axes[number].replaced(**changes)
    return KERNEL.replaced(axes=tuple(axes))  # type: ignore[no-any-return]


def with_digit(number: int, **changes: Any) -> Contraction:
    digits = list(KERNEL.digits)
    digits[number] = digits[number].replaced(**changes)
    return KERNEL.replaced(digits=tuple(digits))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "other",
    [
        with_axis(2, y=112),  # rows with another pitch than those of the result
        with_axis(2, x=64),  # weights with gaps
        with_axis(0, x=160),
        with_axis(3, extent=40),
        with_digit(1, modulus=7),
        with_digit(0, limit=4),
        KERNEL.replaced(bias_axis=1),
        KERNEL.replaced(x=ContractionOperand(0, float64, 0)),
        KERNEL.replaced(out=ContractionOperand(3, float16, 0)),
    ],
)
def test_other_kernels_are_not_recognised(other: Contraction) -> None:
    assert convolution_of(other) is None


@pytest.mark.parametrize(
    ("build", "computed"),
    [
        (lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(), " + bias, relu"),
        (lambda x, w, b: F.conv2d(x, w, padding=1), ""),
        (lambda x, w, b: F.conv2d(x, w, b, padding=1).exp(), None),
        (lambda x, w, b: F.conv2d(x, w, b, padding=1) * 2.0, None),
    ],
)
def test_epilogues_of_programs(build: Callable[..., tg.Tensor], computed: str | None) -> None:
    with scheduled_for(GPU):
        x, w, b = (tg.zeros(*s, dtype=tg.bfloat16) for s in ((4, 64, 8, 8), (32, 64, 3, 3), (32,)))
        jitted = tg.jit(build)
        jitted(x, w, b)
        steps = jitted.programs[0].compiled.program.steps
    found = [str(p) for s in steps if isinstance(s, Launch) and (p := convolution_of(s.kernel.computes))]
    assert found == ([] if computed is None else [f"4 x 64 x 10x10, 32 x 3x3 bf16{computed}"])


def rounded(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    return x.bfloat16() @ y.bfloat16()


def accumulated_in_float64(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    return (x.double() @ y.double()).float()


@pytest.mark.parametrize(
    ("build", "computed"),
    [(lambda x, y: x @ y, "64 x 96 @ 96 x 128 f32"), (rounded, None), (accumulated_in_float64, None)],
)
def test_conversions_of_operands_belong_to_a_product(build: Callable[..., tg.Tensor], computed: str | None) -> None:
    """A library that reads the operands as they are in memory would compute something else."""
    jitted = tg.jit(build)
    jitted(tg.ones(64, 96), tg.ones(96, 128))
    steps = jitted.programs[0].compiled.program.steps
    found = [str(p) for s in steps if isinstance(s, Launch) and (p := product_of(s.kernel.computes))]
    assert found == ([] if computed is None else [computed])


def test_stored_kernels_keep_what_they_compute() -> None:
    jitted = tg.jit(lambda x, y: x @ y)
    jitted(tg.ones(64, 96), tg.ones(96, 128))
    program = jitted.programs[0].compiled.program
    (launch,) = node_of(text_of(program)).steps
    assert launch.kernel.computes == program.steps[0].kernel.computes is not None


# --- what comes out ------------------------------------------------------------------------------


@pytest.fixture
def gpu(make_gpus: Maker, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    """Return a GPU whose library takes every convolution."""
    (made,) = make_gpus(1)
    library = SimulatedDnn(made.driver)  # type: ignore[arg-type]
    open_library: list[OpenLibrary] = []

    def open(name: str) -> OpenLibrary:
        assert name == CUDNN.name
        open_library[:] = open_library or [CuDnn(library)]
        return open_library[0]

    monkeypatch.setattr(made.driver, "open_library", open)
    monkeypatch.setattr(libraries, "cublaslt", lambda: None)
    monkeypatch.setattr(libraries, "cudnn", lambda: check_version(CUDNN, "libcudnn.so.9", 91400, 13000))
    monkeypatch.setattr(choosing, "MIN_OPERATIONS", 0.0)
    monkeypatch.setattr(choosing, "MAX_TIME_RATIO", 1e9)
    monkeypatch.setattr(choosing, "ROUNDS", 1)
    made.library = library  # type: ignore[attr-defined]
    with config.changed(libraries="all"):
        yield made


def chosen(gpu: CudaDevice) -> list[str]:
    return sorted(str(task) for (_, task), choice in gpu.choices.made.items() if choice.algorithm)


def check(gpu: CudaDevice, fn: Callable[..., Any], dtype: Any, allowed: float, *shapes: tuple[int, ...]) -> None:
    """Check results against float64, launched one by one and as a graph."""
    random = np.random.default_rng(0)
    given = [tg.tensor(random.standard_normal(s).astype(np.float32) / 4).to(dtype) for s in shapes]
    with config.changed(cache="off"):
        quick = tg.jit(fn)
        inputs = [x.to(gpu) for x in given]
        for _ in range(2):
            for found, exact in zip(quick(*inputs), fn(*[x.double() for x in given]), strict=True):
                wanted = exact.detach().numpy()
                got = found.detach().float().cpu().numpy()
                np.testing.assert_allclose(got, wanted, rtol=allowed, atol=allowed * np.abs(wanted).max())
    assert set(gpu.library.taken) == {GOOD}, "neither what adds in any order nor what needs too much memory"  # type: ignore[attr-defined]


def test_a_convolution_and_its_gradients(gpu: CudaDevice) -> None:
    """The input gradient has padding and therefore overlapping rows, which the library does not support."""

    def step(x: tg.Tensor, w: tg.Tensor, y: tg.Tensor) -> tuple[tg.Tensor, ...]:
        x, w = (v.detach().requires_grad_() for v in (x, w))
        made = F.conv2d(x, w)
        return (made, *tg.autograd.grad(made, (x, w), y))

    check(gpu, step, tg.bfloat16, 2e-2, (3, 40, 9, 10), (16, 40, 3, 3), (3, 16, 7, 8))
    assert chosen(gpu) == ["3 x 40 x 9x10, 16 x 3x3 bf16", "weights of 1 x 40 x 3x272, 16 x 3x3 bf16"]


def test_split_k(gpu: CudaDevice) -> None:
    """The kernel that sums the parts becomes a copy."""

    def step(x: tg.Tensor, w: tg.Tensor, y: tg.Tensor) -> tuple[tg.Tensor, ...]:
        w = w.detach().requires_grad_()
        return tg.autograd.grad(F.conv1d(x, w, padding=1), (w,), y)

    check(gpu, step, tg.bfloat16, 2e-2, (24, 8, 100), (8, 8, 3), (24, 8, 100))
    assert chosen(gpu) == ["weights of 1 x 8 x 2426, 8 x 3 bf16"]


def test_bias_and_relu(gpu: CudaDevice) -> None:
    fn = lambda x, w, b: (tg.relu(F.conv1d(x, w, b)),)  # noqa: E731
    check(gpu, fn, tg.bfloat16, 2e-2, (3, 16, 10), (16, 16, 3), (16,))
    assert chosen(gpu) == ["3 x 16 x 10, 16 x 3 bf16 + bias, relu"]


def test_float16(gpu: CudaDevice) -> None:
    check(gpu, lambda x, w: (F.conv1d(x, w),), tg.float16, 2e-3, (3, 16, 10), (16, 16, 3))
    assert chosen(gpu) == ["3 x 16 x 10, 16 x 3 f16"]


def test_groups(gpu: CudaDevice) -> None:
    fn = lambda x, w: (F.conv1d(x, w, groups=2),)  # noqa: E731
    check(gpu, fn, tg.float32, 1e-5, (2, 16, 9), (16, 8, 2))
    assert chosen(gpu) == ["2 x 2 x 8 x 9, 8 x 2 f32"]


def test_small_problems_do_not_open_the_library(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "MIN_OPERATIONS", 1e9)
    monkeypatch.setattr(gpu.driver, "open_library", lambda name: pytest.fail("opened"))
    with config.changed(cache="off"):
        tg.jit(lambda x, w: F.conv1d(x, w))(tg.ones(3, 16, 10, device=gpu), tg.ones(16, 16, 3, device=gpu)).cpu()
    assert not gpu.choices.made


@pytest.mark.parametrize("said", ["", "on", "off"])
def test_cudnn_is_opt_in(gpu: CudaDevice, said: str) -> None:
    with config.changed(cache="off", libraries=said):
        tg.jit(lambda x, w: F.conv1d(x, w))(tg.ones(3, 16, 10, device=gpu), tg.ones(16, 16, 3, device=gpu)).cpu()
    assert not gpu.choices.made


def test_unusable_library_is_not_opened_again(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "cudnn", lambda: check_version(CUDNN, "libcudnn.so.9", 91400, 14000))
    monkeypatch.setattr(gpu.driver, "open_library", lambda name: pytest.fail("opened"))
    with config.changed(cache="off"):
        made = tg.jit(lambda x, w: F.conv1d(x, w))(tg.ones(3, 16, 10, device=gpu), tg.ones(16, 16, 3, device=gpu))
        assert float(made.sum()) == 3 * 8 * 16 * 48
    assert gpu.choices.absent == {"cuDNN"}
