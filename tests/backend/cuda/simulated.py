"""A CUDA driver in Python: memory on the host, kernels in the reference interpreter, the worst possible order.

Submitted work waits in its stream. When someone waits, streams advance in a random order constrained only by events, so
that missing dependences show. Freed memory is overwritten; an access to it, or to unallocated memory, makes the device
fail like a real one: later, and for good.
"""

from __future__ import annotations

import ctypes
import pickle
import random
import threading
from array import array
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilegrad.backend.cuda.build import CudaBinary
from tilegrad.backend.cuda.code.checked_indices import PLACE
from tilegrad.backend.cuda.driver import (
    ILLEGAL_ADDRESS,
    OUT_OF_MEMORY,
    Call,
    CopyCall,
    Driver,
    DriverFault,
    LibraryCall,
    NodeCall,
)
from tilegrad.backend.cuda.null import H200_ATTRIBUTES
from tilegrad.backend.cuda.tensor_map import TensorMap
from tilegrad.backend.cuda.watching import decode_argument
from tilegrad.backend.reference.tile import run
from tilegrad.errors import KernelError
from tilegrad.ir.tile import Kernel
from tilegrad.runtime.index_faults import IndexFaults

ALIGNMENT = 512


class Occurrence:
    """The point in a stream that an event recorded."""

    time = 0.0

    def __init__(self, context: int, done: bool = False) -> None:
        self.context, self.done = context, done


class Block:
    """An allocation."""

    def __init__(self, bytes: int, context: int) -> None:
        self.memory = np.full(bytes + ALIGNMENT, 0xFF, np.uint8)
        start = self.memory.__array_interface__["data"][0]
        self.offset = -start % ALIGNMENT
        self.address, self.bytes, self.context = start + self.offset, bytes, context

    def view(self, address: int) -> np.ndarray:
        begin = self.offset + address - self.address
        return self.memory[begin : self.offset + self.bytes]


class Stream:
    def __init__(self, context: int) -> None:
        self.context = context
        self.waiting: deque[tuple[Callable[[], None], Occurrence | None]] = deque()


