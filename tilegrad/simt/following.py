"""Follow who uses an array by happens-before, where atomic operations order threads beside barriers.

Barriers order the threads of a block, and most kernels have nothing else: `races.py` looks at many threads at once.
Where it finds a race in a kernel that looks at the old elements of atomic operations (a lock, a ticket, a flag), the
launch begins anew, and that array is followed element by element, as are those that atomic operations change.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..backend.reference.order import NOTHING, Clock, Followed, Order, Raced, User, merged
from .builtin import WARP
from .form import Array
from .lanes import WARPS_BITS, Shape
from .races import Access, Race, Shadow


class Anew(Exception):
    """A launch begins anew: arrays must be followed."""

    def __init__(self, arrays: list[Array]) -> None:
        super().__init__()
        self.arrays = frozenset(id(array) for array in arrays)


class ThreadOrder(Order):
    """The happens-before order of the threads of a launch, by atomic operations and by barriers.

    A clock says of a thread how many of its releases are known. A negative number stands for all threads of a block or
    of a warp, with the barriers until which all that they did is known.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.threads, self.blocks = shape.threads, shape.blocks
        self.warps = -(-shape.threads // WARP)
        self.common: dict[int, Clock] = {}
        """The clock of all threads of a block at their last barrier."""
        self.fresh: dict[int, set[int]] = {}
        """The threads of a block that have learned something since."""

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
            return other.time >> WARPS_BITS != user.time >> WARPS_BITS
        known = self.known(user.thread)
        if known.get(-1 - block, 0) > other.time >> WARPS_BITS:
            return True
        return known.get(-1 - self.blocks - warp, 0) > other.time

    def acquire(self, user: User, left: Clock) -> None:
        super().acquire(user, left)
        self.fresh.setdefault(user.thread // self.threads, set()).add(user.thread)

    def release(self, user: User) -> Clock:
        made = super().release(user)
        if user.time:
            made[-1 - user.thread // self.threads] = user.time >> WARPS_BITS
            made[-1 - self.blocks - self.warp(user.thread)] = user.time
        return made

    def met(self, threads: Iterable[int], block: int, whole: bool) -> None:
        """The threads of a block, or of a warp of it, have come together."""
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
    """The users of an array of which each element is followed."""

    follows = True

    def __init__(self, size: int, unwritten: bool, order: ThreadOrder) -> None:
        super().__init__(size, unwritten)
        self.order, self.users = order, Followed(order)

    def load(self, places: np.ndarray, access: Access) -> Race | None:
        for n, (place, user) in enumerate(self._lanes(places, access)):
            race = self.users.load(place, user)
            if race is not None:
                return _told(n, place, race, "load")
        return None

    def store(self, places: np.ndarray, access: Access, differs: np.ndarray) -> Race | None:
        found = None
        for n, (place, user) in enumerate(self._lanes(places, access)):
            race = self.users.store(place, user, harmless=not differs[n])
            if race is not None and found is None:
                found = _told(n, place, race, "store")
        self.writers.note(places, access)
        return found

    def changed(self, places: np.ndarray, access: Access, acquires: bool, altered: np.ndarray) -> Race | None:
        """An atomic operation has been done; where it has altered something."""
        for n, (place, user) in enumerate(self._lanes(places, access)):
            race = self.users.change(place, user, acquires, True, bool(altered[n]))
            if race is not None:
                return _told(n, place, race, "atomic")
        return None

    def _lanes(self, places: np.ndarray, access: Access) -> Iterable[tuple[int, User]]:
        given = zip(places.tolist(), access.thread.tolist(), access.time.tolist(), strict=True)
        return ((place, self.order.user(thread, time, access.pc)) for place, thread, time in given)


class Watch:
    """Follows accesses to some arrays of a launch."""

    def __init__(self, shape: Shape, arrays: frozenset[int] = frozenset()) -> None:
        self.arrays, self.order = arrays, ThreadOrder(shape)

    def shadow(self, arrays: Iterable[Array], size: int, unwritten: bool) -> Shadow:
        """For memory under the names of some arrays."""
        if self.arrays and any(id(array) in self.arrays for array in arrays):
            return FollowedShadow(size, unwritten, self.order)
        return Shadow(size, unwritten)

    def of(self, shape: Shape) -> Watch:
        """For a launch by a thread."""
        return Watch(shape, self.arrays)


def _told(lane: int, place: int, race: Raced, how: str) -> Race:
    return Race(lane, place, race.user.thread, race.user.what, how, race.how)
