"""Run independent branches of a program side by side, where the measured times of its launches say that it pays.

A launch with many instances fills all threads by itself. One with few, or a chain of short ones, does not: then a chain
of another branch may run on the other threads meanwhile. Launches are put into segments (see `runtime.ll`) of *strands*
that do not depend on each other: a strand is a long launch, whose instances are partitioned, or a chain of short ones,
which one thread runs in order. In sequence, temporaries of a branch take the memory of the branch before it; for
concurrent branches they are placed anew, by segments.

Which thread runs an instance, and when, changes no result: these are bit-equal to the sequential ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...ir.program import Program
from ...ir.size import known
from ...runtime.arena import Lifetime, plan_arena
from ..dependences import dependences
from ..places import Places, Span
from . import native
from .bind_sizes import BoundProgram, bind_sizes
from .costs import RELEASE_LOCK_NS, STAMP_NS
from .partition import InstanceRange, NativeCall, ParallelSegment, is_long, lanes_of, partition, with_lanes
from .pool import ALIGNMENT
from .task_table import TaskTable

if TYPE_CHECKING:
    from .executable import BoundExecutable

MIN_BRANCH_CALLS, MAX_BRANCH_CALLS = 3, 1000
"""Launches from which on a program may have branches (two and one that joins them), and up to which they are sought."""
MIN_BRANCH_GAIN, MIN_BRANCH_GAIN_NS = 0.1, 5_000.0
"""Share of a program's time, and nanoseconds, that concurrent branches must save: the estimate ignores caches."""
MIN_STEP_GAIN_NS = 1_000.0
"""Nanoseconds that a launch must save to run beside earlier launches rather than after the last."""
MAX_SEGMENTS_BACK = 64
"""Segments that are looked at for room for a launch."""
MIN_CALL_NS = 50.0
"""Nanoseconds of the shortest launch, whose measurement is mostly the time stamp."""
SEGMENT_NS, WAKE_NS = 500.0, 5_000.0
"""Nanoseconds to wait for all threads at the end of a segment, and to wake them when a program begins."""
MAX_ARENA_GROWTH, MIN_ARENA_BYTES = 2.0, 1 << 20
"""Multiple of the memory of temporaries, and bytes in any case, up to which concurrent branches may take more."""


def branch_table(binding: BoundExecutable, calls: Sequence[NativeCall], branches: str) -> TaskTable | None:
    """Partition a bound program into segments with concurrent branches; None: they do not pay, or are not wanted.

    `calls` have the times; `branches` is the setting.
    """
    bound, team, program = binding.bound, native.team(), binding.program
    if team.threads == 1 or not _is_known(bound, calls):
        return None

    def rebound(program: Program) -> tuple[BoundProgram, list[NativeCall]]:
        found = bind_sizes(program, binding.code.__getitem__, native.code().addresses, binding.sizes)
        return found, [c._replace(nanoseconds=k.nanoseconds) for c, k in zip(found.calls, calls, strict=True)]

    calls = [c._replace(nanoseconds=max(c.nanoseconds - STAMP_NS, MIN_CALL_NS)) for c in calls]
    sequential = partition(calls, team.threads)
    least = sum([c.nanoseconds for c in calls]) / team.threads
    if branches == "measured" and not _pays(_estimate(sequential, calls, team.threads) - least, least):
        return None
    temporaries = [b.name for b in program.buffers if b.offset is not None and not b.alias and b.role == "temporary"]
    _, separate_calls = rebound(separate(program, temporaries, binding.sizes))
    plan = plan_branches(separate_calls, sequential, team.threads)
    if branches == "measured" and not _pays(plan.saved, plan.nanoseconds):
        return None
    spans = list(map(Places(separate(program, temporaries, binding.sizes), binding.sizes, ALIGNMENT).span, temporaries))
    placed, calls = rebound(place_by_segments(program, temporaries, spans, separate_calls, plan.segments))
    if placed.data != bound.data:
        return None  # no temporary has any bytes
    if branches == "measured" and placed.arena > max(MIN_ARENA_BYTES, MAX_ARENA_GROWTH * bound.arena):
        return None
    assert is_ordered(plan.segments, separate_calls)
    assert not conflicts(plan.segments, calls)
    binding.device.grow_arena(placed.arena)
    long = sum([call.nanoseconds for call in calls]) > RELEASE_LOCK_NS
    return TaskTable(team, calls, plan.segments, placed.patches, placed.data, long=long)


def _is_known(bound: BoundProgram, calls: Sequence[NativeCall]) -> bool:
    """Whether a program has neither too few nor too many launches, and it is known what they read and write."""
    if not MIN_BRANCH_CALLS <= len(calls) <= MAX_BRANCH_CALLS:
        return False
    return not bound.external_calls and all(call.writes for call in calls)


