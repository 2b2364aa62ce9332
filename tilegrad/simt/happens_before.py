"""Detect races by happens-before clocks in kernels whose threads synchronise through atomic operations.

Most kernels order threads by barriers alone, and `races.py` checks many threads at once. If it finds a race in a kernel
that uses the old elements of atomic operations (a lock, a ticket, a flag), the launch restarts, and that array is
tracked element by element, together with the arrays that atomic operations modify.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..backend.reference.order import NOTHING, ArrayAccesses, Clock, Order, Raced, User, merged
from .builtin import WARP
from .lanes import WARP_BARRIER_BITS, LaunchShape
from .races import DataRace, GroupAccess, Shadow
from .thread_ir import Array


class RestartLaunch(Exception):
    """Raised to restart a launch with these arrays tracked."""

    def __init__(self, arrays: list[Array]) -> None:
        super().__init__()
        self.arrays = frozenset(id(array) for array in arrays)


class ThreadOrder(Order):
    """Vector clocks of the threads of a launch, advanced by atomic operations and barriers.

    A clock holds for each thread how many of its releases are known. A negative key stands for all threads of a block
    or warp, with the number of barriers up to which everything they did is known.
    """

    def __init__(self, shape: LaunchShape) -> None:
        super().__init__()
        self.threads, self.blocks = shape.threads, shape.blocks
        self.warps = -(-shape.threads // WARP)
        self.common: dict[int, Clock] = {}
        """Clock of all threads of each block at their last barrier."""
        self.fresh: dict[int, set[int]] = {}
        """Threads of each block that acquired something since that barrier."""

    def known(self, thread: int) -> Clock:
        own = self.clocks.get(thread)
        return self.common.get(thread // self.threads, NOTHING) if own is None else own

    def warp(self, thread: int) -> int:
        return thread // self.threads * self.warps + thread % self.threads // WARP

    def before(self, other: User, user: User) -> bool:
        if super().before(other, user):
            return True
        warp, block = self.warp(other.thread), other.thread // self.threads
        if warp == self.warp(user.thread):
            return other.time != user.time
        if block == user.thread // self.threads:
            return other.time >> WARP_BARRIER_BITS != user.time >> WARP_BARRIER_BITS
        known = self.known(user.thread)
        if known.get(-1 - block, 0) > other.time >> WARP_BARRIER_BITS:
            return True
        return known.get(-1 - self.blocks - warp, 0) > other.time

    def acquire(self, user: User, left: Clock) -> None:
        super().acquire(user, left)
        self.fresh.setdefault(user.thread // self.threads, set()).add(user.thread)

    def release(self, user: User) -> Clock:
        made = super().release(user)
        if user.time:
            made[-1 - user.thread // self.threads] = user.time >> WARP_BARRIER_BITS
            made[-1 - self.blocks - self.warp(user.thread)] = user.time
        return made

    def met(self, threads: Iterable[int], block: int, whole: bool) -> None:
        """Join the clocks of a block's threads, or a warp's, at a barrier."""
        fresh = self.fresh.get(block)
        if not fresh:
            return
        learned = fresh if whole else fresh.intersection(threads)
        clock = self.common.get(block, NOTHING)
        for thread in learned:
            clock = merged(clock, self.known(thread))
        if whole:
            self.common[block] = clock
            for thread in learned:
                self.clocks.pop(thread, None)
            self.fresh[block] = set()
        elif learned:
            for thread in threads:
                self.clocks[thread] = clock
            fresh.update(threads)


class FollowedShadow(Shadow):
    """Accesses to an array, tracked element by element."""

    follows = True

    def __init__(self, size: int, unwritten: bool, order: ThreadOrder) -> None:
        super().__init__(size, unwritten)
        self.order, self.users = order, ArrayAccesses(order)

    def load(self, places: np.ndarray, access: GroupAccess) -> DataRace | None:
        for n, (place, user) in enumerate(self._lanes(places, access)):
            race = self.users.load(place, user)
            if race is not None:
                return _race_report(n, place, race, "load")
        return None

    def store(self, places: np.ndarray, access: GroupAccess, differs: np.ndarray) -> DataRace | None:
        found = None
        for n, (place, user) in enumerate(self._lanes(places, access)):
            race = self.users.store(place, user, harmless=not differs[n])
            if race is not None and found is None:
                found = _race_report(n, place, race, "store")
        self.writers.note(places, access)
        return found

    def changed(self, places: np.ndarray, access: GroupAccess, acquires: bool, altered: np.ndarray) -> DataRace | None:
        """Record an atomic operation; a mask tells where it modified an element."""
        for n, (place, user) in enumerate(self._lanes(places, access)):
            race = self.users.change(place, user, acquires, True, bool(altered[n]))
            if race is not None:
                return _race_report(n, place, race, "atomic")
        return None

    def _lanes(self, places: np.ndarray, access: GroupAccess) -> Iterable[tuple[int, User]]:
        given = zip(places.tolist(), access.thread.tolist(), access.time.tolist(), strict=True)
        return ((place, self.order.user(thread, time, access.pc)) for place, thread, time in given)


class RaceTracker:
    """Tracks the accesses to some arrays of a launch."""

    def __init__(self, shape: LaunchShape, arrays: frozenset[int] = frozenset()) -> None:
        self.arrays, self.order = arrays, ThreadOrder(shape)

    def shadow(self, arrays: Iterable[Array], size: int, unwritten: bool) -> Shadow:
        """Return the tracker of memory known by these array names."""
        if self.arrays and any(id(array) in self.arrays for array in arrays):
            return FollowedShadow(size, unwritten, self.order)
        return Shadow(size, unwritten)

    def of(self, shape: LaunchShape) -> RaceTracker:
        """Return the tracker for a launch made by a thread."""
        return RaceTracker(shape, self.arrays)


def _race_report(lane: int, place: int, race: Raced, how: str) -> DataRace:
    return DataRace(lane, place, race.user.thread, race.user.what, how, race.how)
