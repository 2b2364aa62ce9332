"""Run kernels by interpretation, as a device. `Device.load` walks the steps of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np

from ...errors import RuntimeFault
from ...ir.dtype import DType, uint8
from ...ir.precision import Precision
from ...ir.program import Program
from ...ir.program_checker import check_program
from ...ir.tile import Kernel
from ...ir.tile_checker import check
from ...runtime.buffer import DeviceBuffer
from ...runtime.device import Device
from ...runtime.executable import CompiledKernel, Executable
from .tile import run


class ReferenceDevice(Device):
    """A device in numpy's memory. With `checked`, the interpreter checks every access."""

    def __init__(self, name: str = "reference", checked: bool = False) -> None:
        super().__init__(name)
        self.checked = checked

    def allocate(self, bytes: int) -> DeviceBuffer:
        """Allocate memory filled with NaN or -1, so that reads of uninitialised elements show."""
        return DeviceBuffer(self, bytes, memory=np.full(bytes, 255, np.uint8))

    def from_host(self, array: np.ndarray) -> DeviceBuffer:
        data = np.array(array, order="C").reshape(-1).view(np.uint8)  # a copy: the memory is our own
        return DeviceBuffer(self, data.size, memory=data)

    def to_host(self, buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray:
        return _elements(buffer, dtype, int(np.prod(shape, dtype=np.int64))).reshape(shape).copy()

    def view(self, buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray | None:
        return _elements(buffer, dtype, int(np.prod(shape, dtype=np.int64))).reshape(shape)

    def adopt(self, array: np.ndarray) -> DeviceBuffer | None:
        if not (array.flags.c_contiguous and array.flags.writeable):
            return None
        data = array.reshape(-1).view(np.uint8)
        return DeviceBuffer(self, data.size, memory=data)

    def overwrite(self, target: DeviceBuffer, source: DeviceBuffer) -> None:
        target.memory[: source.bytes] = source.memory

    def load(self, program: Program, constant_inputs: Set[str] = frozenset()) -> Executable:
        check_program(program)
        return super().load(program)

    @property
    def products(self) -> Mapping[Precision, str]:
        return {"highest": "float32", "high": "three products of bfloat16 parts", "medium": "bfloat16"}

    def compile(self, kernel: Kernel) -> CompiledKernel:
        types = check(kernel)

        def compiled(arguments: Sequence[DeviceBuffer | int], grid: tuple[int, ...]) -> None:
            if len(arguments) != len(kernel.parameters):
                raise RuntimeFault(f"{kernel.name} takes {len(kernel.parameters)} arguments, not {len(arguments)}")
            given = [
                _elements(a, p.dtype, a.bytes // p.dtype.bytes) if isinstance(a, DeviceBuffer) else a
                for a, p in zip(arguments, kernel.parameters, strict=True)
            ]
            run(kernel, given, grid, checked=self.checked, types=types)

        return compiled


def _elements(buffer: DeviceBuffer, dtype: DType, count: int) -> np.ndarray:
    """View the memory of a buffer as an array."""
    if count * dtype.bytes > buffer.bytes:
        raise RuntimeFault(
            f"{count} elements of {dtype.name} take {count * dtype.bytes} bytes: the buffer has {buffer.bytes}"
        )
    memory: np.ndarray = buffer.memory
    return memory if dtype is uint8 and count == memory.size else memory[: count * dtype.bytes].view(dtype.numpy)
