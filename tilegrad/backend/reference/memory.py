"""The memory of a kernel's pointers, and in a checked run what became of each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...ir.dtype import DType

NOBODY, SEVERAL, ATOMICALLY = -1, -2, -3


class Pointer(NamedTuple):
    """Places in the memory of a parameter."""

    parameter: str
    offsets: Any


class View(NamedTuple):
    """What a checked run is told of memory that a view stands for."""

    inside: Any
    """Which places are elements of the view."""
    shared: bool
    """Whether two of its elements are one place."""
    text: str


class Fault(Exception):
    """What is wrong with a lane; the interpreter adds where it happened."""

    def __init__(self, lane: tuple[int, ...], reason: str, statement: Any = None) -> None:
        super().__init__(reason)
        self.lane, self.reason = lane, reason
        self.statement = statement
        """The one that is to blame, if it is not the one that runs."""
        self.tile: Any = None
        """Which expression of it."""


class Memory:
    """A flat array. `history` is of elements: who stored and read them."""

    def __init__(self, name: str, array: Any) -> None:
        self.name, self.array = name, array
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
        self.array[offsets[active]] = value[active]

    def atomic(self, fn: str, offsets: Any, active: Any, given: list[Any], program: int) -> Any:
        """Lane after lane; gives what was there before."""
        self.inside(offsets, active)
        if self.history is not None and active.any():
            self.history.update(self.name, offsets, active, program)
        before = np.zeros(offsets.shape, self.array.dtype)
        for lane in zip(*np.nonzero(np.atleast_1d(active)), strict=True):
            place = lane if offsets.shape else ()
            at = offsets[place]
            old = before[place] = self.array[at]
            operands = [value[place] for value in given]
            self.array[at] = _UPDATED[fn](old, *operands)
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
    """Of each element: whether it has a value, which instance stored it and which have read it."""

    def __init__(self, count: int, written: bool, strict: bool = False, locks: bool = False) -> None:
        self.strict, self.locks = strict, locks
        self.written = np.full(count, written)
        self.writer = np.full(count, NOBODY, np.int64)
        self.reader = np.full(count, NOBODY, np.int64)

    def read(self, name: str, offsets: Any, active: Any, program: int) -> None:
        at = np.where(active, offsets, 0)
        complain(active & ~self.written[at], offsets, f"reads {name}[{{}}], which nobody has written")
        by_another = (self.writer[at] != NOBODY) & (self.writer[at] != program) & (not self.locks)
        reason = f"reads {name}[{{}}], which another instance of the kernel stores"
        complain(active & by_another, offsets, reason, self.writer[at])
        chosen = offsets[active]
        alone = (self.reader[chosen] == NOBODY) | (self.reader[chosen] == program)
        self.reader[chosen] = np.where(alone, program, SEVERAL)

    def update(self, name: str, offsets: Any, active: Any, program: int) -> None:
        """Atomics of several instances are in nobody's way."""
        at = np.where(active, offsets, 0)
        complain(active & ~self.written[at], offsets, f"reads {name}[{{}}], which nobody has written")
        stored = (self.writer[at] != NOBODY) & (self.writer[at] != ATOMICALLY) & (self.writer[at] != program)
        reason = f"changes {name}[{{}}] atomically, where another instance stores"
        complain(active & stored & (not self.locks), offsets, reason, self.writer[at])
        self.writer[offsets[active]] = ATOMICALLY

    def write(self, name: str, offsets: Any, active: Any, value: Any, array: Any, program: int) -> None:
        at = np.where(active, offsets, 0)
        if not self.locks:
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


def complain(bad: Any, offsets: Any, reason: str, others: Any = None) -> None:
    """Stops at the first lane where something is wrong."""
    if bad.any():
        lane = first(bad)
        text = reason.format(offsets[lane])
        if others is not None and others[lane] >= 0:
            text += f" (number {others[lane]})"
        raise Fault(lane, text)


def first(lanes: Any) -> tuple[int, ...]:
    """The place of the first True."""
    return tuple(int(n) for n in np.unravel_index(int(np.argmax(lanes)), lanes.shape))


def different(x: Any, y: Any) -> Any:
    """Bit by bit: a NaN is not different from itself."""
    bits = f"u{x.dtype.itemsize}"
    return np.ascontiguousarray(x).view(bits).reshape(x.shape) != np.ascontiguousarray(y).view(bits).reshape(y.shape)


def poison(dtype: DType) -> Any:
    """What a checked run puts where a kernel must not look: it spoils every result that it gets into."""
    if dtype.is_float:
        return np.array(np.nan, dtype.numpy)
    return np.array(True if dtype.kind == "bool" else int(dtype.max) // 3 * 2, dtype.numpy)
