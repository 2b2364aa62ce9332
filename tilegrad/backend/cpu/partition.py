"""Partition the launches of a program among threads, into segments of chunks (see `runtime.ll`).

A long launch is split into chunks of instances, enough of them that a thread which loses its core for a while leaves
work for the others. Short launches stay whole, and consecutive ones form one chunk, with no synchronisation between
them. Consecutive long launches without data dependences (branches of a network) share a segment and run concurrently.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from ..places import Span
from .costs import CHUNK_NS, MAX_CHUNKS_PER_THREAD, MIN_SPLIT_NS


class NativeCall(NamedTuple):
    """A launch with sizes bound: `slots` are the kernel's arguments and the three extents of the grid."""

    name: str
    kernel: int
    slots: tuple[int, ...]
    instances: int
    nanoseconds: float
    """Single-thread time, measured or estimated."""
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    bytes: int = 0
    """Total size of its buffers."""
    operations: float = 0.0
    is_prepack: bool = False
    """Whether it packs operands of the next launch; profiles count it as part of that."""

    def is_independent(self, other: NativeCall) -> bool:
        """Whether two launches have no data dependence; a launch with unknown writes depends on everything."""
        if not self.writes or not other.writes:
            return False
        mine, others = (*self.reads, *self.writes), (*other.reads, *other.writes)
        return not any(w.meets(x) for w in self.writes for x in others) and not any(
            w.meets(x) for w in other.writes for x in mine
        )


class InstanceRange(NamedTuple):
    """Instances `begin` to `end` of the launch with this number."""

    call: int
    begin: int
    end: int


Chunk = list[InstanceRange]


class ParallelSegment(NamedTuple):
    """Chunks that may run concurrently, by the lane (the thread that takes them first)."""

    name: str
    lanes: list[list[Chunk]]


def partition(calls: Sequence[NativeCall], threads: int, *, merge: bool = True) -> list[ParallelSegment]:
    """Partition a program into segments.

    >>> short, long = NativeCall("short", 0, (), 4, 100.0), NativeCall("long", 0, (), 6, 60_000.0)
    >>> for segment in partition([short, short, long], 2):
    ...     print(segment.name, segment.lanes)
    short, short [[[InstanceRange(call=0, begin=0, end=4), InstanceRange(call=1, begin=0, end=4)]]]
    long [[[InstanceRange(call=2, begin=0, end=1)], [InstanceRange(call=2, begin=1, end=3)]],
          [[InstanceRange(call=2, begin=3, end=4)], [InstanceRange(call=2, begin=4, end=6)]]]
    """
    segments: list[ParallelSegment] = []
    together: list[NativeCall] = []
    """The long launches of the last segment; empty if it consists of short ones."""
    for number, call in enumerate(calls):
        lanes, long = lanes_of(number, call, threads), is_long(call, threads)
        if merge and long and together and all(call.is_independent(other) for other in together):
            segments[-1] = with_lanes(segments[-1], call.name, lanes, threads, calls)
            together.append(call)
        elif merge and not long and segments and not together:
            segments[-1].lanes[0][0].extend(lanes[0][0])
            segments[-1] = segments[-1]._replace(name=f"{segments[-1].name}, {call.name}")
        else:
            segments.append(ParallelSegment(call.name, lanes))
            together = [call] if long else []
    return segments


def is_long(call: NativeCall, threads: int) -> bool:
    """Whether a launch may be split among threads, rather than joined with its neighbours."""
    return threads > 1 and call.nanoseconds >= MIN_SPLIT_NS


def is_single_threaded(segments: Sequence[ParallelSegment]) -> bool:
    """Whether a program has no work for a second thread."""
    return all(len(segment.lanes) == 1 for segment in segments)


def _chunk_count(call: NativeCall, threads: int) -> int:
    if not is_long(call, threads) or call.instances < 2:
        return 1
    each = min(MAX_CHUNKS_PER_THREAD, max(2, round(call.nanoseconds / threads / CHUNK_NS)))
    return min(call.instances, threads * each)


def lanes_of(number: int, call: NativeCall, threads: int) -> list[list[Chunk]]:
    """Split a launch into equal chunks and give each lane consecutive ones (the first lanes may have one more)."""
    pieces = _chunk_count(call, threads)
    bounds = [call.instances * n // pieces for n in range(pieces + 1)]
    chunks = [[InstanceRange(number, begin, end)] for begin, end in itertools.pairwise(bounds)]
    lanes = min(threads, pieces)
    starts = [-(-pieces * n // lanes) for n in range(lanes + 1)]
    return [chunks[start:stop] for start, stop in itertools.pairwise(starts)]


def with_lanes(
    segment: ParallelSegment, name: str, lanes: list[list[Chunk]], threads: int, calls: Sequence[NativeCall]
) -> ParallelSegment:
    """Add a launch to a segment, each of its lanes where there is least work."""
    merged = [list(lane) for lane in segment.lanes]
    merged += [[] for _ in range(min(len(lanes), threads - len(merged)))]
    for lane in lanes:
        least = min(range(len(merged)), key=lambda n: _nanoseconds(merged[n], calls))
        merged[least] += lane
    return ParallelSegment(f"{segment.name} | {name}", merged)


def _nanoseconds(lane: Sequence[Chunk], calls: Sequence[NativeCall]) -> float:
    return sum(
        calls[part.call].nanoseconds * (part.end - part.begin) / calls[part.call].instances
        for chunk in lane
        for part in chunk
    )
