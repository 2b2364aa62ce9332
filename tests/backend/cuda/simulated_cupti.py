"""CUPTI in Python, beside a simulated GPU: records of kernels and copies, laid out as the versions of CUPTI do.

Sizes and offsets are those of the headers `cupti_activity.h` and `cupti_activity_deprecated.h` of CUPTI 13.5.
"""

from __future__ import annotations

import ctypes
import random
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.backend.cuda.simulated import Occurrence, SimulatedDriver
from tilegrad.backend.cuda.activity import ActivityRecorder
from tilegrad.backend.cuda.driver import Call, CopyCall, KernelCall
from tilegrad.backend.cuda.launch_times import LaunchTimer
from tilegrad.runtime import events

KERNEL_NS, COPY_NS = 5_000, 3_000
"""Nanoseconds of each kernel and copy."""


class Layout(NamedTuple):
    """Sizes of the records of a version, and where it tells the node that a node was instantiated from (0: nowhere)."""

    kernel: int
    copy: int
    fill: int
    kernel_source: int = 0
    copy_source: int = 0
    fill_source: int = 0


VERSIONS = {
    "CUDA 11.1": Layout(160, 72, 72),  # Kernel5, Memcpy3, Memset2
    "CUDA 12.0": Layout(208, 88, 88),  # Kernel9, Memcpy5, Memset4
    "CUDA 13.0": Layout(224, 96, 88),  # Kernel11, Memcpy6, Memset4
    "CUDA 13.5": Layout(248, 112, 104, 240, 104, 96),  # Kernel13, Memcpy7, Memset5
}


class Work(NamedTuple):
    """What a record is made of."""

    kind: str
    name: str
    bytes: int
    device: int
    stream: int
    correlation: int
    node: int = 0
    source: int = 0
    nanoseconds: int = KERNEL_NS


class SimulatedCupti:
    """The functions of the library. `names_nodes`: how records name the nodes of graphs; `shift`: bytes by which the
    fields after the kind lie elsewhere than documented; `tells_regions`: whether records relate to regions.
    """

    def __init__(
        self, version: str = "CUDA 13.0", names_nodes: str = "node", shift: int = 0, tells_regions: bool = True
    ) -> None:
        self.layout = VERSIONS[version]
        self.names_nodes, self.shift, self.tells_regions = names_nodes, shift, tells_regions
        self.refused: dict[str, int] = {}
        """Status of the functions that refuse."""
        self.enabled: list[int] = []
        self.records: list[bytes] = []
        self.clock = 0
        self.ahead = random.Random(0).randrange(1 << 40)
        """Nanoseconds by which its clock is ahead of the host's."""
        self.last = 0
        self.correlation = 0
        self.names: dict[str, Any] = {}
        self.local = threading.local()
        self.buffers = 0

    # --- what happens --------------------------------------------------------------------------

    def called(self) -> int:
        """Note a call of the driver; return its correlation number."""
        self.correlation += 1
        stack = self.regions()
        if stack and 39 in self.enabled and 4 in self.enabled and self.tells_regions:
            self.records.append(struct.pack("<IIQII", 39, 3, stack[-1], self.correlation, 0xDEAD))
        if 4 in self.enabled:
            self.records.append(struct.pack("<IIQQIIII", 4, 307, 1, 2, 3, 4, self.correlation, 0))
        return self.correlation

    def regions(self) -> list[int]:
        if not hasattr(self.local, "regions"):
            self.local.regions = []
        found: list[int] = self.local.regions
        return found

    def worked(self, work: Work) -> None:
        """Record work that was done now."""
        kind = {"launch": 10, "fill": 2}.get(work.kind, 1)
        if kind not in self.enabled:
            return
        start = max(events.now(), self.last)
        self.last = start + work.nanoseconds
        while work.nanoseconds < 1_000_000 and events.now() < self.last:
            pass
        times = struct.pack("<QQ", start + self.ahead, self.last + self.ahead)
        layout, place = self.layout, struct.pack("<III", work.device, 1, work.stream)
        if kind == 10:
            name = self.names.setdefault(work.name, ctypes.create_string_buffer(work.name.encode()))
            body = struct.pack("<BBHII", 1, 2, 40, 0, 0) + times + struct.pack("<Q", 0) + place
            body += struct.pack("<6i", 4, 1, 1, 128, 1, 1) + struct.pack("<4i", 0, 0, 0, 0)
            body += struct.pack("<IqQQQQ", work.correlation, 77, ctypes.addressof(name), 0, 0, 0)
            body += struct.pack("<4BIQ", 0, 0, 0, 0, 0, work.node)
            size, source = layout.kernel, layout.kernel_source
        else:
            direction = {"host to device": 1, "device to host": 2, "device to device": 8}.get(work.name, 0)
            body = struct.pack("<BBBB", direction, 2, 3, 0) + struct.pack("<Q", work.bytes) + times + place
            body += struct.pack("<IIIQQ", work.correlation, 0, 0, 0, work.node)
            size = layout.copy if kind == 1 else layout.fill
            source = layout.copy_source if kind == 1 else layout.fill_source
        record = bytearray(struct.pack("<I", kind) + bytes(self.shift) + body)
        record += random.Random(size).randbytes(max(0, size - len(record)))
        if source:
            record[source : source + 8] = struct.pack("<Q", work.source)
        self.records.append(bytes(record[:size]))

    # --- the library ---------------------------------------------------------------------------

    def _status(self, name: str) -> int:
        return self.refused.get(name, 0)

    def cuptiActivityRegisterCallbacks(self, requested: Callable[..., None], completed: Callable[..., None]) -> int:
        self.requested, self.completed = requested, completed
        return self._status("cuptiActivityRegisterCallbacks")

    def cuptiGetTimestamp(self, out: Any) -> int:
        out._obj.value = events.now() + self.ahead
        return 0

    def cuptiActivityEnable(self, kind: int) -> int:
        status = self._status("cuptiActivityEnable")
        if not status:
            self.enabled.append(kind)
        return status

    def cuptiActivityDisable(self, kind: int) -> int:
        self.enabled.remove(kind)
        return 0

    def cuptiActivityPushExternalCorrelationId(self, kind: Any, region: Any) -> int:
        assert kind.value == 3
        self.regions().append(region.value)
        return 0

    def cuptiActivityPopExternalCorrelationId(self, kind: Any, last: Any) -> int:
        last._obj.value = self.regions().pop()
        return 0

    def cuptiGetGraphNodeId(self, node: Any, out: Any) -> int:
        if self.names_nodes == "order":
            return 999
        out._obj.value = node_number(node.value or 0)
        return 0

    def cuptiActivityGetNumDroppedRecords(self, context: Any, stream: Any, out: Any) -> int:
        out._obj.value = 0
        return 0

    def cuptiActivityFlushAll(self, flag: Any) -> int:
        while self.records:
            buffer, size, count = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
            self.requested(ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(count))
            self.buffers += 1
            address = buffer.value or 0
            filled = 0
            self.sizes: dict[int, int] = {}
            while self.records and filled + len(self.records[0]) <= size.value:
                record = self.records.pop(0)
                ctypes.memmove(address + filled, record, len(record))
                self.sizes[address + filled] = len(record)
                filled += len(record)
            self.known = {**getattr(self, "known", {}), **self.sizes}
            self.completed(None, 0, address, size.value, filled)
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, out: Any) -> int:
        at = out._obj.value
        first, end = buffer.value, buffer.value + valid.value
        following = first if at is None or not first <= at < end else at + self.known[at]
        if following >= end:
            return 12
        out._obj.value = following
        return 0


