"""Convolutions by a library on a simulated GPU: which kernels are seen as such, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.backend.cuda.conftest import Maker
from tests.backend.cuda.simulated_dnn import GOOD, SimulatedDnn
from tilegrad import config
from tilegrad.backend.cuda import choosing, libraries
from tilegrad.backend.cuda.cudnn import CuDnn
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.cuda.driver import OpenLibrary
from tilegrad.backend.cuda.libraries import CUDNN, judged

F = tg.nn.functional
CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "padded": (lambda x, w: F.conv2d(x, w, padding=1), (3, 16, 7, 6), (16, 16, 3, 3)),
    "strided": (lambda x, w: F.conv2d(x, w, stride=2), (2, 8, 9, 9), (16, 8, 3, 3)),
    "dilated": (lambda x, w: F.conv2d(x, w, padding=2, dilation=2), (2, 16, 8, 8), (16, 16, 3, 3)),
    "groups": (lambda x, w: F.conv2d(x, w, padding=1, groups=2), (2, 32, 6, 6), (32, 16, 3, 3)),
    "a line": (lambda x, w: F.conv1d(x, w, padding=1), (3, 16, 20), (16, 16, 3)),
    "a room": (lambda x, w: F.conv3d(x, w, padding=1), (1, 16, 4, 5, 4), (16, 16, 2, 3, 3)),
}
ALLOWED = {tg.float32: 1e-5, tg.bfloat16: 2e-2, tg.float16: 2e-3}


@pytest.fixture
def dnn(make_gpus: Maker, monkeypatch: pytest.MonkeyPatch) -> SimulatedDnn:
    """A library for everything, on a GPU of which `gpu` is the only one."""
    (gpu,) = make_gpus(1)
    made = SimulatedDnn(gpu.driver)  # type: ignore[arg-type]
    made.gpu = gpu
    opened: list[OpenLibrary] = []

    def open(name: str) -> OpenLibrary:
        assert name == CUDNN.name
        opened[:] = opened or [CuDnn(made)]
        return opened[0]

    monkeypatch.setattr(gpu.driver, "opened", open)
    monkeypatch.setattr(libraries, "cublaslt", lambda: None)
    monkeypatch.setattr(libraries, "cudnn", lambda: judged(CUDNN, "libcudnn.so.9", 91400, 13000))
    monkeypatch.setattr(choosing, "LEAST", 0.0)
    monkeypatch.setattr(choosing, "BETTER", 1e9)
    return made


def chosen(gpu: CudaDevice) -> list[str]:
    return sorted(str(task) for (_, task), choice in gpu.choices.made.items() if choice.algorithm)


@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_a_convolution_and_its_gradients(dnn: SimulatedDnn, case: str, dtype: Any) -> None:
    fn, *shapes = CASES[case]
    random = np.random.default_rng(0)
    x, w = (tg.tensor(random.standard_normal(s).astype(np.float32) / 4).to(dtype) for s in shapes)

    def step(x: tg.Tensor, w: tg.Tensor, y: tg.Tensor) -> tuple[tg.Tensor, ...]:
        made = fn(x, w)
        return (made, *tg.autograd.grad(made, (x, w), y))

    y = tg.tensor(random.standard_normal(fn(x, w).shape).astype(np.float32)).to(dtype)
    given = [x, w, y]
    with config.changed(cache="off"):
        inputs = [v.to(dnn.gpu).detach() for v in given]
        for v in inputs[:2]:
            v.requires_grad_()
        quick = tg.jit(step)
        runs = [[v.float().cpu().numpy() for v in quick(*inputs)] for _ in range(2)]
    print(chosen(dnn.gpu))
    assert set(dnn.taken) == {GOOD}
    exact = [v.double().detach().requires_grad_() for v in given]
    for run in runs:
        for found, wanted in zip(run, step(*exact), strict=True):
            wanted = wanted.detach().numpy()
            np.testing.assert_allclose(found, wanted, rtol=ALLOWED[dtype], atol=ALLOWED[dtype] * np.abs(wanted).max())
