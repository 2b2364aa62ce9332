"""What the system or the driver refuses is said in one line, and profiles go on; libraries are never required."""

import ctypes
import errno
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad.backend.cuda import activity
from tilegrad.backend.cuda.activity import ActivityRecorder, KernelRecord
from tilegrad.errors import DeviceError
from tilegrad.profile import counters, nvtx
from tilegrad.profiler import emit_nvtx, profile, record_function


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOSYS, errno.EINVAL])
def test_refused_counters_are_one_line_and_the_profile_goes_on(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def syscall(self, *_: Any) -> int:
            ctypes.set_errno(number)
            return -1

    monkeypatch.setattr(counters, "_system", Library)
    with profile(with_counters=True) as p:
        (tg.ones(3) + 2).realize()
    last = p.table().splitlines()
    (line,) = [text for text in last if text.startswith("hardware counters: ")]
    assert errno.errorcode[number] in line
    assert ("kernel.perf_event_paranoid" in line) is (number in (errno.EACCES, errno.EPERM))
    assert p.timeline.launches


def test_counters_of_all_threads_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Library:
        def syscall(self, number: int, attribute: bytes, thread: int, cpu: int, group: int, flags: int) -> int:
            kind, size, counter = struct.unpack("IIQ", attribute[:16])
            assert (kind, size, cpu, group, flags) == (0, len(attribute), -1, -1, 8)
            asked.append((counter, thread))
            return 1000 + len(asked)

    monkeypatch.setattr(counters, "_system", Library)
    system = SimpleNamespace(
        listdir=lambda _: ["7", "8"], read=lambda file, _: struct.pack("q", file), close=lambda _: None
    )
    monkeypatch.setattr(counters, "os", system)
    c = counters.HardwareCounters()
    c.start()
    assert asked[:4] == [(0, 7), (0, 8), (1, 7), (1, 8)]
    assert c.stop()["cycles"] == 2003
    assert c.refused == ""


def test_counters_here() -> None:
    """Whatever this machine allows: counts, or one line."""
    with profile(with_counters=True) as p:
        (tg.rand(500, 500) @ tg.rand(500, 500)).realize()
    assert sum(line.startswith("hardware counters: ") for line in p.table().splitlines()) == 1


@checklist(111)
def test_ranges_are_pushed_to_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Library:
        def nvtxRangePushA(self, text: bytes) -> int:
            calls.append(text)
            return 0

        def nvtxRangePop(self) -> int:
            calls.append("pop")
            return 0

    monkeypatch.setattr(nvtx, "library", Library)
    with record_function("before"):
        pass
    with emit_nvtx(), record_function("forward <é>"), nvtx.range("layer {}", 3):
        pass
    with emit_nvtx(enabled=False), record_function("after"):
        pass
    assert calls == ["forward <é>".encode(), b"layer 3", "pop", "pop"]


def test_without_the_library_ranges_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvtx, "library", lambda: None)
    assert nvtx.range_push("a") == nvtx.range_pop() == -1
    nvtx.mark("here")


class Cupti:
    """A library that delivers two records: a kernel inside a graph, and a copy."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.enabled: list[int] = []
        self.name = ctypes.create_string_buffer(b"softmax")

    def cuptiActivityRegisterCallbacks(self, requested: Callable[..., None], completed: Callable[..., None]) -> int:
        self.requested, self.completed = requested, completed
        return self.status

    def cuptiGetTimestamp(self, out: Any) -> int:
        out._obj.value = 1_000
        return 0

    def cuptiActivityEnable(self, kind: int) -> int:
        self.enabled.append(kind)
        return 0

    def cuptiActivityDisable(self, kind: int) -> int:
        self.enabled.remove(kind)
        return 0

    def cuptiActivityGetNumDroppedRecords(self, context: Any, stream: Any, out: Any) -> int:
        out._obj.value = 3
        return 0

    def cuptiActivityFlushAll(self, flag: Any) -> int:
        buffer, size, records = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        self.requested(ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(records))
        assert size.value == activity.BUFFER_BYTES
        assert (buffer.value or 1) % activity.RECORD_ALIGNMENT == 0
        at = buffer.value or 0
        k = KernelRecord.from_address(at)
        k.kind, k.start, k.stop, k.stream, k.node = activity.CONCURRENT_KERNEL, 2_000, 5_000, 7, 12
        k.name = ctypes.cast(self.name, ctypes.c_char_p)
        c = activity.CopyRecord.from_address(at + 256)
        c.kind, c.start, c.stop = activity.MEMCPY, 6_000, 6_500
        self.records = [at, at + 256]
        self.completed(None, 0, at, size.value, 512)
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, out: Any) -> int:
        if not self.records:
            return 13
        out._obj.value = self.records.pop(0)
        return 0


def test_activity_records_of_cupti() -> None:
    library = Cupti()
    recorder = ActivityRecorder(library)
    with recorder.recording() as found:
        assert sorted(library.enabled) == [1, 2, 10]
    kernel, copy = found
    assert (kernel.kind, kernel.name, kernel.stream, kernel.node) == ("launch", "softmax", 7, 12)
    assert kernel.stop - kernel.start == 3_000
    assert (copy.kind, copy.name, copy.start - kernel.start) == ("copy", "copy", 4_000)
    assert recorder.dropped == 3
    assert not library.enabled


def test_a_driver_that_does_not_allow_profiling() -> None:
    """The setting is named, as in "the user does not have permission to profile on the target device"."""
    with pytest.raises(DeviceError, match="NVreg_RestrictProfilingToAdminUsers=0"):
        ActivityRecorder(Cupti(35))
    with pytest.raises(DeviceError, match="answers 999"):
        ActivityRecorder(Cupti(999))


def test_no_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "candidates", lambda kind: iter(["/nowhere/libcupti.so.13"]))
    assert activity.recorder.__wrapped__() is None  # type: ignore[attr-defined]