def node_number(node: int) -> int:
    """The number of a node of a graph; those of instantiated graphs are others."""
    return 5_000 + node


class RecordedDriver(SimulatedDriver):
    """A simulated driver whose GPUs write records."""

    def __init__(self, cupti: SimulatedCupti | None = None, **options: int) -> None:
        super().__init__(**options)
        self.cupti = cupti or SimulatedCupti()
        self.timer = LaunchTimer(ActivityRecorder(self.cupti))
        self.about: tuple[str, str, int, int] | None = None
        """Kind, name, bytes and duration of the work that is submitted."""
        self.node_numbers = 90_000

    def launch_timer(self) -> LaunchTimer:
        return self.timer

    def delay_call(self, nanoseconds: int) -> KernelCall:
        return KernelCall("delay", -1, 1, 1, 0, [nanoseconds], symbol="delay")

    def told(self, call: Any) -> tuple[str, str, int, int]:
        if isinstance(call, CopyCall):
            return "copy", "device to device", call.bytes, COPY_NS
        if call.function == -1:
            return "launch", "delay", 0, call.slots[0]
        return "launch", call.symbol, 0, KERNEL_NS

    def put(self, stream: int, work: Callable[[], None], after: Occurrence | None = None) -> None:
        if self.about is None:
            super().put(stream, work, after)
            return
        (kind, name, bytes, ns), self.about = self.about, None
        done = Work(kind, name, bytes, self.local.context - 1000, stream, self.cupti.called(), nanoseconds=ns)

        def recorded() -> None:
            work()
            self.cupti.worked(done)

        super().put(stream, recorded, after)

    def work(self, call: Any, slots: list[int]) -> Callable[[], None]:
        if isinstance(call, KernelCall) and call.function == -1:
            return lambda: None
        return super().work(call, slots)

    def launch(self, call: Call, stream: int) -> None:
        self.about = self.told(call)
        super().launch(call, stream)

    def to_device(self, target: int, source: int, bytes: int, stream: int) -> None:
        self.about = "copy", "host to device", bytes, COPY_NS
        super().to_device(target, source, bytes, stream)

    def to_host(self, target: int, source: int, bytes: int, stream: int) -> None:
        self.about = "copy", "device to host", bytes, COPY_NS
        super().to_host(target, source, bytes, stream)

    def copy(self, target: int, source: int, bytes: int, stream: int) -> None:
        self.about = "copy", "device to device", bytes, COPY_NS
        super().copy(target, source, bytes, stream)

    def launch_graph(self, executable: int, stream: int) -> None:
        self.called("launch_graph")
        nodes: Sequence[Any] = list(self.things[executable])
        correlation, device = self.cupti.called(), self.local.context - 1000
        first, self.node_numbers = self.node_numbers, self.node_numbers + len(nodes)

        def compute() -> None:
            remaining = dict(enumerate(nodes))
            while remaining:
                ready = [n for n, (_, _, after) in remaining.items() if not remaining.keys() & set(after)]
                n = self.random.choice(ready)
                call, slots, _ = remaining.pop(n)
                self.work(call, slots)()
                kind, name, bytes, ns = self.told(call)
                own = node_number(n) if self.cupti.names_nodes == "node" else first + n
                source = node_number(n) if self.cupti.names_nodes == "source_node" else 0
                if self.cupti.names_nodes == "nothing":
                    own = 1
                self.cupti.worked(Work(kind, name, bytes, device, stream, correlation, own, source, ns))

        self.put(stream, compute)
