"""Tensors, storages and devices, as the checklist asks for them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.ops.registry import all_examples
from tests.source import FILES, module_name
from tilegrad.backend.reference.graph import interpret
from tilegrad.backend.reference.tile import run
from tilegrad.errors import TilegradError
from tilegrad.ir.dtype import DType
from tilegrad.ir.tile import Kernel
from tilegrad.runtime.buffer import DeviceBuffer
from tilegrad.runtime.device import Device, device, register
from tilegrad.runtime.executable import CompiledKernel
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse

SHAPES: list[tuple[int, ...]] = [(), (3,), (0,), (2, 3), (2, 0, 4), (2, 1, 3, 2), (1, 2, 3, 2, 2)]


@checklist(1)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32", "float64"])
def test_properties_are_those_of_numpy(shape: tuple[int, ...], dtype: str) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    x = tg.tensor(array)
    assert (tuple(x.shape), x.ndim, x.numel(), x.dtype.name) == (array.shape, array.ndim, array.size, dtype)
    assert x.device == tg.device("cpu")
    assert x.storage_offset() == 0
    if array.size:
        assert tuple(s * array.itemsize for s in x.stride()) == array.strides
    np.testing.assert_array_equal(x.numpy(), array)


@checklist(1, 73)
def test_views_have_strides_and_offsets_of_one_storage() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = tg.tensor(array)
    for view, wanted in ((x.t(), array.T), (x[1:, 2:], array[1:, 2:]), (x[::2], array[::2]), (x[2], array[2])):
        assert tuple(4 * s for s in view.stride()) == wanted.strides
        assert view.storage_offset() * 4 == wanted.__array_interface__["data"][0] - array.__array_interface__["data"][0]
        assert view.is_contiguous() == wanted.flags.c_contiguous
        np.testing.assert_array_equal((view * 2).numpy(), wanted * 2)
    x[1] = -1.0
    np.testing.assert_array_equal(x.t()[:, 1].numpy(), np.full(6, -1.0))


@checklist(55)
def test_a_view_follows_from_one_size() -> None:
    x = tg.arange(24.0).reshape(2, 3, 4)
    assert tuple(x.view(x.shape[0], -1).shape) == (2, 12)
    assert tuple(x.view(-1).shape) == (24,)
    assert x.view(2, -1).data_ptr() == x.data_ptr()
    with pytest.raises(TilegradError, match="view"):
        x.transpose(0, 2).view(2, -1)
    np.testing.assert_array_equal(x.transpose(0, 2).reshape(2, -1).numpy(), x.numpy().transpose(2, 1, 0).reshape(2, -1))


@checklist(74)
def test_devices_are_found_at_run_time_and_exist_once() -> None:
    names = [d.name for d in tg.devices()]
    assert "cpu" in names
    assert tg.device("cpu") is tg.device("cpu")
    assert tg.tensor([1.0]).device is tg.device("cpu")


class Toy(Device):
    """A device in a few lines: memory of numpy, kernels interpreted."""

    def allocate(self, bytes: int) -> DeviceBuffer:
        return DeviceBuffer(self, bytes, memory=np.full(bytes, 255, np.uint8))

    def from_host(self, array: np.ndarray) -> DeviceBuffer:
        return DeviceBuffer(self, array.nbytes, memory=np.array(array, order="C").reshape(-1).view(np.uint8))

    def to_host(self, buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray:
        return self.elements(buffer, dtype)[: int(np.prod(shape))].reshape(shape).copy()

    def elements(self, buffer: DeviceBuffer, dtype: DType) -> np.ndarray:
        return np.asarray(buffer.memory[: buffer.bytes // dtype.bytes * dtype.bytes].view(dtype.numpy))

    def compile(self, kernel: Kernel) -> CompiledKernel:
        def compiled(arguments: Sequence[DeviceBuffer | int], grid: tuple[int, ...]) -> None:
            pairs = zip(arguments, kernel.parameters, strict=True)
            given = [self.elements(a, p.dtype) if isinstance(a, DeviceBuffer) else a for a, p in pairs]
            with np.errstate(all="ignore"):
                run(kernel, given, grid)

        return compiled


TOY = register(Toy("playground"))


@checklist(75)
def test_a_toy_device_takes_few_lines() -> None:
    assert len(inspect.getsource(Toy).splitlines()) <= 50


@checklist(75)
@pytest.mark.parametrize("example", all_examples()[::4], ids=lambda e: e.name)
def test_a_toy_device_runs_every_op(example: object) -> None:
    graph = example.graph()  # type: ignore[attr-defined]
    arrays = example.arrays  # type: ignore[attr-defined]
    made = TOY.load(assemble(fuse(graph))).run([TOY.from_host(a) for a in arrays])
    for buffer, value, want in zip(made, graph.outputs, interpret(graph, arrays), strict=True):
        exact = max(1e-6, example.tolerance)  # type: ignore[attr-defined]
        np.testing.assert_allclose(TOY.to_host(buffer, value.dtype, want.shape), want, 10 * exact, exact)


@checklist(75)
def test_tensors_are_made_on_it_like_on_any_other() -> None:
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0]], device="playground", requires_grad=True)
    y = (x @ x).relu().sum()
    y.backward()
    assert x.grad is not None
    assert (y.item(), x.grad.device.name) == (54.0, "playground")
    np.testing.assert_allclose(x.grad.cpu().numpy(), [[7.0, 11.0], [9.0, 13.0]])


@checklist(75)
def test_nothing_asks_which_device_it_is() -> None:
    """Only backends, descriptions of them, and PyTorch's interface may ask for the kind of device."""
    for path in FILES:
        if not {"backend", "profile", "torch"} & set(module_name(path).split(".")):
            assert '== "cuda' not in path.read_text(), path


@checklist(100)
def test_operands_on_two_devices() -> None:
    with pytest.raises(TilegradError) as problem:
        tg.ones(3) + tg.ones(3, device="playground")
    assert "cpu" in str(problem.value)
    assert "playground" in str(problem.value)
    assert ".to(" in str(problem.value)


@checklist(100)
def test_a_network_moves_whole() -> None:
    net = tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.ReLU(), tg.nn.Linear(4, 2))
    net(tg.ones(1, 3)).sum().backward()
    net.to("playground")
    assert {p.device for p in net.parameters()} == {device("playground")}
    assert {p.grad.device for p in net.parameters() if p.grad is not None} == {device("playground")}
    assert net(tg.ones(1, 3, device="playground")).device is device("playground")
