"""Read the GPU's own times of kernels and copies from CUPTI's activity records, where that library is installed.

It comes with toolkits and with the wheel `nvidia-cuda-cupti`; it is opened when somebody asks, and never required. It
times kernels in the hardware, also those inside CUDA graphs, without changing their order. Records are parsed when they
are asked for; while work runs, CUPTI only fills buffers.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

from ...errors import DeviceError
from ...runtime import events
from ...runtime.singletons import once
from .libraries import LibraryKind, candidates

CUPTI = LibraryKind("CUPTI", "libcupti", (13, 12), "cuptiGetVersion", (1, 1), 0, 0)
MEMCPY, MEMSET, DRIVER, RUNTIME, CONCURRENT_KERNEL, PEER_COPY, EXTERNAL_CORRELATION = 1, 2, 4, 5, 10, 22, 39
"""Kinds of activity records."""
DEVICE_KINDS = (CONCURRENT_KERNEL, MEMCPY, MEMSET, PEER_COPY)
REGION_KINDS = (EXTERNAL_CORRELATION, DRIVER, RUNTIME)
"""Kinds that say in which region work was submitted: CUPTI relates regions to calls of the driver, and to those of the
runtime by which libraries launch their kernels.
"""
REGIONS = 3
"""The kind of external correlation that CUPTI leaves to its users."""
RECORD_ALIGNMENT, BUFFER_BYTES = 8, 1 << 20
MAX_UNREAD_BUFFERS = 64
"""Full buffers that are kept until somebody asks; those beyond are parsed at once."""
FORCE_FLUSH = 1
"""Flag that also returns buffers of activities that are not full."""
CLOCK_READS = 5
"""Readings of both clocks, of which the quickest counts."""
CLOCK_SLACK_NS = 1_000_000
"""Nanoseconds by which a record may lie outside of the time in which it was recorded: clocks differ."""
MAX_BLOCK_THREADS = 1024
"""Threads that a block has on every GPU at most: a record with more was not understood."""
COPIES = {1: "host to device", 2: "device to host", 8: "device to device", 9: "host to host", 10: "between devices"}
"""Directions of copies."""
REFUSALS = {
    33: "it does not run in virtual machines here",
    35: "the driver does not allow profiling by users: NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia, "
    "or run as root",
    39: "another profiler uses it",
    40: "the hypervisor does not allow profiling of this virtual GPU",
}
"""Reasons of refusals, by status."""

Requested = CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t))
Completed = CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t, c_size_t)


class KernelRecord(ctypes.Structure):
    """The beginning of `CUpti_ActivityKernel5` to `13`: the versions since CUDA 11 append fields."""

    _fields_ = (
        ("kind", c_uint32), ("caches", c_uint8 * 2), ("registers", ctypes.c_uint16), ("partitions", c_uint32 * 2),
        ("start", c_uint64), ("stop", c_uint64), ("completed", c_uint64),
        ("device", c_uint32), ("context", c_uint32), ("stream", c_uint32),
        ("grid", c_uint32 * 3), ("block", c_uint32 * 3), ("memory", c_uint32 * 4), ("correlation", c_uint32),
        ("grid_number", c_uint64), ("name", c_char_p), ("reserved", c_void_p), ("queued", c_uint64),
        ("submitted", c_uint64), ("launch", c_uint8 * 4), ("shared", c_uint32), ("node", c_uint64),
    )  # fmt: skip


class CopyRecord(ctypes.Structure):
    """The beginning of `CUpti_ActivityMemcpy3` to `7` and of `CUpti_ActivityMemset2` to `5`."""

    _fields_ = (
        ("kind", c_uint32), ("direction", c_uint8), ("about", c_uint8 * 3), ("bytes", c_uint64),
        ("start", c_uint64), ("stop", c_uint64), ("device", c_uint32), ("context", c_uint32), ("stream", c_uint32),
        ("correlation", c_uint32), ("more", c_uint32 * 2), ("reserved", c_void_p), ("node", c_uint64),
    )  # fmt: skip


class PeerCopyRecord(ctypes.Structure):
    """The beginning of `CUpti_ActivityMemcpyPtoP2` to `4`."""

    _fields_ = (
        ("kind", c_uint32), ("direction", c_uint8), ("about", c_uint8 * 3), ("bytes", c_uint64),
        ("start", c_uint64), ("stop", c_uint64), ("device", c_uint32), ("context", c_uint32), ("stream", c_uint32),
        ("ends", c_uint32 * 4), ("correlation", c_uint32), ("reserved", c_void_p), ("node", c_uint64),
    )  # fmt: skip


class RegionRecord(ctypes.Structure):
    """`CUpti_ActivityExternalCorrelation`: the region in which the driver was called."""

    _fields_ = (
        ("kind", c_uint32), ("external_kind", c_uint32), ("region", c_uint64), ("correlation", c_uint32),
        ("reserved", c_uint32),
    )  # fmt: skip


LAYOUTS: dict[int, type[ctypes.Structure]] = {
    CONCURRENT_KERNEL: KernelRecord,
    MEMCPY: CopyRecord,
    MEMSET: CopyRecord,
    PEER_COPY: PeerCopyRecord,
    EXTERNAL_CORRELATION: RegionRecord,
}
SOURCE_NODES = {CONCURRENT_KERNEL: 240, MEMCPY: 104, MEMSET: 96}
"""Offsets of the node that a node of an instantiated graph was made from, in records that are long enough (CUDA 13.5).
"""


class Activity(NamedTuple):
    """Work that a GPU did; times are nanoseconds of the host's monotonic clock."""

    kind: str
    name: str
    device: int
    stream: int
    start: int
    stop: int
    bytes: int = 0
    correlation: int = 0
    """The call of the driver that submitted it."""
    node: int = 0
    """The graph node that it belongs to; 0 outside of graphs."""
    source_node: int = 0
    """The node that this one was instantiated from; 0 where CUPTI does not say."""