class SimulatedDriver(Driver):
    """A simulated driver; `counts` counts calls, `capacity` is the memory of each device."""

    version = 13000

    def __init__(self, devices: int = 1, capacity: int = 1 << 30, seed: int = 0) -> None:
        super().__init__()
        self.devices, self.capacity = devices, capacity
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.things: dict[int, Any] = {}
        self.blocks: dict[int, Block] = {}
        self.host: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.streams: list[Stream] = []
        self.broken: DriverFault | None = None
        self.time = 0.0
        self.threads = 128
        self.shared = 0
        self.local = threading.local()
        self.lock = threading.RLock()

    def build(self, kernel: Kernel, architecture: str) -> Any:
        self.counts["built"] += 1
        image = pickle.dumps(kernel)
        checks = f"int64* {PLACE}" if "'inside'" in repr(kernel) else ""
        text = f"// {kernel.name} for {architecture} {checks}"
        return CudaBinary(f"{kernel.name}_kernel", text, image, self.threads, self.shared, 32, 0, architecture)

    # --- bookkeeping ---------------------------------------------------------------------------

    def called(self, name: str) -> None:
        self.counts[name] += 1
        if self.broken is not None:
            raise self.explained(self.broken)
        assert name in ("context", "enter") or getattr(self.local, "context", 0), f"{name}: no context entered"

    def new(self, thing: Any) -> int:
        self.things[len(self.things) + 1] = thing
        return len(self.things)

    def put(self, stream: int, work: Callable[[], None], after: Occurrence | None = None) -> None:
        queue = self.things[stream]
        assert queue.context == self.local.context, "a stream of another context than the one entered"
        with self.lock:
            queue.waiting.append((work, after))

    def go_on(self, until: Callable[[], bool]) -> None:
        """Run waiting work in random order until a condition holds."""
        with self.lock:
            while not until():
                ready = [s for s in self.streams if s.waiting and (s.waiting[0][1] is None or s.waiting[0][1].done)]
                assert ready, "streams wait for each other, or for an event that nobody recorded"
                work, _ = self.random.choice(ready).waiting.popleft()
                self.time += 1.0
                try:
                    work()
                except (KernelError, LookupError) as problem:
                    self.broken = DriverFault(ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", str(problem), "a kernel")
                    for stream in self.streams:
                        stream.waiting.clear()
        if self.broken is not None:
            raise self.explained(self.broken)

    def block(self, address: int, bytes: int) -> Block:
        for block in list(self.blocks.values()):
            if block.address <= address and address + bytes <= block.address + block.bytes:
                return block
        raise LookupError(f"{bytes} bytes at {address:#x} are nobody's")

    def at(self, address: int, bytes: int) -> np.ndarray:
        return self.block(address, bytes).view(address)[:bytes]

    # --- devices -------------------------------------------------------------------------------

    def device_count(self) -> int:
        return self.devices

    def device_name(self, number: int) -> str:
        return "Simulated"

    def attribute(self, number: int, attribute: str) -> int:
        return H200_ATTRIBUTES[attribute]

    def total_memory(self, number: int) -> int:
        return self.capacity

    def context(self, number: int) -> int:
        self.called("context")
        return 1000 + number

    def share(self, owner: int, reader: int) -> None:
        pass

    def enter(self, context: int) -> None:
        self.called("enter")
        self.local.context = context

    def memory_info(self) -> tuple[int, int]:
        used = sum(b.bytes for b in self.blocks.values() if b.context == self.local.context)
        return self.capacity - used, self.capacity

    def synchronize(self) -> None:
        self.called("synchronize")
        mine = [s for s in self.streams if s.context == self.local.context]
        self.go_on(lambda: not any(s.waiting for s in mine))

    # --- streams and events --------------------------------------------------------------------

    def new_stream(self, priority: int) -> int:
        self.called("new_stream")
        self.streams.append(Stream(self.local.context))
        return self.new(self.streams[-1])

    def await_stream(self, stream: int) -> None:
        self.called("await_stream")
        self.go_on(lambda: not self.things[stream].waiting)

    def stream_done(self, stream: int) -> bool:
        return not self.things[stream].waiting

    def new_event(self, timed: bool) -> int:
        self.called("new_event")
        return self.new(Occurrence(self.local.context, done=True))

    def end_event(self, event: int) -> None:
        del self.things[event]
        self.things[event] = None

    def record(self, event: int, stream: int) -> None:
        self.called("record")
        assert self.things[event].context == self.things[stream].context, "an event of another context than the stream"
        now = self.things[event] = Occurrence(self.local.context)

        def happen() -> None:
            now.done, now.time = True, self.time

        self.put(stream, happen)

    def stream_waits(self, stream: int, event: int) -> None:
        self.called("stream_waits")
        self.put(stream, lambda: None, self.things[event])

    def await_event(self, event: int) -> None:
        self.called("await_event")
        occurrence = self.things[event]
        self.go_on(lambda: occurrence.done)

    def event_done(self, event: int) -> bool:
        return bool(self.things[event].done)

    def elapsed(self, start: int, stop: int) -> float:
        return float(self.things[stop].time - self.things[start].time)

    def mark(self, stream: int, address: int, number: int) -> None:
        self.called("mark")
        word = ctypes.c_uint32.from_address(address)
        self.put(stream, lambda: setattr(word, "value", number))

    # --- memory --------------------------------------------------------------------------------

    def allocate(self, bytes: int, stream: int) -> int:
        self.called("allocate")
        if self.memory_info()[0] < bytes:
            raise DriverFault(OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", "cuMemAllocAsync")
        made = Block(bytes, self.local.context)
        self.blocks[made.address] = made
        return made.address

    def free(self, address: int, stream: int) -> None:
        self.called("free")

        def free() -> None:
            self.blocks.pop(address).memory.fill(0xA5)

        if self.things[stream].waiting:
            self.put(stream, free)
        else:
            free()

    def trim(self, number: int) -> None:
        self.called("trim")

    def allocate_host(self, bytes: int) -> int:
        made = ctypes.create_string_buffer(bytes)
        address = ctypes.addressof(made)
        self.host[address] = made
        return address

    def is_pinned(self, address: int) -> bool:
        return any(start <= address < start + len(made) for start, made in self.host.items())

    def to_device(self, target: int, source: int, bytes: int, stream: int) -> None:
        self.called("to_device")
        taken = None if self.is_pinned(source) else ctypes.string_at(source, bytes)
        assert taken is None or bytes <= 1 << 16, "a large copy from memory that is not pinned"

        def copy() -> None:
            contents = ctypes.string_at(source, bytes) if taken is None else taken
            self.at(target, bytes)[:] = np.frombuffer(contents, np.uint8)

        self.put(stream, copy)

    def to_host(self, target: int, source: int, bytes: int, stream: int) -> None:
        self.called("to_host")
        assert self.is_pinned(target)
        self.put(stream, lambda: ctypes.memmove(target, self.at(source, bytes).tobytes(), bytes) and None)

    def copy(self, target: int, source: int, bytes: int, stream: int) -> None:
        self.called("copy")
        self.put(stream, lambda: np.copyto(self.at(target, bytes), self.at(source, bytes)))

    def copy_between(
        self, target: int, target_context: int, source: int, source_context: int, bytes: int, stream: int
    ) -> None:
        self.called("copy_between")
        assert self.block(target, bytes).context == target_context
        assert self.block(source, bytes).context == source_context
        self.put(stream, lambda: np.copyto(self.at(target, bytes), self.at(source, bytes)))

    # --- kernels -------------------------------------------------------------------------------

    def load(self, image: bytes) -> int:
        self.called("load")
        return self.new(pickle.loads(image))

    def function(self, module: int, name: str) -> int:
        assert f"{self.things[module].name}_kernel" == name
        return module

    def allow_shared(self, function: int, bytes: int) -> None:
        self.called("allow_shared")

    def encode(self, place: int, map: TensorMap, address: int) -> None:
        self.called("encode")

    def launch(self, call: Call, stream: int) -> None:
        self.called("launch")
        self.put(stream, self.work(call, list(call.slots)))

    def work(self, call: NodeCall, slots: list[int]) -> Callable[[], None]:
        """Return the work of a call with its current arguments."""
        if isinstance(call, LibraryCall):

            def start() -> None:
                call.slots[:] = memoryview(array("Q", slots))
                call.start(self, 0)

            return start
        if isinstance(call, CopyCall):
            source, target = slots
            return lambda: np.copyto(self.at(target, call.bytes), self.at(source, call.bytes))
        kernel: Kernel = self.things[call.function]
        count = len(kernel.parameters)
        values, (x, y, z, *faults) = slots[:count], slots[count:]
        assert call.blocks == x * y * z > 0

        def compute() -> None:
            self.counts["kernels"] += 1
            arguments: list[Any] = []
            for parameter, value in zip(kernel.parameters, values, strict=True):
                if parameter.pointer:
                    whole = self.block(value, 0).view(value)
                    arguments.append(whole[: whole.size // parameter.dtype.bytes * parameter.dtype.bytes])
                    arguments[-1] = arguments[-1].view(parameter.dtype.numpy)
                else:
                    arguments.append(decode_argument(value, parameter.dtype))
            run(kernel, arguments, (x, y, z), index_faults=IndexFaults(*faults))

        return compute

    # --- graphs --------------------------------------------------------------------------------

    def new_graph(self) -> int:
        self.called("new_graph")
        return self.new([])

    def add_node(self, graph: int, call: NodeCall, after: Sequence[int], context: int) -> int:
        self.called("add_node")
        nodes = self.things[graph]
        assert all(n < len(nodes) for n in after)
        nodes.append((call, list(call.slots), tuple(after)))
        return len(nodes) - 1

    def instantiate(self, graph: int) -> int:
        self.called("instantiate")
        return self.new(list(self.things[graph]))

    def renew_node(self, executable: int, node: int, call: NodeCall, context: int) -> None:
        self.called("renew_node")
        nodes = self.things[executable]
        nodes[node] = (call, list(call.slots), nodes[node][2])

    def launch_graph(self, executable: int, stream: int) -> None:
        self.called("launch_graph")
        nodes = list(self.things[executable])

        def compute() -> None:
            remaining = dict(enumerate(nodes))
            while remaining:
                ready = [n for n, (_, _, after) in remaining.items() if not remaining.keys() & set(after)]
                call, slots, _ = remaining.pop(self.random.choice(ready))
                self.work(call, slots)()

        self.put(stream, compute)

    def end_graph(self, graph: int, executable: int) -> None:
        self.called("end_graph")
