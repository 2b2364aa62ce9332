"""Partition of launches among threads: every instance once, conflicts in order, independent launches concurrently."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegrad.backend.cpu.costs import MIN_SPLIT_NS
from tilegrad.backend.cpu.partition import NativeCall, ParallelSegment, is_single_threaded, partition
from tilegrad.backend.places import Span

spans = st.builds(
    lambda memory, begin, size: Span(memory, begin, begin + size),
    st.integers(0, 2),
    st.integers(0, 3),
    st.integers(1, 2),
)
some_calls = st.lists(
    st.builds(
        lambda instances, nanoseconds, reads, writes: NativeCall("k", 0, (), instances, nanoseconds, reads, writes),
        st.integers(1, 100),
        st.sampled_from([100.0, MIN_SPLIT_NS, 50_000.0, 1e7]),
        st.lists(spans, max_size=3).map(tuple),
        st.lists(spans, min_size=1, max_size=2).map(tuple),
    ),
    max_size=12,
)


def instances(segment: ParallelSegment) -> list[tuple[int, int]]:
    return [
        (part.call, n)
        for lane in segment.lanes
        for chunk in lane
        for part in chunk
        for n in range(part.begin, part.end)
    ]


@given(some_calls, st.integers(1, 9), st.booleans())
def test_every_instance_runs_once_and_conflicts_keep_their_order(
    calls: list[NativeCall], threads: int, merge: bool
) -> None:
    segments = partition(calls, threads, merge=merge)
    assert sorted(x for segment in segments for x in instances(segment)) == [
        (n, k) for n, call in enumerate(calls) for k in range(call.instances)
    ]
    first: dict[int, int] = {}
    for number, segment in enumerate(segments):
        assert 1 <= len(segment.lanes) <= threads
        assert all(segment.lanes)
        for call, _ in instances(segment):
            assert first.setdefault(call, number) == number
        calls_here = [n for n in first if first[n] == number]
        if len([chunk for lane in segment.lanes for chunk in lane]) > 1:
            assert all(calls[a].is_independent(calls[b]) for a in calls_here for b in calls_here if a != b)
    assert list(first.values()) == sorted(first.values())


def test_branches_share_a_segment() -> None:
    """Two launches of one instance each, which cannot be split: one for each thread."""
    branches = [NativeCall(f"branch{n}", 0, (), 1, 1e6, (Span(0, 0, 8),), (Span(1, 8 * n, 8 * n + 8),)) for n in (0, 1)]
    (both,) = partition(branches, 2)
    assert both.name == "branch0 | branch1"
    assert [len(lane) for lane in both.lanes] == [1, 1]
    assert len(partition(branches, 2, merge=False)) == 2


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_small_programs_run_on_one_thread(threads: int) -> None:
    segments = partition([NativeCall("k", 0, (), 100, MIN_SPLIT_NS - 1)] * 50, threads)
    assert len(segments) == 1
    assert is_single_threaded(segments)
    assert is_single_threaded(partition([], threads))