class UnexpectedRecords(DeviceError):
    """Records that are not laid out as documented, or contradict themselves."""


class _FilledBuffer(NamedTuple):
    """A buffer that CUPTI has returned."""

    memory: Any
    address: int
    bytes: int


class ActivityRecorder:
    """CUPTI, with the records that it has delivered."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.enabled: list[int] = []
        self.dropped = 0
        self.regions: dict[int, int] = {}
        """The region of each call of the driver, by correlation number."""
        self._buffers: dict[int, Any] = {}
        self._filled: list[_FilledBuffer] = []
        self._found: list[Activity] = []
        self._began = (0, 0)
        """Time and offset of the GPU's clock when recording began."""
        self._process = os.getpid()
        atexit.register(self.disable)
        self._callbacks = Requested(self._requested), Completed(self._completed)
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            text = c_char_p()
            with suppress(AttributeError):
                self.library.cuptiGetResultString(c_int(status), byref(text))
            word = (text.value or b"unknown").decode()
            reason = REFUSALS.get(status, f"{name} answers {status}, {word}")
            raise DeviceError(f"CUPTI gives no times: {reason}")

    # --- buffers -------------------------------------------------------------------------------

    def _requested(self, buffer: Any, size: Any, records: Any) -> None:
        memory = ctypes.create_string_buffer(BUFFER_BYTES + RECORD_ALIGNMENT)
        address = -(-ctypes.addressof(memory) // RECORD_ALIGNMENT) * RECORD_ALIGNMENT
        self._buffers[address] = memory
        buffer[0], size[0], records[0] = address, BUFFER_BYTES, 0

    def _completed(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        lost = c_size_t()
        if not self.library.cuptiActivityGetNumDroppedRecords(c_void_p(context), c_uint32(stream), byref(lost)):
            self.dropped += lost.value
        self._filled.append(_FilledBuffer(self._buffers.pop(buffer, None), buffer, valid))

    def _records(self, filled: _FilledBuffer) -> Iterator[tuple[int, int]]:
        """List the addresses and the sizes of the records of a buffer."""
        address, valid = c_void_p(filled.address), c_size_t(filled.bytes)
        record, before = c_void_p(), 0
        while filled.bytes and not self.library.cuptiActivityGetNextRecord(address, valid, byref(record)):
            if before:
                yield before, (record.value or 0) - before
            before = record.value or 0
        if before:
            yield before, filled.address + filled.bytes - before

    # --- recording -----------------------------------------------------------------------------

    def enable(self, kinds: tuple[int, ...] = DEVICE_KINDS + REGION_KINDS) -> None:
        """Begin to record."""
        self._filled.clear()
        self._found, self.dropped, self.regions = [], 0, {}
        self._began = self._clock()
        try:
            for kind in kinds:
                self._call("cuptiActivityEnable", kind)
                self.enabled.append(kind)
        except DeviceError:
            self.disable()
            raise

    def disable(self) -> None:
        """Record no more."""
        if os.getpid() != self._process:  # a forked child has no GPU
            self.enabled.clear()
        if self.enabled:
            while self.enabled:
                self.library.cuptiActivityDisable(self.enabled.pop())
            self.library.cuptiActivityFlushAll(
                c_uint32(FORCE_FLUSH)
            )  # no buffer is left to return when Python has ended
            self._filled.clear()

    def _clock(self) -> tuple[int, int]:
        """Return the host's time, and what it is ahead of CUPTI's clock."""
        stamp, found = c_uint64(), []
        for _ in range(CLOCK_READS):
            before = events.now()
            self._call("cuptiGetTimestamp", byref(stamp))
            passed = events.now() - before
            found.append((passed, before + passed // 2, stamp.value))
        _, now, ahead = min(found)  # the least disturbed
        return now, now - ahead

    def take(self) -> list[Activity]:
        """Return what was recorded since the last time. All submitted work must be done."""
        self._call("cuptiActivityFlushAll", c_uint32(FORCE_FLUSH))
        self._parse()
        found, self._found = self._found, []
        return found

    def relieve(self) -> None:
        """Parse what has arrived if it takes much memory."""
        if len(self._filled) > MAX_UNREAD_BUFFERS:
            self._parse()

    def _parse(self) -> None:
        """Parse the buffers that have arrived."""
        filled, self._filled = self._filled, []
        began, now = self._began, self._clock()
        parser = _ActivityParser(self.regions, began, now)
        for buffer in filled:
            for address, size in self._records(buffer):
                parser.parse(address, size)
        self._found += parser.found

    def push(self, region: int) -> None:
        """Let the work that this thread submits belong to a region."""
        self._call("cuptiActivityPushExternalCorrelationId", c_int(REGIONS), c_uint64(region))

    def pop(self) -> None:
        """Leave the region."""
        self._call("cuptiActivityPopExternalCorrelationId", c_int(REGIONS), byref(c_uint64()))

    def node_number(self, node: int) -> int:
        """Return CUPTI's number of a graph's node; 0 if it does not say."""
        found = c_uint64()
        try:
            refused = self.library.cuptiGetGraphNodeId(c_void_p(node), byref(found))
        except AttributeError:
            return 0
        return 0 if refused else found.value

    @contextmanager
    def recording(self) -> Iterator[list[Activity]]:
        """Record within the block; all records are there after it."""
        found: list[Activity] = []
        self.enable(DEVICE_KINDS)
        try:
            yield found
            found += self.take()
        finally:
            self.disable()


class _ActivityParser:
    """Reads records, and checks that they are what the documentation says."""

    def __init__(self, regions: dict[int, int], began: tuple[int, int], now: tuple[int, int]) -> None:
        self.found: list[Activity] = []
        self.regions = regions
        self._began, self._offset = began
        self._now = now[0]
        self._drift = (now[1] - began[1]) / max(1, now[0] - began[0])
        """Nanoseconds that the clocks move apart in a nanosecond."""
        self._slack = CLOCK_SLACK_NS + abs(now[1] - began[1])

    def parse(self, address: int, size: int) -> None:
        """Read a record of so many bytes."""
        kind = c_uint32.from_address(address).value
        layout = LAYOUTS.get(kind)
        if layout is None:
            return
        if size < ctypes.sizeof(layout):
            raise UnexpectedRecords(f"a record of kind {kind} has {size} bytes, less than {ctypes.sizeof(layout)}")
        r: Any = layout.from_address(address)
        if kind == EXTERNAL_CORRELATION:
            if r.external_kind == REGIONS:
                self.regions[r.correlation] = r.region
            return
        if not r.stop:
            return  # unfinished, or without time: who waits for it says so
        start = self._host_time(r.start)
        stop = start + r.stop - r.start
        if not self._began - self._slack <= start <= stop <= self._now + self._slack:
            raise UnexpectedRecords(f"work of kind {kind} from {r.start} to {r.stop} lies outside of its recording")
        source = _source_node(kind, address, size)
        what, name, bytes = self._described(kind, r)
        self.found.append(Activity(what, name, r.device, r.stream, start, stop, bytes, r.correlation, r.node, source))

    def _host_time(self, stamp: int) -> int:
        """Convert a time of CUPTI's clock."""
        near = stamp + self._offset
        return near + round(self._drift * (near - self._began))

    def _described(self, kind: int, r: Any) -> tuple[str, str, int]:
        """Return the kind, the name and the bytes of work."""
        if kind == CONCURRENT_KERNEL:
            threads = r.block[0] * r.block[1] * r.block[2]
            if not (0 < threads <= MAX_BLOCK_THREADS and all(r.grid) and r.name):
                raise UnexpectedRecords(f"a kernel has blocks of {threads} threads, or no grid, or no name")
            return "launch", r.name.decode(errors="replace"), 0
        if kind == MEMSET:
            return "fill", "fill", r.bytes
        return "copy", COPIES.get(r.direction, "copy"), r.bytes


def _source_node(kind: int, address: int, size: int) -> int:
    """Read the node that a node of an instantiated graph was made from; 0 if the record does not tell."""
    offset = SOURCE_NODES.get(kind)
    if offset is None or size < offset + ctypes.sizeof(c_uint64):
        return 0
    return c_uint64.from_address(address + offset).value


@once
def recorder() -> ActivityRecorder | None:
    """Open CUPTI; None if it is not installed. DeviceError if it refuses, with the setting that allows it."""
    for path in candidates(CUPTI):
        try:
            return ActivityRecorder(ctypes.CDLL(path))
        except (OSError, AttributeError):
            continue
    return None
