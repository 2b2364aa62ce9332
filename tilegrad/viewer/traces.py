"""Read traces in Chrome's format, ours and those of others, into lanes of spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from ..serialization.trace_files import RESOLUTION_US, read_trace
from .model import Label, Lane, PageCounter, PageTrace

MAX_SPANS = 150_000
"""Spans of a trace that a page has: of more, the longest are kept."""
MAX_POINTS = 4_000
"""Points of a counter that a page has."""


class TraceSpan(NamedTuple):
    """An event with a length; times in microseconds."""

    lane: tuple[Any, Any]
    start: float
    length: float
    label: tuple[str, str, str, str]


def trace_of(path: Path) -> PageTrace:
    """Read a trace from a file."""
    return described(path.name, read_trace(path))


def described(name: str, trace: Mapping[str, Any]) -> PageTrace:
    """Describe a trace. Events that are damaged are counted and left out."""
    names: dict[tuple[Any, Any], str] = {}
    processes: dict[Any, str] = {}
    spans: list[TraceSpan] = []
    counters: dict[str, list[list[float]]] = {}
    damaged = 0
    for event in trace["traceEvents"]:
        try:
            match event["ph"]:
                case "X":
                    spans.append(_span(event))
                case "C":
                    for key, value in event["args"].items():
                        points = counters.setdefault(_joined(str(event["name"]), str(key)), [])
                        points.append([_number(event["ts"]), _number(value)])
                case "M" if event["name"] == "thread_name":
                    names[event.get("pid"), event.get("tid")] = str(event["args"]["name"])
                case "M" if event["name"] == "process_name":
                    processes[event.get("pid")] = str(event["args"]["name"])
        except (KeyError, TypeError, ValueError, AttributeError):
            damaged += 1
    notes = [text for text in (trace.get("leftOut"),) if isinstance(text, str) and text]
    if damaged:
        notes.append(f"{damaged:,} events are damaged and left out")
    if len(spans) > MAX_SPANS:
        notes.append(f"{len(spans) - MAX_SPANS:,} of {len(spans):,} spans are left out: the longest are here")
        spans = sorted(spans, key=lambda s: -s.length)[:MAX_SPANS]
    labels: dict[tuple[str, str, str, str], int] = {}
    lanes = [
        Lane(name=_lane_name(lane, names, processes), spans=list(_nested(own, labels)))
        for lane, own in _by_lane(spans, processes).items()
    ]
    return PageTrace(
        name=name, lanes=lanes, labels=[Label(name=n, kind=k, line=l, module=m) for n, k, l, m in labels],
        counters=[PageCounter(name=n, points=_thinned(sorted(p))) for n, p in counters.items()], note="; ".join(notes),
    )  # fmt: skip


def _span(event: Mapping[str, Any]) -> TraceSpan:
    about = event.get("args")
    about = about if isinstance(about, Mapping) else {}
    label = str(event["name"]), str(event.get("cat", "")), _line(about.get("lines")), str(about.get("module", ""))
    return TraceSpan((event.get("pid"), event.get("tid")), _number(event["ts"]), _number(event["dur"]), label)


def _line(lines: object) -> str:
    """Return the first line of a launch, and the number of further ones."""
    if isinstance(lines, Mapping) and lines:
        return f"{next(iter(lines))}" + (f" +{len(lines) - 1}" if len(lines) > 1 else "")
    return lines if isinstance(lines, str) else ""


def _number(x: object) -> float:
    value = float(x)  # type: ignore[arg-type]
    if isinstance(x, bool) or not isfinite(value) or value < 0:
        raise ValueError(x)
    return value


def _joined(name: str, key: str) -> str:
    return name if key in ("bytes", "value", name) else f"{name}: {key}"


def _by_lane(spans: list[TraceSpan], processes: Mapping[Any, str]) -> dict[tuple[Any, Any], list[TraceSpan]]:
    """Return the spans of each lane, in the order of processes and lanes."""
    found: dict[tuple[Any, Any], list[TraceSpan]] = {}
    for span in spans:
        found.setdefault(span.lane, []).append(span)
    order = {pid: n for n, pid in enumerate(processes)}
    return dict(sorted(found.items(), key=lambda item: (order.get(item[0][0], len(order)), str(item[0]))))


def _lane_name(lane: tuple[Any, Any], names: Mapping[tuple[Any, Any], str], processes: Mapping[Any, str]) -> str:
    process = processes.get(lane[0], f"process {lane[0]}")
    return f"{process}: {names.get(lane, f'lane {lane[1]}')}"


def _nested(spans: list[TraceSpan], labels: dict[tuple[str, str, str, str], int]) -> Iterator[list[float]]:
    """Return the spans of a lane with their depth: a span is within those that are open when it begins."""
    ends: list[float] = []
    for span in sorted(spans, key=lambda s: (s.start, -s.length)):
        while ends and ends[-1] <= span.start + RESOLUTION_US:
            ends.pop()
        number = labels.setdefault(span.label, len(labels))
        yield [round(span.start, 3), round(span.length, 3), len(ends), number]
        ends.append(span.start + span.length)


def _thinned(points: list[list[float]]) -> list[list[float]]:
    """Return the largest value of each stretch of a curve with too many points."""
    size = -(-len(points) // MAX_POINTS)
    if size <= 1:
        return points
    return [max(points[n : n + size], key=lambda p: p[1]) for n in range(0, len(points), size)]
