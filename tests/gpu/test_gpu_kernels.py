"""Kernels on a GPU compared with the interpreter: known ones, random ones, and every function on special values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import tilegrad as tg
from tests.backend.cuda.functions_kernels import CASES, FunctionCase
from tests.kernels import Case, cases
from tests.known_kernels import KNOWN
from tests.language import test_notation
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.reference.tile import run
from tilegrad.ir.tile import Kernel
from tilegrad.language import TensorDescriptor
from tilegrad.runtime.buffer import DeviceBuffer


def on(gpu: CudaDevice, kernel: Kernel, arguments: Sequence[Any], grid: tuple[int, ...]) -> None:
    """Run a kernel; stores go to the arrays among the arguments."""
    buffers = [gpu.from_host(a) if isinstance(a, np.ndarray) else a for a in arguments]
    gpu.compile(kernel)(buffers, grid)
    gpu.synchronize()
    for p, a, b in zip(kernel.parameters, arguments, buffers, strict=True):
        if isinstance(b, DeviceBuffer):
            a[...] = gpu.to_host(b, p.dtype, a.shape)


@pytest.mark.parametrize("make", KNOWN, ids=lambda make: make.__name__)
def test_known_kernels(gpu: CudaDevice, make: Any) -> None:
    known = make(np.random.default_rng(1))
    given_arrays = [a.copy() if isinstance(a, np.ndarray) else a for a in known.arguments]
    on(gpu, known.kernel, given_arrays, known.grid)
    for p, a in zip(known.kernel.parameters, given_arrays, strict=True):
        if p.name in known.expected:
            np.testing.assert_allclose(
                a.astype(np.float64),
                known.expected[p.name].astype(np.float64),
                rtol=2e-3 if p.dtype.bits == 16 else 1e-5,
                atol=1e-5,
            )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(cases())
def test_drawn_kernels(gpu: CudaDevice, case: Case) -> None:
    with np.errstate(all="ignore"):
        wanted = case.run(lambda kernel, arguments, grid: run(kernel, arguments, grid))
    case.assert_agree(case.run(lambda kernel, arguments, grid: on(gpu, kernel, arguments, grid)), wanted)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions(gpu: CudaDevice, case: FunctionCase) -> None:
    made = [a.copy() for a in case.arrays()]
    on(gpu, case.kernel(), made, (1,))
    case.assert_right(made)


def test_addresses_and_descriptors(gpu: CudaDevice) -> None:
    """Pointers made from addresses, and descriptors made outside the kernel."""
    shapes = [(32, 16, 48), (16, 16, 16), (64, 32, 16)]
    a = [tg.randn(m, k).half().cuda().realize() for m, _, k in shapes]
    b = [tg.randn(k, n).half().cuda().realize() for _, n, k in shapes]
    c = [tg.zeros(m, n, dtype=tg.float16, device="cuda").realize() for m, n, _ in shapes]
    addresses = [tg.tensor([x.data_ptr() for x in group], dtype=tg.int64).cuda() for group in (a, b, c)]
    sizes = tg.tensor([n for shape in shapes for n in shape], dtype=tg.int32).cuda()
    test_notation.grouped[(3,)](*addresses, sizes, len(shapes), BLOCK=16)
    for x, y, z in zip(a, b, c, strict=True):
        assert tg.allclose(z.float(), x.float() @ y.float(), atol=0.05)
    x, out = tg.randn(20, 6).cuda(), tg.zeros(20, 6, device="cuda")
    whole, other = (TensorDescriptor.from_tensor(t, [8, 8]) for t in (x, out))
    test_notation.doubled[(3,)](whole, other, B=8)
    assert tg.equal(out, x * 2)
