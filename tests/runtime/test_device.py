"""Devices: found by name, one object each; a new one runs programs without another file being touched."""

import gc
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from tilegrad.errors import DeviceError, RuntimeFault
from tilegrad.ir.dtype import DType, float32
from tilegrad.ir.graph import TensorType
from tilegrad.ir.program import Allocate, Copy, Free, Launch, Program, Tiles
from tilegrad.ir.program import ProgramBuffer as Place
from tilegrad.ir.size import Size
from tilegrad.ir.tile import Kernel, TileParameter
from tilegrad.runtime import device as registry
from tilegrad.runtime import events
from tilegrad.runtime.buffer import DeviceBuffer
from tilegrad.runtime.device import Device, device, devices, register

N = Size.named("n")
ADD = Kernel("add", (*(TileParameter(name, float32) for name in "xyz"), TileParameter("n", float32, pointer=False)), ())


class Toy(Device):
    """A device whose memory is bytearrays and whose only kernel adds."""

    def allocate(self, bytes: int) -> DeviceBuffer:
        return DeviceBuffer(self, bytes, memory=bytearray(bytes))

    def from_host(self, array: np.ndarray) -> DeviceBuffer:
        return DeviceBuffer(self, array.nbytes, memory=bytearray(array.tobytes()))

    def to_host(self, buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray:
        return np.frombuffer(bytes(buffer.memory), dtype.numpy).reshape(shape)

    def compile(self, kernel: Kernel) -> Callable[[Sequence[DeviceBuffer | int], tuple[int, ...]], None]:
        assert kernel is ADD

        def add(arguments: Sequence[DeviceBuffer | int], grid: tuple[int, ...]) -> None:
            x, y, z = (np.frombuffer(a.memory, np.float32) for a in arguments[:3] if isinstance(a, DeviceBuffer))
            n = arguments[3]
            assert isinstance(n, int)
            assert grid == (-(-n // 4),)
            z[:n] = x[:n] + y[:n]

        return add


@pytest.fixture
def toy() -> Iterator[Toy]:
    """Register a device for one test; no other test may find it."""
    yield Toy("toy:0")
    registry._devices.pop("toy:0", None)


def doubled(alias: str | None = None) -> Program:
    """z = x + y; w = z + z"""
    of = TensorType(float32, (N,))
    buffers = (
        Place("x", of, "input"),
        Place("y", of, "input"),
        Place("z", of, "temporary"),
        Place("w", of, "output", alias=alias),
    )
    grid = (Tiles(N, 4),)
    steps = (
        Allocate("z"),
        Launch(ADD, ("x", "y", "z", N), grid),
        Allocate("w"),
        Launch(ADD, ("z", "z", "w", N), grid),
        Free("z"),
    )
    return Program("doubled", ("n",), buffers, ("x", "y"), ("w",), steps)


def test_a_toy_device_runs_programs_of_any_size(toy: Toy) -> None:
    program = toy.load(doubled())
    for n in (3, 8):
        x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
        (w,) = program.run([toy.from_host(x), toy.from_host(y)], {"n": n})
        np.testing.assert_array_equal(toy.to_host(w, float32, (n,)), 2 * (x + y))


def test_an_aliased_output_is_the_input(toy: Toy) -> None:
    x, y = toy.from_host(np.ones(4, np.float32)), toy.from_host(np.ones(4, np.float32))
    (w,) = toy.load(doubled(alias="x")).run([x, y], {"n": 4})
    assert w is x
    assert toy.to_host(x, float32, (4,)).tolist() == [4, 4, 4, 4]


def test_a_copy_goes_into_the_memory_of_its_target(toy: Toy) -> None:
    of = TensorType(float32, (2,))
    buffers = (Place("x", of, "input"), Place("y", of, "input"))
    program = Program("copy", (), buffers, ("x", "y"), ("y",), (Copy("x", "y"),))
    x, y = toy.from_host(np.ones(2, np.float32)), toy.from_host(np.zeros(2, np.float32))
    assert toy.load(program).run([x, y]) == (y,)
    assert toy.to_host(y, float32, (2,)).tolist() == [1, 1]


def test_wrong_inputs_are_refused_by_name(toy: Toy) -> None:
    program, x = toy.load(doubled()), toy.from_host(np.ones(4, np.float32))
    with pytest.raises(RuntimeFault, match="takes 2 inputs, not 1"):
        program.run([x], {"n": 4})
    with pytest.raises(RuntimeFault, match="input y is .*20 bytes, but has 16"):
        program.run([toy.allocate(20), x], {"n": 5})
    with pytest.raises(RuntimeFault, match="size n"):
        program.run([x, x])


def test_memory_goes_when_the_buffer_does(toy: Toy) -> None:
    buffers = [toy.allocate(100), toy.allocate(50)]
    assert toy.statistics.live == 150
    del buffers[0]
    gc.collect()
    assert toy.statistics[:2] == (50, 150)


def test_events_tell_what_ran(toy: Toy) -> None:
    x = toy.from_host(np.ones(4, np.float32))
    seen: list[events.TimedEvent] = []
    with events.listening(seen.append):
        toy.load(doubled()).run([x, x], {"n": 4})
    assert [(e.kind, e.name) for e in seen] == [("compile", "add"), *[("launch", "add")] * 2, ("run", "doubled")]
    assert all(e.stop >= e.start for e in seen)
    assert not events.listeners


def test_there_is_one_object_for_each_device(toy: Toy) -> None:
    assert device("cpu") is device("cpu")
    assert device(toy) is toy
    assert register(toy) is device("toy:0") is device("toy")
    assert devices()[0].name == "cpu"
    assert toy in devices()
    assert (str(toy), repr(toy)) == ("toy:0", "<device toy:0>")


@pytest.mark.parametrize("name", ["gpu", "cpu:1", "", "toy:9"])
def test_a_device_that_is_not_there(name: str) -> None:
    with pytest.raises(DeviceError, match=r"no device .* This machine has: cpu"):
        device(name)


def test_buffers_go_from_device_to_device(toy: Toy) -> None:
    array = np.arange(6, dtype=np.float32)
    there = device("cpu").copy(toy.from_host(array))
    back = toy.copy(there)
    np.testing.assert_array_equal(device("cpu").to_host(there, float32, (2, 3)), array.reshape(2, 3))
    np.testing.assert_array_equal(toy.to_host(back, float32, (6,)), array)
