"""Kernels on a GPU against the interpreter: known ones, drawn ones, and every function on special values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.backend.cuda.functions_kernels import CASES, FunctionCase
from tests.kernels import Case, cases
from tests.known_kernels import KNOWN
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.reference.tile import run
from tilegrad.ir.tile import Kernel
from tilegrad.runtime.buffer import Buffer


def on(gpu: CudaDevice, kernel: Kernel, arguments: Sequence[Any], grid: tuple[int, ...]) -> None:
    """Runs a kernel; what it stores is then in the arrays among the arguments."""
    buffers = [gpu.from_host(a) if isinstance(a, np.ndarray) else a for a in arguments]
    gpu.compile(kernel)(buffers, grid)
    gpu.synchronize()
    for p, a, b in zip(kernel.parameters, arguments, buffers, strict=True):
        if isinstance(b, Buffer):
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
