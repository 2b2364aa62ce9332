"""Model the memory behind a kernel's pointers; a checked run records the history of each element."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...ir.dtype import DType
from .order import ArrayAccesses, Order, Raced, User

NOBODY, SEVERAL, ATOMICALLY = -1, -2, -3


class Pointer(NamedTuple):
    """A tile of pointers into the memory of a parameter."""

    parameter: str
    offsets: Any


class View(NamedTuple):
    """The shape of the memory of a strided view, for a checked run."""

    inside: Any
    """Elements of the buffer that belong to the view."""
    shared: bool
    """Whether two elements of the view share an address."""
    text: str


class Fault(Exception):
    """A fault in a lane; the interpreter adds the statement."""

    def __init__(self, lane: tuple[int, ...], reason: str, statement: Any = None) -> None:
        super().__init__(reason)
        self.lane, self.reason = lane, reason
        self.statement = statement
        """The statement to blame, if it is not the running one."""
        self.tile: Any = None
        """The expression of the statement."""


class Memory:
    """A flat array. `history` has the accesses to each element; `changes` counts writes that changed something."""

    def __init__(self, name: str, array: Any) -> None:
        self.name, self.array = name, array
        self.changes = 0
        self.history: History | None = None
        self.view: View | None = None

    def inside(self, offsets: Any, active: Any) -> None:
        outside = active & ((offsets < 0) | (offsets >= self.array.size))
        if outside.any():
            lane = first(outside)
            extent = f"which has {self.array.size} elements" if self.view is None else self.view.text
            raise Fault(lane, f"index {offsets[lane]} is outside {self.name}, {extent}")
        if self.view is not None and active.any():
            between = active & ~self.view.inside[np.where(active, offsets, 0)]
            if between.any():
                lane = first(between)
                raise Fault(lane, f"index {offsets[lane]} lies between the elements of {self.name}, {self.view.text}")

    def load(self, offsets: Any, active: Any, other: Any, program: int) -> Any:
        self.inside(offsets, active)
        if self.history is not None and active.any():
            self.history.read(self.name, offsets, active, program)
        loaded = np.array(np.broadcast_to(other, offsets.shape), self.array.dtype)
        loaded[active] = self.array[offsets[active]]
        return loaded

    def store(self, offsets: Any, active: Any, value: Any, program: int) -> None:
        self.inside(offsets, active)
        if self.history is not None and active.any():
            self.history.write(self.name, offsets, active, value, self.array, program)
        places, stored = offsets[active], value[active]
        self.changes += bool(different(self.array[places], stored).any())
        self.array[places] = stored

    def atomic(self, fn: str, offsets: Any, active: Any, given: list[Any], program: int, used: bool = True) -> Any:
        """Apply an atomic operation lane by lane, and return the old elements. `used`: whether the kernel uses them."""
        self.inside(offsets, active)
        history = self.history
        if history is not None and active.any():
            history.update(self.name, offsets, active, program)
        before = np.zeros(offsets.shape, self.array.dtype)
        for lane in zip(*np.nonzero(np.atleast_1d(active)), strict=True):
            place = lane if offsets.shape else ()
            at = offsets[place]
            old = before[place] = self.array[at]
            operands = [value[place] for value in given]
            self.array[at] = _UPDATED[fn](old, *operands)
            altered = bool(different(self.array[at], before[place])) or (fn == "cas" and bool(old == operands[-1]))
            self.changes += altered
            if history is not None and history.followed is not None:
                history.change(self.name, lane, int(at), program, used, used or offsets.size == 1, altered)
        return before


_UPDATED: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda old, value: value,
    "cas": lambda old, value, expected: value if old == expected else old,
}


class History:
    """For each element whether it is initialised, the instance that stored it and those that have read it.

    With an `order`, accesses are followed one by one, as atomic operations order them; without one, any two instances
    may run concurrently, which whole tiles are checked for.
    """

    def __init__(self, count: int, written: bool, strict: bool = False, order: Order | None = None) -> None:
        self.strict, self.order = strict, order
        self.followed = None if order is None else ArrayAccesses(order)
        self.written = np.full(count, written)
        self.writer = np.full(count, NOBODY, np.int64)
        self.reader = np.full(count, NOBODY, np.int64)

    def read(self, name: str, offsets: Any, active: Any, program: int) -> None:
        at = np.where(active, offsets, 0)
        complain(active & ~self.written[at], offsets, f"reads {name}[{{}}], which nobody has written")
        if self.followed is not None:
            for lane, place, user in self.users(offsets, active, program):
                refuse(self.followed.load(place, user), lane, f"reads {name}[{place}], which")
            return
        by_another = (self.writer[at] != NOBODY) & (self.writer[at] != program)
        reason = f"reads {name}[{{}}], which another instance of the kernel stores"
        complain(active & by_another, offsets, reason, self.writer[at])
        chosen = offsets[active]
        alone = (self.reader[chosen] == NOBODY) | (self.reader[chosen] == program)
        self.reader[chosen] = np.where(alone, program, SEVERAL)

    def update(self, name: str, offsets: Any, active: Any, program: int) -> None:
        """Record atomic operations, which do not race with each other."""
        at = np.where(active, offsets, 0)
        complain(active & ~self.written[at], offsets, f"reads {name}[{{}}], which nobody has written")
        if self.followed is not None:
            return
        stored = (self.writer[at] != NOBODY) & (self.writer[at] != ATOMICALLY) & (self.writer[at] != program)
        reason = f"changes {name}[{{}}] atomically, where another instance stores"
        complain(active & stored, offsets, reason, self.writer[at])
        self.writer[offsets[active]] = ATOMICALLY

    def change(
        self, name: str, lane: tuple[int, ...], place: int, program: int, acquires: bool, releases: bool, altered: bool
    ) -> None:
        """Record one lane of an atomic operation in the happens-before order."""
        assert self.followed is not None
        assert self.order is not None
        user = self.order.user(program, 0, None)
        race = self.followed.change(place, user, acquires, releases, altered)
        refuse(race, lane, f"changes {name}[{place}] atomically, which")

    def write(self, name: str, offsets: Any, active: Any, value: Any, array: Any, program: int) -> None:
        at = np.where(active, offsets, 0)
        if self.followed is not None:
            same = np.zeros(active.shape, bool) if self.strict else ~different(array[at], value)
            for lane, place, user in self.users(offsets, active, program):
                race = self.followed.store(place, user, harmless=bool(same[lane]))
                refuse(race, lane, f"stores {name}[{place}], which")
        else:
            by_another = (self.reader[at] != NOBODY) & (self.reader[at] != program)
            reason = f"stores {name}[{{}}], which another instance of the kernel reads"
            complain(active & by_another, offsets, reason, self.reader[at])
            taken = (self.writer[at] != NOBODY) & (self.writer[at] != program)
            if not self.strict:
                taken &= different(array[at], value)
            reason = f"stores {name}[{{}}], where another instance stores {'' if self.strict else 'another value'}"
            complain(active & taken, offsets, reason.rstrip(), self.writer[at])
        chosen, kept = offsets[active], value[active]
        if len(np.unique(chosen)) < chosen.size:
            before = array[chosen]
            array[chosen] = kept
            last = array[at]
            array[chosen] = before
            twice = active & different(last, value)
            complain(twice, offsets, f"stores {name}[{{}}], where another lane stores another value")
        self.writer[chosen] = program
        self.written[chosen] = True

    def users(self, offsets: Any, active: Any, program: int) -> Iterator[tuple[tuple[int, ...], int, User]]:
        """Yield each active lane, its element, and the access."""
        assert self.order is not None
        user = self.order.user(program, 0, None)
        for lane in zip(*np.nonzero(np.atleast_1d(active)), strict=True):
            place = lane if offsets.shape else ()
            yield place, int(offsets[place]), user


HOW = {"load": "reads", "store": "stores", "atomic": "changes atomically"}


def refuse(race: Raced | None, lane: tuple[int, ...], does: str) -> None:
    if race is not None:
        raise Fault(
            lane,
            f"{does} another instance of the kernel {HOW[race.how]} (number {race.user.thread}), and no atomic "
            "operation orders the two",
        )


def complain(bad: Any, offsets: Any, reason: str, others: Any = None) -> None:
    """Raise a fault for the first lane where something is wrong."""
    if bad.any():
        lane = first(bad)
        text = reason.format(offsets[lane])
        if others is not None and others[lane] >= 0:
            text += f" (number {others[lane]})"
        raise Fault(lane, text)


def first(lanes: Any) -> tuple[int, ...]:
    """Return the position of the first True."""
    return tuple(int(n) for n in np.unravel_index(int(np.argmax(lanes)), lanes.shape))


def different(x: Any, y: Any) -> Any:
    """Compare bitwise: NaN equals itself."""
    bits = f"u{x.dtype.itemsize}"
    return np.ascontiguousarray(x).view(bits).reshape(x.shape) != np.ascontiguousarray(y).view(bits).reshape(y.shape)


def poison(dtype: DType) -> Any:
    """Return the value of masked lanes in a checked run: it spoils every result that uses it."""
    if dtype.is_float:
        return np.array(np.nan, dtype.numpy)
    return np.array(True if dtype.kind == "bool" else int(dtype.max) // 3 * 2, dtype.numpy)
