"""Load kernels on a GPU: compile them, check them against its limits, load the module."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from ...ir.tile import Kernel
from ...runtime import events
from .properties import check_compiler, check_launch
from .tensor_map import TensorMap

if TYPE_CHECKING:
    from .build import CudaBinary
    from .device import CudaDevice

MAX_COMPILERS = 16
"""Most kernels compiled concurrently."""
DEFAULT_SHARED_BYTES = 48 << 10
"""Bytes of dynamic shared memory that a function may use by default."""


class LoadedKernel(NamedTuple):
    """A loaded kernel; `name` and `origin` are for messages."""

    handle: int
    name: str
    origin: str
    threads: int
    shared: int
    registers: int
    maps: tuple[TensorMap, ...]
    resident: int = 0
    """Persistent blocks per multiprocessor; 0: one block per instance."""
    index_faults: tuple[int, ...] = ()
    """Address of the fault record, an argument after the grid, if the kernel checks indices."""

    def blocks(self, instances: int, multiprocessors: int) -> int:
        """Return the number of blocks to launch."""
        return min(instances, self.resident * multiprocessors) if self.resident else instances


class LoadedKernels:
    """The kernels loaded on a device, by structure: layers of one shape share code. They are never unloaded."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self._loaded: dict[str, LoadedKernel] = {}
        self._lock = RLock()

    def of(self, kernels: Sequence[Kernel]) -> Mapping[str, LoadedKernel]:
        """Return the loaded kernels by digest; compiles new ones concurrently."""
        wanted = {kernel.digest(): kernel for kernel in kernels}
        with self._lock:
            new = {kernel.form(): kernel for kernel in wanted.values() if kernel.form() not in self._loaded}
            missing = list(new.values())
            for kernel, code in zip(missing, self._built(missing), strict=True):
                self._loaded[kernel.form()] = self._load(kernel, code)
            return {d: self._loaded[kernel.form()]._replace(origin=kernel.origin) for d, kernel in wanted.items()}

    def _built(self, kernels: Sequence[Kernel]) -> list[CudaBinary]:
        if kernels:
            check_compiler(self.device.properties)
        build, architecture = self.device.driver.build, self.device.properties.architecture
        with events.timed("compile", ", ".join(k.name for k in kernels), self.device.name):
            if len(kernels) < 2:
                return [build(kernel, architecture) for kernel in kernels]
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(MAX_COMPILERS, os.cpu_count() or 1)) as pool:
                return list(pool.map(lambda kernel: build(kernel, architecture), kernels))

    def _load(self, kernel: Kernel, code: CudaBinary) -> LoadedKernel:
        device = self.device
        check_launch(device.properties, kernel.name, 1, code.threads, code.shared, code.registers, kernel.origin)
        driver = device.driver
        with device.entered():
            handle = driver.function(driver.load(code.image), code.name)
            if code.shared > DEFAULT_SHARED_BYTES:
                driver.allow_shared(handle, code.shared)
        return LoadedKernel(
            handle,
            kernel.name,
            kernel.origin,
            code.threads,
            code.shared,
            code.registers,
            tuple(getattr(code, "maps", ())),
            getattr(code, "resident", 0),
            (device.index_faults.address,) if code.checks_indices else (),
        )
