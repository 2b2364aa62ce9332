"""Check files in Chrome's trace format, ours and those of others."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError

MAX_READ_BYTES = 64_000_000
"""Bytes of a trace that is read."""
HINT = "Record fewer steps, with tilegrad.profiler.schedule"
RESOLUTION_US = 0.002
"""Microseconds by which parts may stick out: times are rounded to nanoseconds."""


def read_trace(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a trace; an error in words for what is damaged, too large, or something else."""
    file = Path(path)
    try:
        found = json.loads(read_within(file, MAX_READ_BYTES, "traces", HINT))
    except (ValueError, RecursionError) as problem:
        raise ArgumentError(f"{file.name} is no trace, or it is damaged: {problem}") from None
    if isinstance(found, list):
        found = {"traceEvents": found}
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise ArgumentError(f"{file.name} is no trace: it has no list `traceEvents`")
    return found


def read_within(file: Path, most: int, what: str, hint: str) -> bytes:
    """Read a file, unpacked if its name ends in `.gz`; an error in words if it has more bytes, or cannot be read."""
    try:
        size = file.stat().st_size
        if size <= most:
            with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as source:
                data = source.read(most + 1)
            if len(data) <= most:
                return data
            size = len(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise ArgumentError(f"{file.name} is no trace, or it is damaged: {problem}") from None
    except OSError as problem:
        raise ArgumentError(f"{file} cannot be read: {problem}") from None
    raise ArgumentError(f"{file.name} has {size / 1e6:,.0f} MB: {what} of at most {most / 1e6:.0f} MB are read. {hint}")


def faults(trace: dict[str, Any]) -> list[str]:
    """List what is wrong with a trace, in words; empty if it is valid."""
    events = trace["traceEvents"]
    found = [fault for n, event in enumerate(events) for fault in _of_event(n, event)]
    if found:
        return found
    spans: dict[tuple[Any, Any], list[tuple[float, float, str]]] = {}
    for event in events:
        if event["ph"] == "X":
            lane = event.get("pid"), event.get("tid")
            spans.setdefault(lane, []).append((event["ts"], event["ts"] + event["dur"], event["name"]))
    for lane, inside in spans.items():
        found += _of_nesting(lane, inside)
    return [*found, *_of_flows(events)]


def _of_event(number: int, event: Any) -> Iterator[str]:
    if not isinstance(event, dict) or not isinstance(event.get("name"), str) or "ph" not in event:
        yield f"event {number} has no name or no phase"
        return
    times = [key for key in ("ts", "dur") if key in event]
    wanted = {"X": ["ts", "dur"], "C": ["ts"], "s": ["ts"], "f": ["ts"]}.get(event["ph"], [])
    for key in {*times, *wanted}:
        value = event.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
            yield f"event {number} ({event['name']}): {key} is {value!r}"


def _of_nesting(lane: Any, spans: Sequence[tuple[float, float, str]]) -> Iterator[str]:
    """Check that the spans of a lane are nested or disjoint."""
    open_: list[tuple[float, float, str]] = []
    for start, stop, name in sorted(spans, key=lambda s: (s[0], -s[1])):
        while open_ and open_[-1][1] <= start + RESOLUTION_US:
            open_.pop()
        if open_ and stop > open_[-1][1] + RESOLUTION_US:
            yield f"lane {lane}: {name} begins within {open_[-1][2]} and ends after it"
        open_.append((start, stop, name))


def _of_flows(events: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Check that each arrow has a beginning and an end."""
    ends: dict[Any, set[str]] = {}
    for event in events:
        if event["ph"] in ("s", "f"):
            ends.setdefault(event.get("id"), set()).add(event["ph"])
    for name, found in ends.items():
        if found != {"s", "f"}:
            yield f"arrow {name} has only one end"
