"""Detect data races: track the last threads that accessed each element, with no barrier in between."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .builtin import WARP
from .lanes import WARP_BARRIER_BITS

NO_WRITER, UNINITIALISED = -1, -2
"""Writer entries for elements that existed before the launch, and for uninitialised ones."""
WORDS = {"load": "reads", "store": "writes", "atomic": "changes (atomically)"}


class LastUsers:
    """The last user of each element: thread, time, instruction."""

    def __init__(self, size: int, nobody: int = NO_WRITER) -> None:
        self.thread = np.full(size, nobody, np.int32)
        self.time = np.zeros(size, np.int32)
        self.pc = np.zeros(size, np.int16)

    def note(self, places: Any, access: GroupAccess) -> None:
        self.thread[places] = access.thread
        self.time[places] = access.time
        self.pc[places] = access.pc


class GroupAccess(NamedTuple):
    """One instruction executed by a group of threads."""

    thread: np.ndarray
    time: np.ndarray
    pc: int
    threads: int
    """Threads per block."""

    def part(self, mask: np.ndarray) -> GroupAccess:
        return GroupAccess(self.thread[mask], self.time[mask], self.pc, self.threads)


class DataRace(NamedTuple):
    """Two accesses without a barrier between them; `lane` is the position in the group."""

    lane: int
    element: int
    other: int
    """The thread of the other access."""
    other_pc: int
    how: str
    other_how: str


def unordered_accesses(users: LastUsers, places: np.ndarray, access: GroupAccess) -> np.ndarray | None:
    """Find where another thread accessed an element since the last barrier; None if nowhere."""
    other = users.thread[places]
    found = np.flatnonzero((other >= 0) & (other != access.thread))
    if not len(found):
        return None
    n = access.threads
    other, thread = other[found], access.thread[found]
    then, now = users.time[places[found]], access.time[found]
    same_block = other // n == thread // n
    same_warp = other % n // WARP == thread % n // WARP
    at_once = np.where(same_warp, then == now, then >> WARP_BARRIER_BITS == now >> WARP_BARRIER_BITS)
    wrong = found[~same_block | at_once]
    if not len(wrong):
        return None
    mask = np.zeros(len(places), bool)
    mask[wrong] = True
    return mask


class Shadow:
    """Last users of each element of an array that the kernel writes."""

    follows = False
    """Whether synchronisation by atomic operations is tracked (`happens_before.py`)."""

    def __init__(self, size: int, unwritten: bool) -> None:
        self.size = size
        self.writers = LastUsers(size, UNINITIALISED if unwritten else NO_WRITER)
        self._readers: tuple[LastUsers, LastUsers] | None = None
        self._changers: tuple[LastUsers, LastUsers] | None = None

    @property
    def readers(self) -> tuple[LastUsers, LastUsers]:
        """The last two distinct readers of each element, so that one of them is not the writer."""
        self._readers = self._readers or (LastUsers(self.size), LastUsers(self.size))
        return self._readers

    @property
    def changers(self) -> tuple[LastUsers, LastUsers]:
        self._changers = self._changers or (LastUsers(self.size), LastUsers(self.size))
        return self._changers

    def never_written(self, places: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.writers.thread[places] == UNINITIALISED
        return found

    def load(self, places: np.ndarray, access: GroupAccess) -> DataRace | None:
        race = self._race("load", places, access, self._earlier(written=True, changed=True))
        _note_two(self.readers, places, access)
        return race

    def change(self, places: np.ndarray, access: GroupAccess) -> DataRace | None:
        """Record an atomic operation; atomics do not race with each other."""
        race = self._race("atomic", places, access, self._earlier(written=True, read=True))
        _note_two(self.changers, places, access)
        return race

    def store(self, places: np.ndarray, access: GroupAccess, differs: np.ndarray) -> DataRace | None:
        """Record a store; `differs` masks where it changes the element, as storing an equal value is no race."""
        race = self._race(
            "store",
            places,
            access,
            self._earlier(written=True, read=True, changed=True),
            differs if differs.any() else None,
        )
        self.writers.note(places, access)
        return race

    def collided(
        self, places: np.ndarray, access: GroupAccess, stored: np.ndarray, values: np.ndarray
    ) -> DataRace | None:
        """Find threads of one group that store different values to one element."""
        winner = self.writers.thread[places]
        lost = np.flatnonzero((winner != access.thread) & differs_from(stored, values))
        if not len(lost):
            return None
        n = int(lost[0])
        return DataRace(n, int(places[n]), int(winner[n]), access.pc, "store", "store")

    def _earlier(self, written: bool = False, read: bool = False, changed: bool = False) -> list[tuple[LastUsers, str]]:
        found = [(self.writers, "store")] if written else []
        if read and self._readers:
            found += [(users, "load") for users in self._readers]
        if changed and self._changers:
            found += [(users, "atomic") for users in self._changers]
        return found

    def _race(
        self, how: str, places: np.ndarray, access: GroupAccess, earlier: list[tuple[LastUsers, str]], only: Any = True
    ) -> DataRace | None:
        if only is None:
            return None
        for users, other_how in earlier:
            mask = unordered_accesses(users, places, access)
            if mask is None:
                continue
            if only is not True:
                mask &= only
            if mask.any():
                n = int(np.argmax(mask))
                p = int(places[n])
                return DataRace(n, p, int(users.thread[p]), int(users.pc[p]), how, other_how)
        return None


def _note_two(two: tuple[LastUsers, LastUsers], places: np.ndarray, access: GroupAccess) -> None:
    """Keep two distinct readers of each element, preferably of different blocks, else the latest."""
    first, second = two
    n = access.threads
    known = first.thread[places]
    old = (known >= 0) & (known // n == access.thread // n) & (first.time[places] < access.time)
    fresh = (known < 0) | old  # what came before a barrier gives way to what comes after it
    first.note(places[fresh], access.part(fresh))
    block, kept = first.thread[places] // n, second.thread[places]
    elsewhere = access.thread // n != block
    block_mate = (access.thread != first.thread[places]) & ~elsewhere & ((kept < 0) | (kept // n == block))
    for others in (block_mate, elsewhere):  # a later thread is in another block than one of the two
        if others.any():
            second.note(places[others], access.part(others))


def differs_from(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mark where two arrays differ; NaN equals NaN."""
    result: np.ndarray = (x != y) & ((x == x) | (y == y))
    return result
