"""What happens while programs run, told to whoever listens.

    event ::= Event(kind, name, device, start, stop, bytes, operations)     times in ns of `perf_counter_ns`

Emitted low (devices, pools, executors), read high (profiles, traces, tests). Where nobody listens an event costs
one look at an empty list: write `if listeners: emit(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Literal, NamedTuple, TypeAlias

Kind = Literal["run", "launch", "copy", "allocate", "free", "compile", "load"]


class Event(NamedTuple):
    kind: Kind
    name: str
    device: str
    start: int
    stop: int
    bytes: int = 0
    """Of a launch: what its buffers have together, each once."""
    operations: float = 0.0

    @property
    def seconds(self) -> float:
        return (self.stop - self.start) * 1e-9


Listener: TypeAlias = "Callable[[Event], None]"

listeners: list[Listener] = []

now = perf_counter_ns


def emit(
    kind: Kind, name: str, device: str, start: int = 0, stop: int = 0, bytes: int = 0, operations: float = 0.0
) -> None:
    """Tells every listener; an event without times has happened just now."""
    start = start or now()
    event = Event(kind, name, device, start, stop or start, bytes, operations)
    for listener in tuple(listeners):
        listener(event)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within the block the listener is told of every event.

    >>> seen = []
    >>> with listening(seen.append):
    ...     emit("compile", "softmax", "cpu", 1_000, 3_000)
    >>> seen[0].name, seen[0].stop - seen[0].start
    ('softmax', 2000)
    """
    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)


@contextmanager
def timed(kind: Kind, name: str, device: str, bytes: int = 0) -> Iterator[None]:
    """Emits one event that spans the block."""
    start = now()
    yield
    if listeners:
        emit(kind, name, device, start, now(), bytes)
