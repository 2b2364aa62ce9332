"""Write a profile in Chrome's trace format: lanes, flows from calls to launches, counters, step ranges.

A trace that would be too large keeps its slowest steps in full and says what it left out; the sums of all kernels are
in it in any case, under `summary`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .files import write_whole
from .timeline import DEVICE_WORK, Timeline, TimelineRecord, is_host

MAX_TRACE_BYTES = 20_000_000
"""Bytes of a trace: more than this opens slowly, or not at all."""
HOST, WORKERS, DEVICES, COMPILER = "host", "workers", "devices", "compiler"
"""The processes of the trace: each holds the lanes of one kind."""
PIDS = {HOST: 1, WORKERS: 2, DEVICES: 3, COMPILER: 4}


def write_trace(
    timeline: Timeline, path: str | os.PathLike[str], metadata: Mapping[str, str] = {},
    max_bytes: int = MAX_TRACE_BYTES, summary: Mapping[str, Any] = {},
) -> None:  # fmt: skip
    """Write a trace file of at most so many bytes."""
    write_whole(path, trace_text(timeline, metadata, max_bytes, summary))


def trace_text(
    timeline: Timeline, metadata: Mapping[str, str] = {}, max_bytes: int = MAX_TRACE_BYTES,
    summary: Mapping[str, Any] = {},
) -> str:  # fmt: skip
    """Format a trace as text."""
    lanes = _Lanes()
    rows = [
        (r, [json.dumps(row) for row in _rows(r, timeline.began, lanes, n)]) for n, r in enumerate(timeline.records)
    ]
    counters = [json.dumps(row) for row in _counters(timeline)]
    head = {
        "displayTimeUnit": "ms",
        "metadata": dict(metadata),
        "summary": summary,
        "leftOut": "",
    }
    room = max_bytes - len(json.dumps(head)) - 4096 - sum(len(c) + 2 for c in counters)
    kept, left_out = _within(rows, room)
    if left_out:
        head["leftOut"] = left_out
    events = [*map(json.dumps, lanes.names()), *counters, *kept]
    return "".join([json.dumps(head)[:-1], ', "traceEvents": [\n', ",\n".join(events), "\n]}\n"])


def _within(rows: Sequence[tuple[TimelineRecord, list[str]]], room: int) -> tuple[list[str], str]:
    """Choose the rows that fit into `room` bytes: all, or those of the slowest steps; say in words what is left out."""
    sizes = [sum(len(text) + 2 for text in texts) for _, texts in rows]
    if sum(sizes) <= room:
        return [text for _, texts in rows for text in texts], ""
    steps = [r for r, _ in rows if r.kind == "step"]
    chosen: list[str] = []
    kept = 0
    for step in sorted(steps, key=lambda r: -r.nanoseconds):
        inside = [n for n, (r, _) in enumerate(rows) if step.start <= r.start and r.stop <= step.stop]
        size = sum(sizes[n] for n in inside)
        if size > room:
            break
        room -= size
        kept += 1
        chosen += [text for n in inside for text in rows[n][1]]
    if not kept:  # no steps, or none that fits: the longest records
        for n in sorted(range(len(rows)), key=lambda n: -rows[n][0].nanoseconds):
            if sizes[n] <= room:
                room -= sizes[n]
                chosen += rows[n][1]
    number = len(rows) - sum('"ph": "X"' in text for text in chosen)
    what = f"the {kept} slowest of {len(steps)} steps are here in full" if kept else "the longest records are here"
    return chosen, f"{number:,} of {len(rows):,} records are left out: {what}; `summary` has the sums of all"


class _Lanes:
    """The numbers of lanes, by process and name."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}

    def of(self, process: str, name: str) -> dict[str, int]:
        """Return the process and the number of a lane."""
        number = self.numbers.setdefault((process, name), len(self.numbers) + 1)
        return {"pid": PIDS[process], "tid": number}

    def names(self) -> Iterator[dict[str, Any]]:
        for process in dict.fromkeys(process for process, _ in self.numbers):
            yield {"name": "process_name", "ph": "M", "pid": PIDS[process], "tid": 0, "args": {"name": process}}
        for (process, name), number in self.numbers.items():
            yield {"name": "thread_name", "ph": "M", "pid": PIDS[process], "tid": number, "args": {"name": name}}


def _rows(r: TimelineRecord, began: int, lanes: _Lanes, number: int) -> Iterator[dict[str, Any]]:
    """Make the events of a record: its own, one for each worker, and the arrows from its call."""
    process = COMPILER if r.kind == "compile" else HOST if is_host(r.device) or r.kind == "run" else DEVICES
    own = lanes.of(process, r.lane)
    yield _span(r.name, r.kind, r.start - began, r.nanoseconds, own, _about(r))
    arrows = [(own, r.start)] if r.kind in DEVICE_WORK and process == DEVICES else []
    for worker, start, stop in r.workers:
        at = lanes.of(WORKERS, f"worker {worker}")
        yield _span(r.name, r.kind, start - began, stop - start, at, {"device": r.device})
        arrows.append((at, start))
    if r.run is not None and arrows:
        call = lanes.of(HOST, r.run.lane)
        for k, (at, start) in enumerate(arrows):
            flow = {"name": "launch", "cat": "flow", "id": number * 1024 + k}
            yield flow | {"ph": "s", "ts": (r.run.start - began) / 1e3} | call
            yield flow | {"ph": "f", "bp": "e", "ts": (start - began) / 1e3} | at


def _about(r: TimelineRecord) -> dict[str, Any]:
    """Details of a record, without those that are not known."""
    source = r.source
    found = {
        "device": r.device,
        "not measured": "" if r.timed else f"{r.device} gave no time",
        "lines": {str(line): round(line.share, 4) for line in source.lines} or r.origin,
        "module": source.module,
        "bytes": r.bytes,
        "operations": source.work.operations if source.work is not None else 0,
        "shapes": [list(shape) for shape in source.shapes],
        "stack": list(r.stack),
    }
    return {name: value for name, value in found.items() if value}


def _span(name: str, kind: str, start: int, length: int, at: Mapping[str, int], about: Any) -> dict[str, Any]:
    return {"name": name, "cat": kind, "ph": "X", "ts": start / 1e3, "dur": length / 1e3, **at, "args": about}


def _counters(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Make counter events of the live memory over time."""
    for sample in timeline.samples:
        yield {
            "name": f"memory of {sample.device}", "ph": "C", "ts": (sample.at - timeline.began) / 1e3,
            "pid": PIDS[HOST], "args": {"bytes": sample.live},
        }  # fmt: skip
