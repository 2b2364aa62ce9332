"""Read the GPU's own times of kernels and copies from CUPTI's activity records, where that library is installed.

It comes with toolkits and with the wheel `nvidia-cuda-cupti`; it is opened when somebody asks, and never required. It
times kernels in the hardware, also those inside CUDA graphs, without changing their order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

from ...errors import DeviceError
from ...runtime import events
from ...runtime.singletons import once
from .libraries import LibraryKind, candidates

CUPTI = LibraryKind("CUPTI", "libcupti", (13, 12), "cuptiGetVersion", (1, 1), 0, 0)
MEMCPY, MEMSET, CONCURRENT_KERNEL = 1, 2, 10
"""Kinds of activity records."""
RECORD_ALIGNMENT, BUFFER_BYTES = 8, 1 << 20
FORCE_FLUSH = 1
"""Flag that also returns buffers of activities that are not full."""
REFUSALS = {
    11: "another profiler uses it",
    35: "the driver does not allow profiling by users: NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia, "
    "or run as root",
    39: "it needs another driver",
}
"""Reasons of refusals, by status."""

Requested = CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t))
Completed = CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t, c_size_t)


class KernelRecord(ctypes.Structure):
    """The beginning of `CUpti_ActivityKernel*`, which all versions since CUDA 11 share."""

    _fields_ = (
        ("kind", c_uint32), ("caches", c_uint8 * 2), ("registers", ctypes.c_uint16), ("partitions", c_uint32 * 2),
        ("start", c_uint64), ("stop", c_uint64), ("completed", c_uint64),
        ("device", c_uint32), ("context", c_uint32), ("stream", c_uint32),
        ("grid", c_uint32 * 3), ("block", c_uint32 * 3), ("memory", c_uint32 * 4), ("correlation", c_uint32),
        ("grid_number", c_uint64), ("name", c_char_p), ("reserved", c_void_p), ("queued", c_uint64),
        ("submitted", c_uint64), ("launch", c_uint8 * 4), ("shared", c_uint32), ("node", c_uint64),
    )  # fmt: skip


class CopyRecord(ctypes.Structure):
    """The beginning of `CUpti_ActivityMemcpy*` and of `CUpti_ActivityMemset*`."""

    _fields_ = (
        ("kind", c_uint32), ("about", c_uint32), ("bytes", c_uint64), ("start", c_uint64), ("stop", c_uint64),
        ("device", c_uint32), ("context", c_uint32), ("stream", c_uint32),
    )  # fmt: skip


class Activity(NamedTuple):
    """Work that a GPU did; times are nanoseconds of the host's monotonic clock."""

    kind: str
    name: str
    device: int
    stream: int
    start: int
    stop: int
    node: int = 0
    """The graph node that it belongs to; 0 outside of graphs."""


class ActivityRecorder:
    """CUPTI, with the records that it has delivered."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.found: list[Activity] = []
        self.dropped = 0
        self._buffers: dict[int, Any] = {}
        self._offset = 0
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
            raise DeviceError(f"CUPTI gives no times: {reason}. Profiles go on with events")

    def _requested(self, buffer: Any, size: Any, records: Any) -> None:
        memory = ctypes.create_string_buffer(BUFFER_BYTES + RECORD_ALIGNMENT)
        address = -(-ctypes.addressof(memory) // RECORD_ALIGNMENT) * RECORD_ALIGNMENT
        self._buffers[address] = memory
        buffer[0], size[0], records[0] = address, BUFFER_BYTES, 0

    def _completed(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        record = c_void_p()
        while valid and not self.library.cuptiActivityGetNextRecord(c_void_p(buffer), c_size_t(valid), byref(record)):
            self._note(record.value or 0)
        lost = c_size_t()
        if not self.library.cuptiActivityGetNumDroppedRecords(c_void_p(context), c_uint32(stream), byref(lost)):
            self.dropped += lost.value
        self._buffers.pop(buffer, None)

    def _note(self, address: int) -> None:
        kind = c_uint32.from_address(address).value
        if kind == CONCURRENT_KERNEL:
            k = KernelRecord.from_address(address)
            name, node = (k.name or b"?").decode(errors="replace"), k.node
            self.found.append(self._activity("launch", name, k, node))
        elif kind in (MEMCPY, MEMSET):
            self.found.append(
                self._activity("copy", "copy" if kind == MEMCPY else "fill", CopyRecord.from_address(address))
            )

    def _activity(self, kind: str, name: str, r: Any, node: int = 0) -> Activity:
        return Activity(kind, name, r.device, r.stream, r.start + self._offset, r.stop + self._offset, node)

    @contextmanager
    def recording(self) -> Iterator[list[Activity]]:
        """Record within the block; all records are there after it."""
        self.found, self.dropped = [], 0
        stamp = c_uint64()
        before = events.now()
        self._call("cuptiGetTimestamp", byref(stamp))
        self._offset = (before + events.now()) // 2 - stamp.value
        kinds = (CONCURRENT_KERNEL, MEMCPY, MEMSET)
        for kind in kinds:
            self._call("cuptiActivityEnable", kind)
        try:
            yield self.found
        finally:
            self._call("cuptiActivityFlushAll", c_uint32(FORCE_FLUSH))
            for kind in kinds:
                self._call("cuptiActivityDisable", kind)


@once
def recorder() -> ActivityRecorder | None:
    """Open CUPTI; None if it is not installed. DeviceError if it refuses, with the setting that allows it."""
    for path in candidates(CUPTI):
        try:
            return ActivityRecorder(ctypes.CDLL(path))
        except (OSError, AttributeError):
            continue
    return None
