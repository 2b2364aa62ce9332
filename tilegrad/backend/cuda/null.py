"""A driver that runs nothing, to inspect CUDA programs on machines without a GPU. All elements are 0."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from ...errors import DeviceError
from .driver import Call, Driver, NodeCall
from .tensor_map import TensorMap

if TYPE_CHECKING:
    from ...ir.tile import Kernel
    from .build import CudaBinary

H200_ATTRIBUTES = {
    "threads": 1024,
    "grid": 2147483647,
    "shared": 49152,
    "warp": 32,
    "registers": 65536,
    "clock": 1980000,
    "multiprocessors": 132,
    "memory_clock": 3201000,
    "bus": 6016,
    "l2": 62914560,
    "threads_multiprocessor": 2048,
    "major": 9,
    "minor": 0,
    "shared_multiprocessor": 233472,
    "registers_multiprocessor": 65536,
    "shared_optin": 232448,
    "blocks_multiprocessor": 32,
    "pools": 1,
}
"""Attributes of an H200."""
H200_MEMORY_BYTES = 150_109_880_320
"""Memory of an H200."""
MIB = 1 << 20
"""Granularity of simulated addresses, in bytes."""


class NullDriver(Driver):
    """An H200 on which all work is done as soon as it is submitted."""

    version = 13000
    runs = False

    def __init__(self) -> None:
        super().__init__()
        self._handles = count(1)
        self._next = 1 << 40
        self._host: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.sizes: dict[int, int] = {}
        """Bytes of each allocation."""

    def build(self, kernel: Kernel, architecture: str) -> CudaBinary:
        """Compile a kernel; without a compiler, return its source alone."""
        from .build import CudaBinary
        from .code.lower import lower

        try:
            return super().build(kernel, architecture)
        except DeviceError:
            code = lower(kernel, architecture)
            name, text, threads, shared, maps, resident = code
            return CudaBinary(name, text, b"", threads, shared, 0, 0, architecture, maps, resident)

    def device_count(self) -> int:
        return 1

    def device_name(self, number: int) -> str:
        return "NVIDIA H200"

    def attribute(self, number: int, attribute: str) -> int:
        return H200_ATTRIBUTES[attribute]

    def total_memory(self, number: int) -> int:
        return H200_MEMORY_BYTES

    def context(self, number: int) -> int:
        return next(self._handles)

    def share(self, owner: int, reader: int) -> None:
        pass

    def enter(self, context: int) -> None:
        pass

    def memory_info(self) -> tuple[int, int]:
        return H200_MEMORY_BYTES - sum(self.sizes.values()), H200_MEMORY_BYTES

    def synchronize(self) -> None:
        pass

    def new_stream(self, priority: int) -> int:
        return next(self._handles)

    def await_stream(self, stream: int) -> None:
        pass

    def stream_done(self, stream: int) -> bool:
        return True

    def new_event(self, timed: bool) -> int:
        return next(self._handles)

    def end_event(self, event: int) -> None:
        pass

    def record(self, event: int, stream: int) -> None:
        pass

    def stream_waits(self, stream: int, event: int) -> None:
        pass

    def await_event(self, event: int) -> None:
        pass

    def event_done(self, event: int) -> bool:
        return True

    def elapsed(self, start: int, stop: int) -> float:
        return 0.0

    def mark(self, stream: int, address: int, number: int) -> None:
        ctypes.c_uint32.from_address(address).value = number & 0xFFFF_FFFF

    def allocate(self, bytes: int, stream: int) -> int:
        address = self._next
        self._next += -(-max(bytes, 1) // MIB) * MIB
        self.sizes[address] = bytes
        return address

    def free(self, address: int, stream: int) -> None:
        del self.sizes[address]

    def trim(self, number: int) -> None:
        pass

    def allocate_host(self, bytes: int) -> int:
        made = ctypes.create_string_buffer(bytes)
        address = ctypes.addressof(made)
        self._host[address] = made
        return address

    def to_device(self, target: int, source: int, bytes: int, stream: int) -> None:
        pass

    def to_host(self, target: int, source: int, bytes: int, stream: int) -> None:
        ctypes.memset(target, 0, bytes)

    def copy(self, target: int, source: int, bytes: int, stream: int) -> None:
        pass

    def copy_between(
        self, target: int, target_context: int, source: int, source_context: int, bytes: int, stream: int
    ) -> None:
        pass

    def load(self, image: bytes) -> int:
        return next(self._handles)

    def function(self, module: int, name: str) -> int:
        return next(self._handles)

    def allow_shared(self, function: int, bytes: int) -> None:
        pass

    def encode(self, place: int, map: TensorMap, address: int) -> None:
        pass

    def launch(self, call: Call, stream: int) -> None:
        pass

    def new_graph(self) -> int:
        return next(self._handles)

    def add_node(self, graph: int, call: NodeCall, after: Sequence[int], context: int) -> int:
        return next(self._handles)

    def instantiate(self, graph: int) -> int:
        return next(self._handles)

    def renew_node(self, executable: int, node: int, call: NodeCall, context: int) -> None:
        pass

    def launch_graph(self, executable: int, stream: int) -> None:
        pass

    def end_graph(self, graph: int, executable: int) -> None:
        pass
