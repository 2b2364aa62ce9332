"""The native form of a program: a table of segments, chunks and tasks in memory (see `runtime.ll`)."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...errors import RuntimeFault
from . import native
from .partition import NativeCall, ParallelSegment, is_single_threaded


class ArgumentPatch(NamedTuple):
    """A place to patch per run: argument number `slot` of launch `call` becomes data[datum] + offset."""

    datum: int
    call: int
    slot: int
    offset: int = 0


class _Draft:
    """Words of a table under construction; some are pointers to others, whose addresses are known at the end."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.pointers: list[int] = []

    def place(self, words: Sequence[int], align: int = 1) -> int:
        """Append words and return their position."""
        self.words.extend([0] * (-len(self.words) % align))
        at = len(self.words)
        self.words.extend(words)
        return at

    def point(self, at: int, target: int) -> None:
        """Make a word a pointer to another."""
        self.words[at] = target
        self.pointers.append(at)

    def finish(self) -> native.AlignedWords:
        memory = native.AlignedWords(len(self.words))
        for at in self.pointers:
            self.words[at] = memory.at(self.words[at])
        try:
            memory.view[:] = array("q", self.words)
        except OverflowError as e:
            raise RuntimeFault(
                "a program is for tensors of more elements than the memory has addresses (2^63): use smaller ones"
            ) from e
        return memory


# Words of a program, a segment and a lane in `runtime.ll`.
SEGMENTS, FIRST_SEGMENT, TEAM, DATA, PATCHES, FIRST_PATCH, SINGLE_THREADED, LONG, TIMES = range(8, 17)
CHUNKS, LANES, FIRST_LANE, SEGMENT = 8, 9, 10, 16
LANE = 8
"""Words of a lane."""


class TableAddress(int):
    """The address of a program, as the `self` of its native function: keeps the memory alive during a call."""

    def __new__(cls, team: native.Team, words: native.AlignedWords, *, looked_at: bool) -> TableAddress:
        handle = super().__new__(cls, words.address)
        handle.team, handle.words, handle.looked_at = team, words, looked_at
        return handle

    def __init__(self, *_: object, **__: object) -> None:
        self.team: native.Team
        self.words: native.AlignedWords
        self.looked_at: bool

    def __del__(self) -> None:
        if self.looked_at and callable(free_when_unused):  # at shutdown module globals are cleared first
            free_when_unused(self.team, self.words)


class TaskTable:
    """A program in native memory. `run(*data)` runs it; data are addresses (or numbers) to patch in.

    `long` programs run without the interpreter's lock. With `timed` the runner records when each segment was done.
    """

    def __init__(
        self,
        team: native.Team,
        calls: Sequence[NativeCall],
        segments: Sequence[ParallelSegment],
        patches: Sequence[ArgumentPatch],
        data: int,
        *,
        long: bool = False,
        timed: bool = False,
    ) -> None:
        self.team = team
        self.segments = segments
        self.is_single_threaded = is_single_threaded(segments)
        draft = _Draft()
        head = draft.place([0] * 24)
        slots = [draft.place(call.slots) for call in calls]
        pointers = draft.place([0] * len(segments))
        for n, segment in enumerate(segments):
            draft.point(pointers + n, _place_segment(draft, segment, calls, slots))
        first_patch = draft.place([0] * (3 * len(patches)))
        for n, patch in enumerate(patches):
            at = first_patch + 3 * n
            draft.words[at], draft.words[at + 2] = patch.datum, patch.offset
            draft.point(at + 1, slots[patch.call] + patch.slot)
        stamps = 1 + len(segments) * (1 + 2 * team.threads)
        self._times_at = draft.place([0] * stamps) if timed else 0
        for field, value in ((SEGMENTS, len(segments)), (TEAM, team.address), (DATA, data), (PATCHES, len(patches))):
            draft.words[head + field] = value
        draft.words[head + SINGLE_THREADED], draft.words[head + LONG] = (
            int(self.is_single_threaded),
            int(long and native.has_threads()),
        )
        draft.point(head + FIRST_SEGMENT, pointers)
        draft.point(head + FIRST_PATCH, first_patch)
        if timed:
            draft.point(head + TIMES, self._times_at)
        self.words = draft.finish()
        self._pointers, self._arguments = draft.pointers, slots
        if not self.is_single_threaded:
            team.start()
        self.run = native.run_function(TableAddress(team, self.words, looked_at=not self.is_single_threaded))

    def with_argument(self, slot: int, value: int) -> Callable[..., None]:
        """Return the function of a copy of a table for one thread, with another argument of its first launch."""
        words, memory = self.words.view.tolist(), native.AlignedWords(len(self.words.view))
        moved = memory.address - self.words.address
        for at in self._pointers:
            words[at] += moved
        words[self._arguments[0] + slot] = value
        memory.view[:] = array("q", words)
        return native.run_function(TableAddress(self.team, memory, looked_at=False))

    @property
    def times(self) -> list[int]:
        """Times at which the last run started and each segment was done, in nanoseconds of the monotonic clock."""
        return self.words.view[self._times_at : self._times_at + 1 + len(self.segments)].tolist()

    @property
    def workers(self) -> list[int]:
        """For each thread and each segment: when it began and ended its first and last chunk of the last run in which
        it took part.
        """
        if self.is_single_threaded:
            return []
        start, count = self._times_at + 1 + len(self.segments), 2 * len(self.segments) * self.team.threads
        return self.words.view[start : start + count].tolist()


def _place_segment(draft: _Draft, segment: ParallelSegment, calls: Sequence[NativeCall], slots: Sequence[int]) -> int:
    chunks = [chunk for lane in segment.lanes for chunk in lane]
    first_chunk = draft.place([0] * (2 * len(chunks)))
    for n, chunk in enumerate(chunks):
        first_task = draft.place([0] * (4 * len(chunk)))
        for k, part in enumerate(chunk):
            at = first_task + 4 * k
            draft.words[at] = calls[part.call].kernel
            draft.point(at + 1, slots[part.call])
            draft.words[at + 2], draft.words[at + 3] = part.begin, part.end
        draft.point(first_chunk + 2 * n, first_task)
        draft.words[first_chunk + 2 * n + 1] = len(chunk)
    start = draft.place([0] * SEGMENT, align=native.LINE_WORDS)
    draft.words[start + CHUNKS], draft.words[start + LANES] = len(chunks), len(segment.lanes)
    before = 0
    for n, lane in enumerate(segment.lanes):
        at = draft.place([0, len(lane)] + [0] * (LANE - 2))
        if n == 0:
            draft.point(start + FIRST_LANE, at)
        draft.point(at + 2, first_chunk + 2 * before)
        before += len(lane)
    return start


_awaiting_release: set[native.AlignedWords] = set()


def free_when_unused(team: native.Team, words: native.AlignedWords) -> None:
    """Free the memory of a program once no worker can be reading it.

    A worker that has lost its core may be in the middle of an old program for milliseconds, so this does not wait: the
    memory is freed when a later program dies and finds all workers idle. Only programs buried before the workers were
    checked may be freed.
    """
    earlier = set(_awaiting_release)
    retire = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(native.code().addresses["retire"])
    if retire(team.address, words.address):
        _awaiting_release.difference_update(earlier)
    else:
        _awaiting_release.add(words)
