"""Traces are right, and no larger than they may be; those of others are checked too."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.checklist import checklist
from tests.profile.training import made
from tilegrad.errors import ArgumentError
from tilegrad.profile.trace import trace_text
from tilegrad.profiler import profile, record_function
from tilegrad.serialization.trace_files import faults, read_trace


@pytest.fixture(scope="module")
def prof() -> Any:
    step, x, y = made(256, 256)
    for _ in range(6):
        step(x, y)
    with profile(profile_memory=True) as found:
        for _ in range(6):
            with record_function('<script>"&;\n'):
                step(x, y)
            found.step()
    return found


@checklist(111, 115)
@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_a_trace(prof: Any, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"trace.{ending}"
    prof.add_metadata("run", "seven")
    prof.export_chrome_trace(path)
    trace = read_trace(path)
    assert not faults(trace)
    assert trace["metadata"] == {"run": "seven"}
    rows = trace["traceEvents"]
    assert {f"ProfilerStep#{n}" for n in range(6)} <= {e["name"] for e in rows}
    launches = [e for e in rows if e["ph"] == "X" and e["cat"] == "launch" and e["pid"] == 1]
    assert len(launches) == len(prof.timeline.launches)
    assert any(e["ph"] == "C" for e in rows)
    assert any("training.py" in line for e in launches for line in e["args"]["lines"])
    lanes = {e["args"]["name"] for e in rows if e["name"] == "thread_name"}
    assert "MainThread" in lanes
    workers = {r[0] for record in prof.timeline.launches for r in record.workers}
    assert {f"worker {n}" for n in workers} <= lanes
    assert sum(e["ph"] == "s" for e in rows) == sum(e["ph"] == "f" for e in rows)


def test_a_trace_is_capped(prof: Any) -> None:
    whole = trace_text(prof.timeline, max_bytes=1 << 30, summary=prof.summary())
    limit = len(whole) // 2
    small = trace_text(prof.timeline, max_bytes=limit, summary=prof.summary())
    trace = json.loads(small)
    assert len(small) <= limit
    assert not faults(trace)
    assert "slowest of 6 steps" in trace["leftOut"]
    assert trace["summary"] == json.loads(whole)["summary"]
    steps = {e["name"] for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#")}
    slowest = max((r for r in prof.events() if r.kind == "step"), key=lambda r: r.nanoseconds)
    assert slowest.name in steps


def test_without_steps_the_longest_records_stay(prof: Any) -> None:
    timeline = prof.timeline._replace(records=[r for r in prof.timeline.records if r.kind != "step"])
    trace = json.loads(trace_text(timeline, max_bytes=len(trace_text(timeline)) // 2))
    assert "the longest records are here" in trace["leftOut"]
    assert not faults(trace)


X: dict[str, Any] = {"name": "a", "ph": "X", "ts": 0, "dur": 4, "pid": 1, "tid": 1}
WRONG: dict[str, tuple[list[Any], str]] = {
    "negative": ([X | {"ts": -1}], "ts is -1"),
    "no time": ([{"name": "a", "ph": "X", "ts": 1}], "dur is None"),
    "text": ([X | {"dur": "4"}], "dur is '4'"),
    "not a number": ([X | {"ts": float("nan")}], "ts is nan"),
    "no name": ([{"ph": "X"}], "no name"),
    "no event": ([7], "no name"),
    "overlap": ([X, X | {"name": "b", "ts": 2}], "b begins within a and ends after it"),
    "arrow": ([{"name": "a", "ph": "s", "ts": 1, "id": 5}], "arrow 5 has only one end"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_trace(name: str) -> None:
    rows, message = WRONG[name]
    assert message in faults({"traceEvents": rows})[0]


def test_lanes_may_overlap() -> None:
    assert not faults({"traceEvents": [X, X | {"ts": 2, "tid": 2}, X | {"ts": 4}, X | {"ts": 1, "dur": 1}]})


FILES: dict[str, bytes] = {
    "empty": b"", "text": b"hello", "cut": b'{"traceEvents": [', "number": b"7", "other": b'{"a": 1}',
    "no list": b'{"traceEvents": 3}', "bytes": b"\xff\x00\x80", "deep": b"[" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_files(name: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / ("trace.json.gz" if packed else "trace.json")
    path.write_bytes(gzip.compress(FILES[name])[: -4 if name == "cut" else None] if packed else FILES[name])
    with pytest.raises(ArgumentError, match="no trace"):
        read_trace(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_trace(tmp_path / "none.json")
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(ArgumentError, match="has 100 MB: traces of at most 64 MB are read"):
        read_trace(large)


def test_a_file_that_unpacks_to_too_much(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(70):
            file.write(bytes(1_000_000))
    assert path.stat().st_size < 1_000_000
    with pytest.raises(ArgumentError, match="64 MB are read"):
        read_trace(path)
