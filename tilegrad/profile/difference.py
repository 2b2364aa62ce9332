"""Compare two profiles by kernel and line, with spread, and find what got slower."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ..errors import ArgumentError
from ..serialization.trace_files import read_trace
from .table import duration
from .timeline import Timeline

SLOWER = 1.1
"""Ratio of medians from which on something counts as slower, if the spreads do not overlap."""
MIN_CALL_US = 1.0
"""Microseconds of a call below which a ratio says nothing."""


def summary(timeline: Timeline) -> dict[str, Any]:
    """Summarise a profile: for each kernel and line the number of runs, and quartiles of its microseconds."""
    found: dict[str, list[float]] = {}
    for record in timeline.launches:
        if record.timed:
            place = " ".join(part for part in (record.source.module, record.line) if part)
            key = f"{record.name} ({place})" if place else record.name
            found.setdefault(key, []).append(record.nanoseconds / 1e3)
    steps = [r.nanoseconds / 1e3 for r in timeline.of("step")]
    if steps:
        found["a step"] = steps
    return {"rows": {key: _quartiles(times) for key, times in found.items()}}


def _quartiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4 if len(ordered) > 1 else 0]
    return {"count": len(times), "low": low, "median": median(times), "high": high, "total": sum(times)}


class Change(NamedTuple):
    """A kernel in two profiles: its quartiles before and after, None where it did not run."""

    key: str
    before: Mapping[str, float] | None
    after: Mapping[str, float] | None

    @property
    def ratio(self) -> float | None:
        """The ratio of the medians, after to before."""
        if self.before is None or self.after is None or not self.before["median"]:
            return None
        return self.after["median"] / self.before["median"]

    @property
    def slower(self) -> bool:
        """Whether it got slower by more than its spread."""
        return self._worse(self.before, self.after)

    @property
    def faster(self) -> bool:
        return self._worse(self.after, self.before)

    def _worse(self, one: Mapping[str, float] | None, other: Mapping[str, float] | None) -> bool:
        if one is None or other is None:
            return False
        return (
            other["median"] >= MIN_CALL_US and other["median"] > SLOWER * one["median"] and other["low"] > one["high"]
        )

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            ran = self.before or self.after or {"median": 0.0, "count": 0}
            word = "new" if self.before is None else "gone"
            return f"{word:8} {self.key}: {duration(ran['median'])} x {ran['count']:.0f}"
        word = "slower" if self.slower else "faster" if self.faster else "the same"
        spread = f"{duration(self.after['low'])} to {duration(self.after['high'])}"
        times = f"{duration(self.before['median'])} -> {duration(self.after['median'])} ({spread})"
        return f"{word:8} {self.key}: {times}, x {self.ratio or 0:.2f}"


class Difference(NamedTuple):
    """All changes between two profiles, what got slower first."""

    changes: tuple[Change, ...]

    @property
    def slower(self) -> list[Change]:
        return [c for c in self.changes if c.slower]

    def __str__(self) -> str:
        lines = [str(c) for c in self.changes]
        count = len(self.slower)
        return "\n".join([*lines, f"{count} of {len(lines)} got slower by more than the spread of their times"])


def differences(before: Mapping[str, Any] | str | os.PathLike[str], after: Mapping[str, Any]) -> Difference:
    """Compare two summaries, or files with one."""
    one, other = rows_of(before), rows_of(after)
    changes = [Change(key, one.get(key), other.get(key)) for key in dict.fromkeys([*one, *other])]
    changes.sort(key=lambda c: (not c.slower, -(c.ratio or 0.0)))
    return Difference(tuple(changes))


def rows_of(given: Any) -> Mapping[str, Mapping[str, float]]:
    """Read the rows of a summary, or of a file that has one: a trace of ours, or a summary as JSON."""
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        try:
            found = json.loads(path.read_text()) if path.suffix == ".json" and not _is_trace(path) else read_trace(path)
        except (OSError, ValueError) as problem:
            raise ArgumentError(f"compare: {path} cannot be read: {problem}") from None
        given = found.get("summary", found) if isinstance(found, dict) else found
    rows = given.get("rows") if isinstance(given, Mapping) else None
    numbers = ("count", "low", "median", "high")
    if not isinstance(rows, Mapping) or not all(
        isinstance(row, Mapping) and all(isinstance(row.get(n), int | float) for n in numbers) for row in rows.values()
    ):
        raise ArgumentError(
            "compare: a profile has rows with count, low, median and high: give two traces of export_chrome_trace, or "
            "summaries of profile.summary() as JSON"
        )
    return rows


def _is_trace(path: Path) -> bool:
    with path.open() as file:
        return '"traceEvents"' in file.read(1 << 20) or path.stat().st_size > 1 << 20


def compare_files(before: Path, after: Path) -> int:
    """Print what changed between two files, and return the exit status: 1 if anything got slower, 2 if a file has no
    profile.
    """
    try:
        found = differences(before, {"rows": rows_of(after)})
    except ArgumentError as problem:
        print(f"tilegrad compare: {problem}", file=sys.stderr)
        return 2
    print(found)
    return 1 if found.slower else 0
