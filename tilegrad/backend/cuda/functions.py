"""Load kernels on a GPU: compile them, check them against its limits, load the module."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from ...ir.tile import Kernel
from ...runtime import events
from .driver import KernelCall
from .properties import GpuProperties, check_compiler, check_launch

if TYPE_CHECKING:
    from .build import CudaBinary
    from .device import CudaDevice

MAX_COMPILERS = 16
"""Most kernels compiled concurrently."""
DEFAULT_SHARED_BYTES = 48 << 10
"""Bytes of dynamic shared memory that a function may use by default."""


class LoadedKernel(NamedTuple):
    """A compiled kernel in a context; `name` and `origin` are those of the user's kernel, for messages and profiles."""

    binary: CudaBinary
    handle: int
    name: str
    origin: str
    index_faults: tuple[int, ...] = ()
    """Address of the fault record, an argument after the grid, if the kernel checks indices."""

    def call(self, limits: GpuProperties, arguments: Sequence[int], grid: Sequence[int]) -> KernelCall:
        """Prepare a launch of all instances of a grid."""
        code = self.binary
        blocks = code.blocks(prod(grid), limits.multi_processor_count)
        check_launch(limits, self.name, blocks, code.threads, code.shared, code.registers, self.origin)
        values = [*arguments, *(*grid, 1, 1, 1)[:3], *self.index_faults]
        return KernelCall(
            self.name, self.handle, blocks, code.threads, code.shared, values, code.maps, symbol=code.name
        )


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
            return {
                digest: self._loaded[kernel.form()]._replace(name=kernel.name, origin=kernel.origin)
                for digest, kernel in wanted.items()
            }

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
        faults = (device.index_faults.address,) if code.checks_indices else ()
        return LoadedKernel(code, handle, kernel.name, kernel.origin, faults)
