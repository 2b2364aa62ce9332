"""Emit events while programs run.

    event ::= TimedEvent(kind, name, device, start, stop, bytes, operations)     times in ns of `perf_counter_ns`
    run   ::= Run(launches, start, stop, stamps, workers, overhead, spans, clock)     a whole program with its launches

Emitted in low layers (devices, pools, executors), consumed in high ones (profiles, traces, tests). Without listeners
an event costs a test of an empty list: write `if listeners: emit(...)`. A run is one record; listeners
with a method `run` get the record, others get an event for each launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple, TypeAlias

Kind = Literal["run", "launch", "copy", "fill", "allocate", "free", "compile", "load"]


class TimedEvent(NamedTuple):
    kind: Kind
    name: str
    device: str
    start: int
    stop: int
    bytes: int = 0
    """Total size of the buffers of a launch, in bytes, each counted once."""
    operations: float = 0.0
    origin: str = ""
    """The user's line, as `file.py:12`, where it is known."""

    @property
    def seconds(self) -> float:
        return (self.stop - self.start) * 1e-9


class Launched(NamedTuple):
    """A launch or copy of a program with settled sizes."""

    kind: Kind
    name: str
    stamp: int
    """The time stamp at which it ended; it began at the stamp of the launch before, the first at stamp 0."""
    bytes: int = 0
    operations: float = 0.0


class Launches:
    """The launches of a program with settled sizes, in order: what its runs have in common.

    `executable` is a weak reference to the program as compiled, for readers that ask where its kernels come from.
    """

    def __init__(
        self, name: str, device: str, steps: Sequence[Launched], executable: Any = None, sizes: Mapping[str, int] = {}
    ) -> None:
        self.name = name
        self.device = device
        self.steps = tuple(steps)
        self.executable = executable
        self.sizes = sizes


class LaunchSpan(NamedTuple):
    """When a GPU worked for a launch, and in which stream."""

    start: int
    stop: int
    stream: int


class Run(NamedTuple):
    """One run of a program: the host called it between `start` and `stop`."""

    launches: Launches
    start: int
    stop: int
    stamps: Sequence[int]
    """The beginning and the ends of its launches; empty where the device cannot tell."""
    workers: Sequence[int] = ()
    """For each worker thread and each launch: when it began and when it ended, before the run if it took no part."""

    overhead: int = 0
    """Nanoseconds that recording added to it: time stamps, and barriers between launches, as calibrated."""
    spans: Sequence[LaunchSpan | None] | None = None
    """The times of launches that may overlap, instead of stamps; entries are filled later, None until then."""
    clock: str = ""
    """The source of the times, in words, where a device has several."""

    def events(self) -> Iterator[TimedEvent]:
        """Return an event for each launch with a time, then one for the run."""
        plan, stamps = self.launches, self.stamps
        if not stamps:
            return
        begun = stamps[0]
        for step in plan.steps:
            ended = stamps[step.stamp]
            yield TimedEvent(step.kind, step.name, plan.device, begun, ended, step.bytes, step.operations)
            begun = ended
        yield TimedEvent("run", plan.name, plan.device, stamps[0], stamps[-1])


Listener: TypeAlias = "Callable[[TimedEvent], None]"

listeners: list[Listener] = []

now = perf_counter_ns


def emit(
    kind: Kind, name: str, device: str, start: int = 0, stop: int = 0, bytes: int = 0, operations: float = 0.0,
    origin: str = "",
) -> None:  # fmt: skip
    """Send an event to every listener; without times, its time is now."""
    start = start or now()
    event = TimedEvent(kind, name, device, start, stop or start, bytes, operations, origin)
    for listener in tuple(listeners):
        listener(event)


def accept_later_times() -> bool:
    """Return whether all listeners ask for times (`Device.deliver_times`) that are not there when a run is reported."""
    return bool(listeners) and all(getattr(listener, "accepts_later_times", False) for listener in listeners)


def emit_run(run: Run) -> None:
    """Report a run of a program."""
    for listener in tuple(listeners):
        whole = getattr(listener, "run", None)
        if whole is not None:
            whole(run)
        else:
            for event in run.events():
                listener(event)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Register a listener within the block.

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
    """Emit one event that spans the block."""
    start = now()
    yield
    if listeners:
        emit(kind, name, device, start, now(), bytes)
