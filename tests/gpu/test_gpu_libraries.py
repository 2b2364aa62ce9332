"""Products and convolutions by libraries on a GPU: results, graphs, and operation without libraries."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.backend.cuda import choosing
from tilegrad.backend.cuda.convolutions import ConvolutionProblem
from tilegrad.backend.cuda.device import CudaDevice

CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "x @ y": (lambda x, y: x @ y, ((304, 200), (200, 136))),
    "x.T @ y": (lambda x, y: x.T @ y, ((200, 304), (200, 136))),
    "x @ y.T": (lambda x, y: x @ y.T, ((304, 200), (136, 200))),
    "x.T @ y.T": (lambda x, y: x.T @ y.T, ((200, 304), (136, 200))),
    "linear": (lambda x, w, b: tg.nn.functional.linear(x, w, b), ((320, 208), (144, 208), (144,))),
    "linear and relu": (lambda x, w, b: tg.relu(x @ w.T + b), ((336, 208), (144, 208), (144,))),
    "batched": (lambda x, y: x @ y.transpose(1, 2), ((6, 272, 64), (6, 152, 64))),
    "several": (lambda x, y: (x @ y) @ y.T, ((400, 200), (200, 168))),
}


@pytest.fixture
def always(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    """Return a GPU that tries the library for every product."""
    return eager(gpu, "cuBLASLt", monkeypatch)


def eager(gpu: CudaDevice, library: str, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    """Return a GPU that accepts every library algorithm."""
    gpu.start()
    with gpu.entered():
        if gpu.driver.open_library(library) is None:
            pytest.skip(f"{library} is not here")
    monkeypatch.setattr(choosing, "MIN_OPERATIONS", 0.0)
    monkeypatch.setattr(choosing, "MAX_TIME_RATIO", 1e9)
    return gpu


@pytest.mark.parametrize("dtype", [tg.float32, tg.bfloat16, tg.float16], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_library_results(always: CudaDevice, case: str, dtype: Any) -> None:
    fn, shapes = CASES[case]
    random = np.random.default_rng(0)
    given = [random.standard_normal(s).astype(np.float32) / 4 for s in shapes]
    inputs = [tg.tensor(a).to(dtype).cuda() for a in given]
    with config.changed(cache="off"):
        before = sum(bool(choice.algorithm) for choice in always.choices.made.values())
        quick = tg.jit(lambda *x: fn(*x))
        runs = [
            quick(*inputs).float().cpu().numpy() for _ in range(5)
        ]  # at last as a graph, if there are several kernels
        chosen = sum(bool(choice.algorithm) for choice in always.choices.made.values()) - before
    assert chosen > 0 or "relu" in case, "a library whose ReLU loses NaN is not taken"
    for run in runs[1:]:
        np.testing.assert_array_equal(run, runs[0])
    wanted = fn(*[tg.tensor(a).to(dtype).double() for a in given]).numpy()
    allowed = {tg.float32: 1e-5, tg.bfloat16: 2e-2, tg.float16: 2e-3}[dtype]
    np.testing.assert_allclose(runs[0], wanted, rtol=allowed, atol=allowed * np.abs(wanted).max())


def test_without_libraries(always: CudaDevice) -> None:
    with config.changed(libraries="off", cache="off"):
        before = dict(always.choices.made)
        x = tg.rand(264, 264).cuda()
        tg.jit(lambda x: x @ (x + 1))(x).cpu()
        assert always.choices.made == before


def test_small_products_use_kernels(gpu: CudaDevice) -> None:
    gpu.start()
    before = dict(gpu.choices.made)
    x = tg.rand(120, 120).cuda()
    tg.jit(lambda x: x @ (x + 2))(x).cpu()
    assert gpu.choices.made == before


def test_other_addresses_in_a_graph(always: CudaDevice) -> None:
    quick = tg.jit(lambda x, y: (x @ y) @ y)
    with config.changed(cache="off"):
        for n in range(8):
            x, y = (tg.rand(248, 248) for _ in range(2))
            kept = tg.empty(n * 100_000, device="cuda")
            found = quick(x.cuda(), y.cuda()).cpu().numpy()
            np.testing.assert_allclose(found, ((x @ y) @ y).numpy(), rtol=1e-4, atol=1e-1)
            del kept


F = tg.nn.functional
CONVOLUTIONS: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "a plane": (lambda x, w, b: F.conv2d(x, w), ((5, 40, 20, 19), (48, 40, 3, 3), (48,))),
    "strides": (lambda x, w, b: F.conv2d(x, w, stride=4), ((4, 1, 88, 88), (48, 1, 11, 11), (48,))),
    "groups": (lambda x, w, b: F.conv2d(x, w, groups=2), ((6, 64, 14, 14), (64, 32, 3, 3), (64,))),
    "a line": (lambda x, w, b: F.conv1d(x, w), ((4, 64, 301), (96, 64, 3), (96,))),
    "bias and relu": (lambda x, w, b: tg.relu(F.conv2d(x, w, b)), ((5, 40, 21, 20), (48, 40, 3, 3), (48,))),
    "padded": (lambda x, w, b: F.conv2d(x, w, padding=1), ((32, 64, 24, 24), (64, 64, 3, 3), (64,))),
}


@pytest.fixture
def always_cudnn(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    return eager(gpu, "cuDNN", monkeypatch)


@pytest.mark.parametrize("dtype", [tg.float32, tg.bfloat16, tg.float16], ids=str)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(always_cudnn: CudaDevice, case: str, dtype: Any) -> None:
    fn, shapes = CONVOLUTIONS[case]
    random = np.random.default_rng(0)
    given = [tg.tensor(random.standard_normal(s).astype(np.float32) / 4).to(dtype) for s in shapes]
    given.append(tg.ones_like(fn(*given)))

    def step(x: Any, w: Any, b: Any, y: Any) -> Any:
        x, w = (v.detach().requires_grad_() for v in (x, w))
        made = fn(x, w, b)
        return (made, *tg.autograd.grad(made, (x, w), y))

    def chosen() -> int:
        made = always_cudnn.choices.made.items()
        return sum(bool(choice.algorithm) for (_, task), choice in made if isinstance(task, ConvolutionProblem))

    with config.changed(cache="off", libraries="all"):
        before = chosen()
        quick = tg.jit(step)
        runs = [[v.float().cpu().numpy() for v in quick(*[x.cuda() for x in given])] for _ in range(4)]
        assert chosen() > before or dtype is tg.float32, "it may lack what is exact"
    exact = [v.detach().numpy() for v in step(*[x.double() for x in given])]
    allowed = {tg.float32: 1e-4, tg.bfloat16: 2e-2, tg.float16: 4e-3}[dtype]
    for run in runs:
        for found, first, wanted in zip(run, runs[0], exact, strict=True):
            np.testing.assert_array_equal(found, first)
            np.testing.assert_allclose(found, wanted, rtol=allowed, atol=allowed * np.abs(wanted).max())


def test_launches_by_libraries_have_times(always: CudaDevice) -> None:
    """Libraries launch through the runtime API, of which CUPTI keeps records of their own."""
    x, y = tg.randn(608, 400, device="cuda"), tg.randn(400, 304, device="cuda")
    product = tg.jit(lambda x, y: (x @ y).relu().sum())
    for _ in range(4):
        product(x, y).item()
    with tg.profiler.profile() as profile:
        for _ in range(3):
            product(x, y).item()
    launches = [r for r in profile.timeline.launches if r.run is not None]
    assert any("cuBLASLt" in r.name for r in launches)
    assert [r.name for r in launches if not r.timed] == []