def _pays(saved: float, nanoseconds: float) -> bool:
    return saved >= max(MIN_BRANCH_GAIN_NS, MIN_BRANCH_GAIN * nanoseconds)


class _Strand:
    """Launches that run one after another, their time, and that of the longest part which one thread runs."""

    def __init__(self, call: int, nanoseconds: float, longest: float, is_long: bool) -> None:
        self.calls = [call]
        self.nanoseconds, self.longest, self.is_long = nanoseconds, longest, is_long


class _Segment:
    """Strands that may run concurrently."""

    def __init__(self) -> None:
        self.strands: list[_Strand] = []

    def cost(self, threads: int, extra: float = 0.0, longest: float = 0.0) -> float:
        """Estimate the nanoseconds of the segment, with so much more work and such a longest part."""
        total = sum([s.nanoseconds for s in self.strands]) + extra
        return max([total / threads, longest, *[s.longest for s in self.strands]])


class BranchPlan(NamedTuple):
    """Segments with concurrent branches, and the estimated nanoseconds that they take and save."""

    segments: list[ParallelSegment]
    nanoseconds: float
    saved: float


def plan_branches(calls: Sequence[NativeCall], sequential: Sequence[ParallelSegment], threads: int) -> BranchPlan:
    """Find segments of concurrent branches; `sequential` is the partition to compare them with.

    >>> def call(name, reads, write):
    ...     read = tuple([Span(1, n, n + 1) for n in reads])
    ...     return NativeCall(name, 0, (), 1, 5e3, read, (Span(1, write, write + 1),))
    >>> chains = [call("a0", [], 0), call("a1", [0], 1), call("b0", [], 2), call("b1", [2], 3), call("sum", [1, 3], 4)]
    >>> [segment.name for segment in plan_branches(chains, [], 2).segments]
    ['a0, a1 | b0, b1', 'sum']
    """
    segments: list[_Segment] = []
    home: list[tuple[int, _Strand]] = []
    for number, needed in enumerate(dependences([(call.reads, call.writes) for call in calls])):
        home.append(_place(number, calls[number], [home[n] for n in needed], segments, threads))
    made = [_parallel(segment, calls, threads) for segment in segments]
    nanoseconds = _estimate(made, calls, threads)
    return BranchPlan(made, nanoseconds, _estimate(sequential, calls, threads) - nanoseconds)


def _place(
    number: int, call: NativeCall, needed: Sequence[tuple[int, _Strand]], segments: list[_Segment], threads: int
) -> tuple[int, _Strand]:
    """Put a launch after the last segment, or where it costs less than there, in the earliest such segment."""
    longest = max([_nanoseconds(lane[0], [call], number) for lane in lanes_of(number, call, threads)])
    own = _Strand(number, call.nanoseconds, longest, is_long(call, threads))
    earliest = max([at for at, _ in needed], default=-1)
    followed = {strand for at, strand in needed if at == earliest}
    needs_own_strand = own.is_long or len(followed) > 1 or any(strand.is_long for strand in followed)
    best, least, chosen = len(segments), longest + SEGMENT_NS - MIN_STEP_GAIN_NS, None
    for at in range(len(segments) - 1, max(-1, earliest - 1, len(segments) - 1 - MAX_SEGMENTS_BACK), -1):
        chain = next(iter(followed)) if at == earliest else None
        if chain and needs_own_strand:
            break
        segment = segments[at]
        then = longest + (chain.longest if chain else 0.0)
        added = segment.cost(threads, call.nanoseconds, then) - segment.cost(threads)
        if added <= least or (chain and at == len(segments) - 1):
            best, least, chosen = at, added, chain
    if best == len(segments):
        segments.append(_Segment())
    return best, _appended(own, segments[best], chosen)


def _appended(own: _Strand, segment: _Segment, chain: _Strand | None) -> _Strand:
    """Put a launch behind a chain of a segment, or beside its strands; return where it is."""
    if chain is None:
        segment.strands.append(own)
        return own
    chain.calls += own.calls
    chain.nanoseconds += own.nanoseconds
    chain.longest += own.longest
    return chain


