"""How the launches of a program are dealt to threads: into segments of chunks (see `runtime.ll`).

A launch that takes long is cut into chunks of instances, enough of them that a thread which loses its core for
a while leaves work for the others. Short launches stay whole, and neighbours that do are one chunk: between
them nobody has to wait for anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WHOLE = 6_000.0
"""Nanoseconds below which a launch is not cut: handing work over and waiting for it takes about 500."""
PIECE = 30_000.0
"""Nanoseconds that a chunk should take."""
MOST_PIECES = 32
"""Chunks for each thread, at most."""


class Call(NamedTuple):
    """A launch with everything settled: `slots` are the kernel's arguments and the three extents of the grid."""

    name: str
    kernel: int
    slots: tuple[int, ...]
    instances: int
    nanoseconds: float
    """What it takes one thread, by measurement or guess."""


class Range(NamedTuple):
    """Instances `begin` to `end` of the launch with this number."""

    call: int
    begin: int
    end: int


Chunk = list[Range]


class Segment(NamedTuple):
    """Chunks that may run at once, by the lane (the thread that takes them first)."""

    name: str
    lanes: list[list[Chunk]]


def deal(calls: Sequence[Call], threads: int, *, merge: bool = True) -> list[Segment]:
    """The segments of a program.

    >>> short, long = Call("short", 0, (), 4, 100.0), Call("long", 0, (), 6, 60_000.0)
    >>> for segment in deal([short, short, long], 2):
    ...     print(segment.name, segment.lanes)
    short, short [[[Range(call=0, begin=0, end=4), Range(call=1, begin=0, end=4)]]]
    long [[[Range(call=2, begin=0, end=1)], [Range(call=2, begin=1, end=3)]],
          [[Range(call=2, begin=3, end=4)], [Range(call=2, begin=4, end=6)]]]
    """
    segments: list[Segment] = []
    mergeable = False
    for number, call in enumerate(calls):
        pieces = _pieces(call, threads)
        if pieces > 1:
            segments.append(Segment(call.name, _lanes(number, call.instances, pieces, threads)))
        elif merge and mergeable:
            last = segments[-1]
            last.lanes[0][0].append(Range(number, 0, call.instances))
            segments[-1] = last._replace(name=f"{last.name}, {call.name}")
        else:
            segments.append(Segment(call.name, [[[Range(number, 0, call.instances)]]]))
        mergeable = pieces == 1
    return segments


def is_alone(segments: Sequence[Segment]) -> bool:
    """Whether nothing in a program is for a second thread."""
    return all(len(segment.lanes) == 1 for segment in segments)


def _pieces(call: Call, threads: int) -> int:
    if threads == 1 or call.nanoseconds < WHOLE or call.instances < 2:
        return 1
    each = min(MOST_PIECES, max(2, round(call.nanoseconds / threads / PIECE)))
    return min(call.instances, threads * each)


def _lanes(number: int, instances: int, pieces: int, threads: int) -> list[list[Chunk]]:
    """Even pieces, the same number of neighbours to each lane (the first lanes may have one more)."""
    bounds = [instances * n // pieces for n in range(pieces + 1)]
    chunks = [[Range(number, begin, end)] for begin, end in zip(bounds, bounds[1:], strict=False)]
    lanes = min(threads, pieces)
    starts = [-(-pieces * n // lanes) for n in range(lanes + 1)]
    return [chunks[start:stop] for start, stop in zip(starts, starts[1:], strict=False)]
