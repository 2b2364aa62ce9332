"""The CPU device: memory from the pool, programs on the native runner."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np

from ...deferred import part
from ...ir.dtype import DType
from ...ir.precision import Precision
from ...ir.program import Program
from ...ir.tile import Kernel
from ...runtime.buffer import DeviceBuffer, Everything
from ...runtime.device import Device, LaunchListener, Statistics
from ...runtime.executable import CompiledKernel, Executable
from ...runtime.singletons import lock
from ...runtime.target_model import TargetModel
from .memory import BorrowedBuffer, PoolBuffer, address_of, copied, fill, view
from .pool import ALIGNMENT, MemoryPool

AMX_ARITHMETIC: Mapping[Precision, str] = {
    "highest": "six products of bfloat16 parts (AMX)",
    "high": "three products of bfloat16 parts (AMX)",
    "medium": "bfloat16 (AMX)",
}
BF16_DOT_ARITHMETIC: Mapping[Precision, str] = {"medium": "bfloat16 (AVX-512)"}


class CpuDevice(Device):
    """All cores that this process may use, as one device."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.pool = MemoryPool()
        self.arena = self.allocate(ALIGNMENT)
        self._growing = lock()

    def allocate(self, bytes: int) -> PoolBuffer:
        blocks = self.pool.blocks(bytes)
        return PoolBuffer(self, bytes, blocks, self.pool.take(blocks))

    @property
    def everything(self) -> DeviceBuffer:
        return Everything(self)

    def maker(self, bytes: int) -> Callable[[], PoolBuffer]:
        from .first_buffers import buffer_maker  # most programs need none

        return buffer_maker(self, bytes)

    def from_host(self, array: np.ndarray) -> DeviceBuffer:
        buffer = self.allocate(array.nbytes)
        fill(buffer, array)
        return buffer

    def to_host(self, buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray:
        return copied(buffer, dtype, shape)

    def view(self, buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray:
        return view(buffer, dtype, shape)

    def address_space(self, dtype: DType) -> memoryview | None:
        from .elements import elements

        return elements(dtype)

    def adopt(self, array: np.ndarray) -> DeviceBuffer | None:
        usable = array.flags.c_contiguous and array.flags.writeable and address_of(array) % array.itemsize == 0
        return BorrowedBuffer(self, array) if usable else None

    def copy(self, source: DeviceBuffer) -> DeviceBuffer:
        target = self.allocate(source.bytes)
        if source.device is not self:
            source.device.deliver(source, target)
            return target
        ctypes.memmove(target.address, source.address, source.bytes)
        return target

    def overwrite(self, target: DeviceBuffer, source: DeviceBuffer) -> None:
        ctypes.memmove(target.address, source.address, source.bytes)

    def compile(self, kernel: Kernel) -> CompiledKernel:
        from .launch import LaunchedKernel  # loads native code

        return LaunchedKernel(kernel)

    def compiling(self) -> AbstractContextManager[LaunchListener | None]:
        begin = part("backend.cpu.kernels_ahead", "KernelsAhead")  # loads native code
        return nullcontext() if begin is None else begin()

    def load(self, program: Program, constant_inputs: Set[str] = frozenset()) -> Executable:
        from .executable import CpuExecutable  # loads native code

        return CpuExecutable(self, program, constant_inputs)

    def source(self, kernel: Kernel) -> str:
        from .build import shown_ir

        return shown_ir(kernel)

    def assembly(self, kernel: Kernel) -> str:
        from .build import kernel_assembly

        return kernel_assembly(kernel)

    def trim(self) -> None:
        self.pool.trim()

    def grow_arena(self, bytes: int) -> None:
        """Grow the arena so that the temporaries of a program fit.

        All programs share one arena, since only one runs at a time; a running program keeps a reference to the arena it
        started with. The arena never shrinks: every bound program relies on its size.
        """
        with self._growing:
            if self.arena.bytes < bytes:
                self.arena = self.allocate(bytes)

    @property
    def live_bytes(self) -> int:
        return self.pool.live - self.arena.blocks.bytes

    @property
    def statistics(self) -> Statistics:
        statistics = self.pool.statistics
        return statistics._replace(live=statistics.live - self.arena.blocks.bytes)

    def reset_peaks(self) -> None:
        self.pool.reset_peaks()

    @cached_property
    def ready_kernels(self) -> Any:
        from .ready_kernels import CpuKernels  # loads native code

        return CpuKernels(self)

    @property
    def machine(self) -> str:
        from .native import threads
        from .processor import model, vector_bits  # loads native code

        return f"{model()}, {threads()} threads, {vector_bits()} bits"

    @cached_property
    def target(self) -> TargetModel:
        from .costs import processor_model
        from .native import threads
        from .target import target  # loads native code

        return processor_model(target(), threads())

    @property
    def products(self) -> Mapping[Precision, str]:
        from .target import target  # loads native code

        machine = target()
        if machine.matrix_unit:
            return AMX_ARITHMETIC
        return {**super().products, **(BF16_DOT_ARITHMETIC if machine.pairs else {})}

    def arithmetic(self, kernel: Kernel) -> list[str]:
        from ...ir.tile_access import precisions
        from .build import describe_low_precision  # loads native code

        said = describe_low_precision(kernel)
        if said:
            return [said, *super().arithmetic(kernel)]
        return [f'input_precision="{word}": float32 on {self.name}' for word in precisions(kernel)]

    @property
    def limits(self) -> Mapping[str, Any]:
        from .limits import limits

        return limits()
