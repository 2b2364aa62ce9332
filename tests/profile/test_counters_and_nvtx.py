"""What the system or the driver refuses is said in one line, and profiles go on; libraries are never required."""

import ctypes
import errno
import struct
from types import SimpleNamespace
from typing import Any

import pytest

import tilegrad as tg
from tests.checklist import checklist
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
