"""Records of CUPTI are read as its headers lay them out; refusals name the setting that allows profiling."""

import ctypes

import pytest

from tests.backend.cuda.simulated_cupti import VERSIONS, SimulatedCupti, Work
from tilegrad.backend.cuda import activity
from tilegrad.backend.cuda.activity import (
    SOURCE_NODES,
    ActivityRecorder,
    CopyRecord,
    KernelRecord,
    PeerCopyRecord,
    RegionRecord,
    UnexpectedRecords,
)
from tilegrad.errors import DeviceError
from tilegrad.runtime import events


def test_offsets_are_those_of_the_headers() -> None:
    """The offsets of fields in `cupti_activity.h`, by the rules of C."""
    assert {name: getattr(KernelRecord, name).offset for name in ("start", "stop", "device", "grid", "block")} == {
        "start": 16, "stop": 24, "device": 40, "grid": 52, "block": 64
    }  # fmt: skip
    assert (KernelRecord.correlation.offset, KernelRecord.name.offset, KernelRecord.node.offset) == (92, 104, 144)
    assert (CopyRecord.bytes.offset, CopyRecord.start.offset, CopyRecord.correlation.offset) == (8, 16, 44)
    assert CopyRecord.node.offset == 64
    assert (PeerCopyRecord.correlation.offset, PeerCopyRecord.node.offset) == (60, 72)
    assert (RegionRecord.region.offset, RegionRecord.correlation.offset, ctypes.sizeof(RegionRecord)) == (8, 16, 24)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_every_version(version: str) -> None:
    library = SimulatedCupti(version)
    recorder = ActivityRecorder(library)
    began = events.now()
    with recorder.recording() as found:
        assert sorted(library.enabled) == [1, 2, 10, 22]
        library.worked(Work("launch", "softmax", 0, 3, 7, 41, 12, 13))
        library.worked(Work("copy", "device to host", 4096, 3, 8, 42))
        library.worked(Work("fill", "fill", 100, 3, 8, 43))
    kernel, copy, fill = found
    source = 13 if library.layout.kernel_source else 0
    assert (kernel.kind, kernel.name, kernel.device, kernel.stream) == ("launch", "softmax", 3, 7)
    assert (kernel.correlation, kernel.node, kernel.source_node) == (41, 12, source)
    assert kernel.stop - kernel.start == 5_000
    assert began - 100_000 < kernel.start < copy.start < fill.start < events.now() + 100_000, "on the host's clock"
    assert (copy.kind, copy.name, copy.bytes, copy.correlation) == ("copy", "device to host", 4096, 42)
    assert (fill.kind, fill.name, fill.bytes, fill.source_node) == ("fill", "fill", 100, 0)
    assert not library.enabled


def test_the_node_of_origin_lies_at_the_end_of_the_records_of_the_newest_version() -> None:
    newest = VERSIONS["CUDA 13.5"]
    ends = {activity.CONCURRENT_KERNEL: newest.kernel, activity.MEMCPY: newest.copy, activity.MEMSET: newest.fill}
    assert {kind: end - 8 for kind, end in ends.items()} == SOURCE_NODES


def test_records_that_are_too_short_are_refused() -> None:
    library = SimulatedCupti()
    library.layout = library.layout._replace(kernel=128)
    recorder = ActivityRecorder(library)
    with (
        pytest.raises(UnexpectedRecords, match="a record of kind 10 has 128 bytes, less than 152"),
        recorder.recording(),
    ):
        library.worked(Work("launch", "softmax", 0, 3, 7, 41))
    assert not library.enabled


def test_a_driver_that_does_not_allow_profiling() -> None:
    """The setting is named, as in "the user does not have permission to profile on the target device"."""
    library = SimulatedCupti()
    for status, text in ((35, "NVreg_RestrictProfilingToAdminUsers=0"), (999, "answers 999")):
        library.refused["cuptiActivityRegisterCallbacks"] = status
        with pytest.raises(DeviceError, match=text):
            ActivityRecorder(library)


def test_no_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "candidates", lambda kind: iter(["/nowhere/libcupti.so.13"]))
    assert activity.recorder.__wrapped__() is None  # type: ignore[attr-defined]
