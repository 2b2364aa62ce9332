"""Emulate convolutions with all gradients as an H200 computes them: its sizes, tiles, boxes and kernels.

Each case is a network geometry with its own choice of tiles, boxes or splits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

import tilegrad as tg
from tests.backend.cuda import emulated
from tests.backend.cuda.emulating import EmulatingDriver
from tests.backend.cuda.windows import Windows, wanted
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.random import forget
from tilegrad.runtime import device as registry

pytestmark = pytest.mark.skipif(not emulated.has_compiler(), reason="no C++ compiler")
NUMBERS = count(5000)
CASES = [
    Windows((8, 128, 28, 28), 256, 3, 2, 1),
    Windows((18, 4, 58, 33), 16, 7, 2, dtype="float32", precision="high"),
    Windows((8, 512, 7, 7), 512, 3, 1, 1),
    Windows((3, 128, 16, 16), 64, 4, 2, 1, transposed=True, dtype="float32"),
    Windows((2, 3, 63, 63), 64, 11, 4, 2),
    Windows((4, 192, 13, 13), 384, 3, 1, 1),
    Windows((1, 512, 7, 7), 512, 3, 1, 1),
    Windows((3, 104, 9, 34), 64, 4, 3, 3, 2, dtype="float32", precision="high"),
    Windows((4, 64, 20, 20), 128, 1, 2),
    Windows((2, 128, 9, 9), 128, 3, 1, 1, groups=2, dtype="float16"),
    Windows((4, 96, 14, 14), 96, 7, 1, 3, groups=96),
    Windows((2, 40, 17, 19), 72, 5, 1, 2, dtype="float32", precision="medium"),
]


@pytest.fixture(scope="module")
def places() -> Iterator[list[str]]:
    """Return two devices whose threads run in opposite orders."""
    names = [registry.register(CudaDevice(EmulatingDriver(reversed=r), next(NUMBERS))).name for r in (False, True)]
    yield names
    for name in names:
        del registry._devices[name]
        forget(name)


def compare(how: Windows, place: str, tolerance: float) -> None:
    """Run a convolution and its gradients on a device and compare with float64."""
    random = np.random.default_rng(0)
    dtype = getattr(tg, how.dtype)
    x, w = (random.standard_normal(shape) for shape in (how.x, how.weights))
    w *= np.prod(how.weights[1:]) ** -0.5
    rounded = [tg.tensor(a).to(dtype) for a in (x, w)]
    exact = [a.to(tg.float64).numpy() for a in rounded]
    upstream = tg.tensor(random.standard_normal(wanted(*exact, None, how)[0].shape)).to(dtype)
    right = wanted(*exact, upstream.to(tg.float64).numpy(), how)
    function = tg.nn.functional.conv_transpose2d if how.transposed else tg.nn.functional.conv2d

    def all_of(x: tg.Tensor, w: tg.Tensor, y: tg.Tensor) -> tuple[tg.Tensor, ...]:
        made = function(x, w, stride=how.stride, padding=how.padding, dilation=how.dilation, groups=how.groups)
        return made, *tg.autograd.grad(made, (x, w), y)

    ours = [a.to(place) for a in (*rounded, upstream)]
    for a in ours[:2]:
        a.requires_grad = True
    before = tg.get_float32_matmul_precision()
    tg.set_float32_matmul_precision(how.precision)
    try:
        found = [a.detach().to(tg.float64).cpu().numpy() for a in tg.jit(all_of)(*ours)]
    finally:
        tg.set_float32_matmul_precision(before)
    for name, a, b in zip(("result", "gradient of images", "gradient of weights"), found, right, strict=True):
        error = np.linalg.norm(a - b) / np.linalg.norm(b)
        assert error <= tolerance, f"{name}: {error:.2g}"


TOLERANCE = {"bfloat16": 4e-3, "float16": 1e-3, "high": 1e-3, "medium": 6e-3, "highest": 1e-5}


@pytest.mark.parametrize("how", CASES, ids=[how.name for how in CASES])
def test_results_are_those_of_float64(how: Windows, places: list[str]) -> None:
    place = places[CASES.index(how) % 2]
    compare(how, place, TOLERANCE[how.precision if how.dtype == "float32" else how.dtype])
