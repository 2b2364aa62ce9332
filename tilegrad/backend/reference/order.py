"""Order accesses to memory by happens-before: vector clocks that atomic operations carry from thread to thread.

An atomic operation whose old element is used acquires: its thread comes after every release of that element. One that
changes the element releases: whoever acquires it later comes after all that this thread did before. Two accesses that
no such chain (and no barrier) orders, not both reads and not both atomic, are a race.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...errors import KernelError

Clock = dict[int, int]
"""Number of known releases of each thread; a shared clock is immutable."""
NOTHING: Clock = {}
MAX_CLOCK_ENTRIES = 10**8
"""Most entries of clocks that one launch copies: some seconds."""


class User(NamedTuple):
    """An access of one thread. `time` counts the barriers it had passed, `epoch` its releases, `what` says where."""

    thread: int
    time: int
    epoch: int
    what: Any


class Order:
    """The happens-before order of threads: for each a vector clock of the others."""

    def __init__(self) -> None:
        self.clocks: dict[int, Clock] = {}
        self.epochs: dict[int, int] = {}
        self.copied = 0

    def user(self, thread: int, time: int, what: Any) -> User:
        return User(thread, time, self.epochs.get(thread, 0), what)

    def known(self, thread: int) -> Clock:
        return self.clocks.get(thread, NOTHING)

    def before(self, other: User, user: User) -> bool:
        """Whether an earlier access is ordered before a later one."""
        return other.thread == user.thread or self.known(user.thread).get(other.thread, 0) > other.epoch

    def acquire(self, user: User, left: Clock) -> None:
        if left:
            self.clocks[user.thread] = merged(self.known(user.thread), left)

    def release(self, user: User) -> Clock:
        """Publish all that a thread knows and has done."""
        epoch = self.epochs[user.thread] = self.epochs.get(user.thread, 0) + 1
        known = self.known(user.thread)
        self.copied += len(known)
        if self.copied > MAX_CLOCK_ENTRIES:
            raise KernelError(
                f"{len(self.epochs)} threads wait for each other by atomic operations: whether these order all that "
                "they do is not followed for so many; launch fewer of them to look for races"
            )
        return {**known, user.thread: epoch}


def merged(x: Clock, y: Clock) -> Clock:
    """Return the later of both for each thread.

    >>> merged({1: 5, 2: 1}, {2: 3})
    {1: 5, 2: 3}
    """
    small, large = (x, y) if len(x) < len(y) else (y, x)
    more = {thread: n for thread, n in small.items() if large.get(thread, 0) < n}
    return {**large, **more} if more else large


class ElementAccesses:
    """The accesses of one element that later ones may race with.

    `changers` are atomic operations that changed it, `lookers` those that did not, as an attempt on a lock that was
    taken.
    """

    __slots__ = ("changers", "holder", "left", "lookers", "readers", "writer")

    def __init__(self) -> None:
        self.writer: User | None = None
        self.readers: dict[int, User] = {}
        self.changers: dict[int, User] = {}
        self.lookers: dict[int, User] = {}
        self.left: Clock = NOTHING
        self.holder: int | None = None
        """The thread that changed it last, if atomically: a plain store of that thread releases a lock."""


class Raced(NamedTuple):
    """An earlier access, `load`, `store` or `atomic`, that is not ordered before the present one."""

    user: User
    how: str


class ArrayAccesses:
    """The accesses of one array, element by element. `order` is that of the whole launch."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.elements: dict[int, ElementAccesses] = {}

    def element(self, place: int) -> ElementAccesses:
        found = self.elements.get(place)
        if found is None:
            found = self.elements[place] = ElementAccesses()
        return found

    def load(self, place: int, user: User) -> Raced | None:
        e = self.element(place)
        e.readers[user.thread] = user
        return self.raced(user, e, changers=True)

    def store(self, place: int, user: User, harmless: bool = False) -> Raced | None:
        """Record a plain store. A harmless one stores the value that is there already."""
        e = self.element(place)
        unlocks = e.holder == user.thread
        race = None if harmless else self.raced(user, e, readers=True, changers=True, lookers=not unlocks)
        e.writer = user
        if race is None and not harmless:
            e.readers, e.changers, e.lookers = {}, {}, {}
        if unlocks:
            e.left = self.order.release(user)
        e.holder = None
        return race

    def change(self, place: int, user: User, acquires: bool, releases: bool, altered: bool) -> Raced | None:
        """Record an atomic operation."""
        e = self.element(place)
        if acquires:
            self.order.acquire(user, e.left)
        race = self.raced(user, e, readers=altered)
        (e.changers if altered else e.lookers)[user.thread] = user
        if altered:
            e.holder = user.thread
            if releases:
                e.left = merged(e.left, self.order.release(user))
        return race

    def raced(
        self, user: User, e: ElementAccesses, readers: bool = False, changers: bool = False, lookers: bool = False
    ) -> Raced | None:
        """Return the first of the earlier accesses of these kinds that is not ordered before."""
        kinds: list[tuple[Iterable[User], str]] = [([e.writer] if e.writer else [], "store")]
        kinds += [(e.readers.values(), "load")] if readers else []
        kinds += [(e.changers.values(), "atomic")] if changers else []
        kinds += [(e.lookers.values(), "atomic")] if lookers else []
        for users, how in kinds:
            for other in users:
                if not self.order.before(other, user):
                    return Raced(other, how)
        return None
