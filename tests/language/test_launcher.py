"""Kernels launched one by one on the CPU, with and without checks, against the interpreter."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.kernels import cases
from tests.known_kernels import KNOWN
from tilegrad.backend.cpu.launch import LaunchedKernel
from tilegrad.backend.reference.tile import run
from tilegrad.errors import RuntimeFault
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_checker import check
from tilegrad.ir.tile_parser import parse
from tilegrad.language.instrument import NO_FAULT, CheckOptions, instrument
from tilegrad.runtime.device import device
from tilegrad.tiles.pointers import Unsupported
from tilegrad.tiles.split_loop_pointers import split_loop_pointers

CPU = device("cpu")


def launched(kernel: Kernel, arguments: list[Any], grid: tuple[int, ...]) -> None:
    """Runs a kernel on copies of arrays, and copies what they have become back."""
    buffers = [CPU.from_host(a) if isinstance(a, np.ndarray) else a for a in arguments]
    LaunchedKernel(split_loop_pointers(kernel, check(kernel)))(buffers, grid)
    for p, array, buffer in zip(kernel.parameters, arguments, buffers, strict=True):
        if p.pointer:
            array[...] = CPU.to_host(buffer, p.dtype, array.shape)


def watched(kernel: Kernel, arguments: list[Any], grid: tuple[int, ...]) -> None:
    """Runs a kernel with its accesses looked at, which must find nothing."""
    pointers = [(p.name, a) for p, a in zip(kernel.parameters, arguments, strict=True) if p.pointer]
    try:
        made = instrument(kernel, check(kernel), CheckOptions())
    except Unsupported:
        launched(kernel, arguments, grid)
        return
    faults = np.full(max(1, len(made.sites)), NO_FAULT, np.int64)
    launched(made.kernel, [*arguments, *(a.size for _, a in pointers), faults], grid)
    assert (faults == NO_FAULT).all()


@settings(max_examples=25)
@given(case=cases())
def test_random_kernels(case: Any) -> None:
    expected = case.run(run)
    case.assert_agree(case.run(launched), expected)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.__name__)
@pytest.mark.parametrize("execute", [launched, watched])
def test_known_kernels(known: Any, execute: Any) -> None:
    kernel, arguments, grid, expected = known(np.random.default_rng(1))
    execute(kernel, arguments, grid)
    got = {p.name: a for p, a in zip(kernel.parameters, arguments, strict=True)}
    for name, array in expected.items():
        np.testing.assert_allclose(got[name].astype(float), array.astype(float), 1e-4, 1e-5)


def test_the_number_of_arguments() -> None:
    with pytest.raises(RuntimeFault, match="k takes 1 arguments, not 0"):
        LaunchedKernel(parse('def k(x: "*f32"):\n    pass'))([], (1,))
