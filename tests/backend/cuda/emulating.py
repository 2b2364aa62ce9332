"""A simulated GPU that runs the CUDA C++ generated for an H200 instead of interpreting tile kernels.

Programs run as on the device: with its sizes, tiles, tensor maps and order of launches.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from tests.backend.cuda.emulated import Emulated, encoded
from tests.backend.cuda.simulated import SimulatedDriver
from tilegrad.backend.cuda.build import CudaBinary
from tilegrad.backend.cuda.driver import KernelCall, NodeCall
from tilegrad.backend.cuda.tensor_map import TensorMap
from tilegrad.ir.tile import Kernel


class EmulatingDriver(SimulatedDriver):
    """With `reversed`, threads run in reverse order and asynchronous work is done as late as possible."""

    runs = True

    def __init__(self, *, reversed: bool = False, seed: int = 0) -> None:
        super().__init__(capacity=1 << 34, seed=seed)
        self.reversed = reversed
        self.emulations: dict[str, Emulated] = {}

    def build(self, kernel: Kernel, architecture: str) -> Any:
        made = Emulated([kernel], architecture)
        (source,) = made.sources
        self.emulations[kernel.digest()] = made
        return CudaBinary(
            source.name, source.text, pickle.dumps(kernel), source.threads, source.shared, 32, 0, architecture,
            source.maps, source.resident,
        )  # fmt: skip

    def function(self, module: int, name: str) -> int:
        return module

    def encode(self, place: int, map: TensorMap, address: int) -> None:
        """Record a tensor map; launches encode it from their arguments."""

    def work(self, call: NodeCall, slots: list[int]) -> Callable[[], None]:
        if not isinstance(call, KernelCall):
            return super().work(call, slots)
        kernel: Kernel = self.things[call.function]
        emulation = self.emulations[kernel.digest()]

        def compute() -> None:
            import ctypes

            self.counts["kernels"] += 1
            words = (ctypes.c_uint64 * len(slots))(*slots)
            start = ctypes.addressof(words)
            maps = []
            for map, _ in call.maps:
                block = self.block(slots[map.parameter], 0)
                made = encoded(map, slots[map.parameter], block.address, block.address + block.bytes)
                maps.append(ctypes.create_string_buffer(made, len(made)))
            places = [start + 8 * n for n in range(len(slots))] + [ctypes.addressof(map) for map in maps]
            x, y, z = slots[len(kernel.parameters) :][:3]
            emulation.start(0, places, x * y * z, self.reversed)

        return compute
