"""Compute recorded work where the user measures time, even if its results are dropped.

Work is lazy: a result that is dropped before it is read is never computed. A user who times a function by events or by
`synchronize`, and drops its results, wants that work done. From the first event or `synchronize` on, new tensors are
tracked, and what is recorded when an event is, or at a synchronisation, is computed then. After a number of dropped
results they are computed earlier, to release what they hold. Tracking ends when nobody has synchronised for long and no
timing event is alive.

Results that share work are computed in one program, others separately: ten calls of a function run the program of one
ten times, the one compiled in the warm-up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakSet, ref

from ..errors import DeviceError
from ..ir.graph import Input, Value, topological
from ..runtime.device import known_devices
from ..runtime.live_objects import live_objects
from ..runtime.singletons import lock
from . import handle
from .evaluation import compute
from .handle import Handle, handle_on, state

MIN_DROPPED = 64
"""Number of dropped tensors after which they are checked for pending results."""
PATIENCE = 1 << 16
"""Number of tensors made without a synchronisation after which tracking ends."""


class TrackedTensor(ref[Any]):
    """A weak reference to a tensor, and its value when it was made."""

    __slots__ = ("number", "value")
    number: int
    value: Value


class WorkTracker:
    """Tracks tensors that are made and not computed while time is measured."""

    def __init__(self) -> None:
        self.held: dict[int, TrackedTensor] = {}
        self.dropped: list[Value] = []
        self.room = MIN_DROPPED
        self.left = PATIENCE
        self.alone: Any = lock()
        self.busy = False

    def made(self, tensor: Handle, value: Value) -> None:
        """Track a tensor; compute dropped results when there are many."""
        if value.buffer is None:
            self.note(tensor, value)
        self.left -= 1
        if len(self.dropped) >= self.room or self.left < 0:
            self._look()

    def note(self, tensor: Handle, value: Value) -> None:
        """Update the tracked value of a tensor."""
        noted = TrackedTensor(tensor, self._ended)
        noted.number, noted.value = id(tensor), value
        self.held[noted.number] = noted

    def is_view(self, tensor: Handle) -> None:
        """Ignore a view: its base is tracked."""
        self.held.pop(id(tensor), None)

    def _ended(self, noted: TrackedTensor) -> None:
        """Note that a tensor was destroyed. Computes nothing: this may run inside the garbage collector."""
        if self.held.get(noted.number) is noted:
            del self.held[noted.number]
            if noted.value.buffer is None:
                self.dropped.append(noted.value)

    def _look(self) -> None:
        if self.left < 0:
            if events:
                self.left = PATIENCE
            else:
                handle.watch_with(None)
        if self.alone.acquire(blocking=False):  # else another thread computes, and may wait for a lock of this one
            try:
                self._compute(held=False)
            finally:
                self.alone.release()

    def finish(self) -> None:
        """Compute everything tracked."""
        with self.alone:
            self._compute(held=True)
        self.left = PATIENCE

    def _compute(self, held: bool) -> None:
        """Compute dropped results that are not part of other work, and with `held` also those still referenced."""
        if self.busy:
            return  # what computes has made a tensor
        self.busy = True
        try:
            for group in self._groups(held):
                try:
                    compute(*group)
                except DeviceError:
                    if {x._value.device for x in group} <= {place.name for place in known_devices()}:
                        raise  # else the device is gone: who looks is told
        finally:
            self.busy = False

    def _groups(self, held: bool) -> list[list[Handle]]:
        dropped, self.dropped = self.dropped, []
        tensors = [x for noted in list(self.held.values()) if (x := noted()) is not None]
        own = [(handle_on(v) if x._moves else x, v) for x in tensors for v in (_own_or_whole(x),)]
        roots = [(x, v) for x, v in own if v.buffer is None and v.provenance.attempt != "failed"]
        order = topological([*dropped, *(v for _, v in roots)], _is_computed)
        unknown = _unknown(order)
        roots = [(x, v) for x, v in roots if id(v) not in unknown]
        self.room = max(MIN_DROPPED, len(topological([v for _, v in roots], _is_computed)))
        read = {id(x) for v in order if v.buffer is None for x in v.inputs}
        read |= unknown
        results = {id(v): v for v in dropped if v.buffer is None and id(v) not in read and not v.provenance.attempt}
        for _, v in roots:
            results.pop(id(v), None)
        for number, noted in list(self.held.items()):
            if noted.value.buffer is not None or id(noted.value) in unknown:
                self.held.pop(number, None)
        groups = _joined(order, [*roots, *((handle_on(v), v) for v in results.values())])
        return [group for group in groups if held or any(id(x._value) in results for x in group)]


def _own_or_whole(x: Handle) -> Value:
    """Return the value of a tensor; for a view (that was written to) that of its base."""
    return x.base().current() if x._moves else x.own_value()


def _is_computed(value: Value) -> bool:
    return value.buffer is not None


def _unknown(order: Iterable[Value]) -> set[int]:
    """List the values that depend on a placeholder, such as a trace leaves behind: they cannot be computed."""
    found: set[int] = set()
    for v in order:
        if v.buffer is None and (isinstance(v, Input) or any(id(x) in found for x in v.inputs)):
            found.add(id(v))
    return found


def _joined(order: Iterable[Value], roots: Iterable[tuple[Handle, Value]]) -> list[list[Handle]]:
    """Group tensors that share work."""
    group: dict[int, int] = {}
    above: list[int] = []

    def first(n: int) -> int:
        while above[n] != n:
            above[n] = n = above[above[n]]
        return n

    for v in order:  # what is read comes first
        if v.buffer is not None:
            continue
        mine = {first(group[id(x)]) for x in v.inputs if id(x) in group}
        if not mine:
            mine = {len(above)}
            above.append(len(above))
        group[id(v)] = least = min(mine)
        for n in mine:
            above[n] = least
    found: dict[int, list[Handle]] = {}
    for x, v in roots:
        found.setdefault(first(group[id(v)]), []).append(x)
    return list(found.values())


events: WeakSet[Any] = WeakSet()
"""Timing events that may still be recorded."""
_watch = WorkTracker()


def time_with(event: Any) -> None:
    """Track tensors for `finish` while a timing event is alive."""
    events.add(event)
    begin()


def begin() -> None:
    _watch.left = PATIENCE
    if handle.watching() is None:
        handle.watch_with(_watch)
        for made_before in live_objects(Handle):
            if "_value" in made_before.__dict__ and made_before._value.buffer is None:
                _watch.made(made_before, made_before._value)


def end() -> None:
    """Track no more tensors, unless a timing event is alive."""
    if not events and handle.watching() is _watch:
        handle.watch_with(None)


def finish() -> None:
    """Compute all tracked work, in the order of recording; no-op while a function is traced."""
    if state.trace is None:
        begin()
        _watch.finish()
        compute()  # what was written to


def synchronize() -> None:
    """Compute all recorded work and wait for it, for use with a clock.

    From the first call on, work whose results were dropped is computed, too.

    >>> import tilegrad as tg, time
    >>> x = tg.ones(300, 300)
    >>> tg.synchronize()
    >>> start = time.perf_counter()
    >>> _ = x @ x
    >>> tg.synchronize()
    >>> time.perf_counter() - start > 0
    True
    """
    finish()
    for place in known_devices():
        place.synchronize()
