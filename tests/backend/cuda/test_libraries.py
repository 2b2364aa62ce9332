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
from tilegrad import config
from tilegrad.backend.cuda import choosing, libraries
from tilegrad.backend.cuda.convolutions import ConvolutionProblem, convolution_of
from tilegrad.backend.cuda.cudnn import CuDnn
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.cuda.driver import OpenLibrary
from tilegrad.backend.cuda.libraries import CUDNN, check_version
from tilegrad.ir.dtype import bfloat16
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.program import Launch
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse
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
        ((kernel, grid),) = products(ConvolveWeight(x, y, axes), x, y)
    else:
        w = Input(TensorType(bfloat16, (groups, outputs, channels, *[a.taps for a in axes])))
        ((kernel, grid),) = products(Convolve(x, w, axes), x, w)
    return str(convolution_of(kernel, grid))


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


KERNEL = """
def kernel(w: "*bf16", x: "*bf16", b: "*bf16", y: "*bf16"):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    o = tl.program_id(1) * 16 + tl.arange(0, 16)
    acc = tl.zeros([16, 64], tl.float32)
    for k in range(3):
        ks = tl.arange(0, 64)
        mask = ks < 48
        ws = tl.load(w + ((o * 144 + k * 48)[:, None] + ks[None, :]), mask=mask[None, :], other=0.0)
        xs = tl.load(x + ((i * 16 + k * 128)[None, :] + ks[:, None]), mask=mask[:, None], other=0.0)
        acc = tl.dot(ws, xs, acc)
    row = i // 8 % 8
    at = i % 8
    added = tl.load(b + o)
    made = tl.maximum(acc.to(tl.bfloat16) + added[:, None], 0.0)
    place = (i // 64 * 1152 + row * 6 + at)[None, :] + (o * 36)[:, None]
    tl.store(y + place, made, mask=((row < 6) & (at < 6))[None, :])
"""


def test_epilogues() -> None:
    found = convolution_of(parse(KERNEL), (5, 2))
    assert str(found) == "5 x 16 x 8x8, 32 x 3x3 bf16 + bias, relu"
    assert isinstance(found, ConvolutionProblem)
    assert found.operations == 2.0 * 5 * 36 * 32 * 144


@pytest.mark.parametrize(
    ("was", "is_now"),
    [
        ("k * 128", "k * 112"),  # rows that are not as far apart as those of the result
        ("k * 48)", "k * 64)"),  # weights with gaps
        ("o * 144", "o * 160"),
        ("row * 6", "row * row"),
        ("i // 8 % 8", "i // 8 % 7"),
        ("row < 6", "row > 6"),
        ("tl.maximum(", "tl.minimum("),
        ("b + o)", "b + o * 2)"),
        ("acc.to(tl.bfloat16)", "acc.to(tl.bfloat16) * 2.0"),
        ("ks < 48", "ks < 40"),
        ("acc = tl.zeros([16, 64], tl.float32)", "acc = tl.full([16, 64], 1.0, tl.float32)"),
    ],
)
def test_other_kernels_are_not_recognised(was: str, is_now: str) -> None:
    assert was in KERNEL
    assert convolution_of(parse(KERNEL.replace(was, is_now)), (5, 2)) is None


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
