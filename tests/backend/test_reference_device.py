"""The interpreter as a device, and the device that only counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.known_kernels import vector_add
from tilegrad.backend.null import Counts, NullDevice
from tilegrad.backend.reference import ReferenceDevice
from tilegrad.errors import CompileError, KernelError, RuntimeFault
from tilegrad.ir.dtype import bfloat16, float32
from tilegrad.ir.graph import TensorType
from tilegrad.ir.program import Copy, Launch, Program, ProgramBuffer, Tiles
from tilegrad.ir.tile_parser import parse
from tilegrad.runtime.device import device, devices

KERNEL = vector_add(np.random.default_rng(0)).kernel
TYPE = TensorType(float32, (1000,))


def program(*outputs: str, **changes: Any) -> Program:
    """t = x + y; z = t + y; u is in the memory of x."""
    grid = (Tiles(1000, 128),)
    steps = (
        Launch(KERNEL, ("x", "y", "t", 1000), grid),
        Launch(KERNEL, ("t", "y", "z", 1000), grid),
        Copy("t", "u"),
    )
    buffers = (
        ProgramBuffer("x", TYPE, "input"),
        ProgramBuffer("y", TYPE, "input"),
        ProgramBuffer("t", TYPE, "temporary", 0),
        ProgramBuffer("z", TYPE, "output"),
        ProgramBuffer("u", TYPE, "output", alias="x"),
    )
    made = Program("sums", (), buffers, ("x", "y"), ("z", "u"), steps, 4000)
    return made.replaced(**changes)  # type: ignore[no-any-return]


def test_devices_are_found() -> None:
    assert {"reference", "null"} <= {d.name for d in devices()}
    assert device("reference") is device("reference")


@pytest.mark.parametrize("checked", [False, True])
def test_a_program(checked: bool) -> None:
    place = ReferenceDevice(checked=checked)
    x, y = np.random.default_rng(0).standard_normal((2, 1000)).astype(np.float32)
    given = [place.from_host(x), place.from_host(y)]
    z, u = place.load(program()).run(given)
    np.testing.assert_array_equal(place.to_host(z, float32, (1000,)), x + y + y)
    np.testing.assert_array_equal(place.to_host(u, float32, (10, 100)), (x + y).reshape(10, 100))
    assert u is given[0]


def test_host_and_device() -> None:
    place = ReferenceDevice()
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    copied = place.from_host(array.T)
    array[:] = 0
    assert place.to_host(copied, float32, (3, 2)).tolist() == [[0, 3], [1, 4], [2, 5]]
    adopted = place.adopt(array)
    assert adopted is not None
    view = place.view(adopted, float32, (2, 3))
    assert view is not None
    view[0, 0] = 7
    assert array[0, 0] == 7
    assert place.adopt(array.T) is None
    assert place.to_host(place.from_host(np.zeros((), bfloat16.numpy)), bfloat16, ()).shape == ()


def test_memory_is_not_zero_by_accident() -> None:
    place = ReferenceDevice()
    assert np.isnan(place.to_host(place.allocate(8), float32, (2,))).all()


def test_memory_is_counted() -> None:
    place = ReferenceDevice()
    one, two = place.allocate(100), place.allocate(50)
    del one
    assert place.statistics[:2] == (50, 150)
    del two


def test_a_buffer_that_is_too_small() -> None:
    place = ReferenceDevice()
    with pytest.raises(RuntimeFault, match="3 elements of float32 take 12 bytes: the buffer has 8"):
        place.to_host(place.allocate(8), float32, (3,))


@pytest.mark.parametrize("place", [ReferenceDevice(), NullDevice()])
def test_wrong_programs_are_refused(place: Any) -> None:
    with pytest.raises(CompileError, match="the output z is never written"):
        place.load(program(steps=()))
    with pytest.raises(KernelError, match="there is no variable"):
        place.compile(KERNEL.replaced(body=KERNEL.body[1:]))
    with pytest.raises(RuntimeFault, match="takes 4 arguments, not 1"):
        place.compile(KERNEL)([place.allocate(8)], (1,))


def test_faults_reach_the_caller() -> None:
    place = ReferenceDevice()
    kernel = parse('def f(x: "*f32"):\n    tl.store(x + 3, 1.0)')
    with pytest.raises(KernelError, match="index 3 is outside x, which has 2 elements"):
        place.compile(kernel)([place.allocate(8)], (1,))


def test_null_counts() -> None:
    place = NullDevice()
    executable = place.load(program())
    given = [place.from_host(np.zeros(1000, np.float32)) for _ in "xy"]
    z, u = executable.run(given)
    assert u is given[0]
    assert z.bytes == 4000
    assert place.counts == Counts(programs=1, kernels=2, instances=16, copies=1, bytes=3 * 4000 + 3 * 4000 + 2 * 4000)
    place.counts = Counts()
    place.compile(KERNEL)([*given, z, 1000], (8,))
    assert place.counts == Counts(kernels=1, instances=8, bytes=12000)
    assert place.to_host(z, float32, (2, 500)).shape == (2, 500)
