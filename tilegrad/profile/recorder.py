"""Record what happens while a profile is open: runs of programs, events of the runtime, named ranges.

Recording only appends to lists; names, lines and shares are found when the profile is read (`timeline.py`).
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakSet

from ..ir.location import is_inside
from ..runtime import events
from ..runtime.device import device, known_devices

MAX_RECORDS = 1_000_000
"""Records that a profile keeps; those beyond are counted and left out."""
MAX_FRAMES = 32
"""Frames of the user's stack that are kept."""


class Range(NamedTuple):
    """A part of the user's program with a name: a step, a `record_function`, an operation computed by itself."""

    kind: str
    name: str
    start: int
    stop: int
    device: str = "cpu"
    shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of the inputs of an operation."""
    runs: tuple[events.Run, ...] = ()
    """The runs of programs that an operation computed by itself took."""


class Noted(NamedTuple):
    """A record as it arrived, with the thread that it happened in and the user's stack."""

    what: events.TimedEvent | events.Run | Range
    thread: threading.Thread
    stack: tuple[str, ...] = ()


class Sample(NamedTuple):
    """The live bytes of a device at a time."""

    at: int
    device: str
    live: int


class Recorder:
    """Listens to the runtime while it is attached, and keeps what it hears while `recording`."""

    accepts_later_times = True

    def __init__(self, *, with_stack: bool = False, memory: bool = False) -> None:
        self.with_stack = with_stack
        self.memory = memory
        self.recording = False
        self.attached = False
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.noted: list[Noted] = []
        self.samples: list[Sample] = []
        self.compiled: dict[events.Launches, Any] = {}
        """The compilations of the programs that ran, kept so that their lines can be found."""
        self.lanes: dict[threading.Thread, str] = {}
        """The name of each thread, made unique. By thread, not by its identifier, which is used again."""
        self.left_out = 0
        self.cost = 0
        """Nanoseconds that recording itself took."""
        self.began = self.ended = events.now()

    def __call__(self, event: events.TimedEvent) -> None:
        start = events.now()
        if event.kind not in ("allocate", "free") and event.stop >= self.began:
            self.note(event)
        if self.memory and self.recording:
            self._sample(event.device)
        self.cost += events.now() - start

    def run(self, run: events.Run) -> None:
        """Record a run of a program."""
        start = events.now()
        self._keep(run)
        self.note(run)
        if self.memory and self.recording:
            self._sample(run.launches.device)
        self.cost += events.now() - start + run.overhead

    def _keep(self, run: events.Run) -> None:
        """Keep the compilation of a program that ran."""
        if self.recording and run.launches not in self.compiled:
            executable = run.launches.executable and run.launches.executable()
            origin = executable.origin if executable is not None else None
            self.compiled[run.launches] = origin and origin()

    def operation(self, what: Range, replaced: Range | None = None) -> None:
        """Record an operation that was computed by itself; `replaced` is the record of its first part."""
        start = events.now()
        if replaced is not None and self.noted and self.noted[-1].what is replaced:
            self.noted.pop()
        for run in what.runs:
            self._keep(run)
        self.note(what)
        self.cost += events.now() - start

    def note(self, what: events.TimedEvent | events.Run | Range) -> None:
        """Keep a record."""
        if not self.recording:
            return
        if len(self.noted) >= MAX_RECORDS:
            self.left_out += 1
            return
        thread = threading.current_thread()
        if thread not in self.lanes:
            known = set(self.lanes.values())
            self.lanes[thread] = f"{thread.name} ({len(known)})" if thread.name in known else thread.name
        self.noted.append(Noted(what, thread, user_stack() if self.with_stack else ()))

    def _sample(self, name: str) -> None:
        self.samples.append(Sample(events.now(), name, device(name).statistics.live))

    def attach(self) -> None:
        """Begin to listen."""
        if not self.attached:
            events.listeners.append(self)
            _attached.add(self)
            self.attached = True
            for place in known_devices():
                place.begin_profile()

    def complete_times(self) -> None:
        """Complete the times of the runs so far."""
        start = events.now()
        for place in known_devices():
            place.deliver_times()
        self.cost += events.now() - start

    def detach(self) -> None:
        """Listen no more."""
        if self.attached:
            events.listeners.remove(self)
            _attached.discard(self)
            self.attached = False
            for place in known_devices():
                place.end_profile()


_attached: WeakSet[Recorder] = WeakSet()


def _abandon() -> None:
    """Stop listening in a child process: its records belong to nobody."""
    for recorder in list(_attached):
        recorder.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon)


def user_stack() -> tuple[str, ...]:
    """List the user's frames, outermost first, as `file.py(12): function`."""
    frame: FrameType | None = sys._getframe(1)
    found: list[str] = []
    while frame is not None and len(found) < MAX_FRAMES:
        code = frame.f_code
        if not is_inside(code.co_filename):
            found.append(f"{os.path.basename(code.co_filename)}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return tuple(reversed(found))