def _parallel(segment: _Segment, calls: Sequence[NativeCall], threads: int) -> ParallelSegment:
    """Deal the strands of a segment to threads, the longest first."""
    made = ParallelSegment("", [])
    for strand in sorted(segment.strands, key=lambda s: -s.longest):
        if len(strand.calls) == 1:
            lanes = lanes_of(strand.calls[0], calls[strand.calls[0]], threads)
        else:
            lanes = [[[InstanceRange(n, 0, calls[n].instances) for n in strand.calls]]]
        made = with_lanes(made, "", lanes, threads, calls)
    name = " | ".join([", ".join([calls[n].name for n in strand.calls]) for strand in segment.strands])
    return ParallelSegment(name, made.lanes)


def _nanoseconds(chunk: Sequence[InstanceRange], calls: Sequence[NativeCall], first: int = 0) -> float:
    return sum(
        [
            calls[part.call - first].nanoseconds * (part.end - part.begin) / calls[part.call - first].instances
            for part in chunk
        ]
    )


def _estimate(segments: Sequence[ParallelSegment], calls: Sequence[NativeCall], threads: int) -> float:
    """Estimate the nanoseconds of a program on all threads; on one, nobody is woken and nothing is awaited."""
    total = 0.0
    for segment in segments:
        chunks = [_nanoseconds(chunk, calls) for lane in segment.lanes for chunk in lane]
        total += max(sum(chunks) / min(threads, len(segment.lanes)), *chunks, 0.0)
    if all(len(segment.lanes) == 1 for segment in segments):
        return total
    return total + WAKE_NS + SEGMENT_NS * len(segments)


def separate(program: Program, temporaries: Sequence[str], sizes: Mapping[str, int]) -> Program:
    """Give each temporary memory of its own."""
    offsets: dict[str, int] = {}
    arena = 0
    for name in temporaries:
        offsets[name] = arena
        arena += -(-known(program.buffer(name).type.bytes, sizes) // ALIGNMENT) * ALIGNMENT
    return _with_offsets(program, offsets, arena)


def place_by_segments(
    program: Program,
    temporaries: Sequence[str],
    spans: Sequence[Span],
    calls: Sequence[NativeCall],
    segments: Sequence[ParallelSegment],
) -> Program:
    """Place temporaries so that two share memory only if all users of one come before all users of the other.

    `spans` are those of the temporaries in the calls. The strands of a segment count as one step.
    """
    step, steps = [0] * len(calls), 0
    for segment in segments:
        chunks = [chunk for lane in segment.lanes for chunk in lane]
        in_order = len(chunks) == 1
        for part in (part for chunk in chunks for part in chunk):
            step[part.call] = steps
            steps += in_order
        steps += not in_order
    name_of = {(s.datum, s.begin): name for name, s in zip(temporaries, spans, strict=True) if s.begin < s.end}
    used: dict[str, list[int]] = {}
    for n, call in enumerate(calls):
        for s in (*call.reads, *call.writes):
            if (s.datum, s.begin) in name_of:
                used.setdefault(name_of[s.datum, s.begin], []).append(step[n])
    size = {name: s.end - s.begin for name, s in zip(temporaries, spans, strict=True)}
    offsets, arena = plan_arena([Lifetime(name, size[name], min(at), max(at)) for name, at in used.items()])
    return _with_offsets(program, {name: offsets.get(name, 0) for name in temporaries}, arena)  # type: ignore[arg-type, misc]


def _with_offsets(program: Program, offsets: dict[str, int], arena: int) -> Program:
    buffers = tuple([b.replaced(offset=offsets[b.name]) if b.name in offsets else b for b in program.buffers])
    return program.replaced(buffers=buffers, arena=arena)  # type: ignore[no-any-return]


def is_ordered(segments: Sequence[ParallelSegment], calls: Sequence[NativeCall]) -> bool:
    """Whether every launch runs after those that it depends on."""
    at = {
        part.call: (n, lane, k, p)
        for n, segment in enumerate(segments)
        for lane, chunks in enumerate(segment.lanes)
        for k, chunk in enumerate(chunks)
        for p, part in enumerate(chunk)
    }
    for number, needed in enumerate(dependences([(call.reads, call.writes) for call in calls])):
        for other in needed:
            before, after = at[other], at[number]
            in_one_chunk = before[:3] == after[:3] and before[3] < after[3]
            if before[0] >= after[0] and not in_one_chunk:
                return False
    return True


def conflicts(segments: Sequence[ParallelSegment], calls: Sequence[NativeCall]) -> bool:
    """Whether launches that may run at the same time share memory that one of them writes."""
    for segment in segments:
        chunk_of = {
            part.call: (lane, k)
            for lane, chunks in enumerate(segment.lanes)
            for k, c in enumerate(chunks)
            for part in c
        }
        for a, b in itertools.combinations(chunk_of, 2):
            if chunk_of[a] != chunk_of[b] and not calls[a].is_independent(calls[b]):
                return True
    return False
