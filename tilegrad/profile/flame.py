"""Write stacks with their times, one a line, in the format of flame-graph tools."""

from __future__ import annotations

import os

from .files import write_whole
from .timeline import Timeline, is_host


def stacks(timeline: Timeline, device: str = "cpu") -> dict[str, int]:
    """Sum the own nanoseconds of each stack, whose names are joined by semicolons, outermost first; a launch is divided
    among the user's lines.
    """
    found: dict[str, int] = {}
    for record in timeline.records:
        if not record.timed or is_host(record.device) is not (device == "cpu"):
            continue
        *above, name = [part.replace(";", ",").replace("\n", " ") for part in record.path]
        left = record.own
        for line in record.source.lines:
            share = min(left, round(line.share * record.own))
            left -= share
            key = ";".join([*above, *([line.module] if line.module else []), str(line), name])
            found[key] = found.get(key, 0) + share
        if left:
            key = ";".join([*above, name])
            found[key] = found.get(key, 0) + left
    return found


def folded(timeline: Timeline, path: str | os.PathLike[str], device: str = "cpu") -> None:
    """Write the stacks with whole microseconds; those of less than half a microsecond are left out."""
    lines = [f"{key} {round(ns / 1e3)}" for key, ns in sorted(stacks(timeline, device).items()) if ns >= 500]
    write_whole(path, "\n".join([*lines, ""]))
