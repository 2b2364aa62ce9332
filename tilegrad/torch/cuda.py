"""Implement `torch.cuda`: tilegrad's, with events that time the CPU where there is no GPU or a simulated one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from time import perf_counter_ns
from typing import Any

from .. import cuda
from ..errors import ArgumentError
from ..lazy.timing import finish, time_with
from ..profile import nvtx as nvtx
from ..runtime.device import Device, known_devices
from ..runtime.device import device as named
from .doors import missing
from .simulated import simulate as simulate
from .simulated import simulated


def is_available() -> bool:
    """Test whether there is a GPU, or a simulated one."""
    return cuda.is_available() or simulated() is not None


def device_count() -> int:
    """Count the GPUs; a simulated one counts."""
    return cuda.device_count() or int(simulated() is not None)


def synchronize(device: Any = None) -> None:
    """Wait until all recorded work is done, including results that were dropped."""
    finish()
    if cuda.is_available():
        cuda.synchronize(device)


def get_device_name(device: Any = None) -> str:
    """Return the product name of a GPU."""
    found = simulated()
    return found.machine if found is not None else cuda.get_device_name(device)


def current_device() -> int:
    """Return the number of the current GPU of this thread."""
    return 0 if simulated() is not None else cuda.current_device()


def empty_cache() -> None:
    """Return cached memory to the system."""
    for place in known_devices():
        place.trim()


def _place(which: Any) -> Device:
    """Return the device whose memory is asked for: a GPU, a simulated one, or without both the CPU."""
    return cuda._place(which) if cuda.is_available() else simulated() or named("cpu")


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(cuda)})


MEMORY = (
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
    "memory_summary", "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats",
)  # fmt: skip
"""Functions on the memory of a device."""


class Event:
    """A point in the work of a stream; without a GPU, a point in time."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        if cuda.is_available():
            return cuda.Event(enable_timing, blocking, interprocess)
        return super().__new__(cls)

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.timed = enable_timing
        self.time = 0
        if enable_timing:
            time_with(self)

    def record(self, stream: Any = None) -> None:
        """Record the event after all work so far."""
        finish()
        self.time = perf_counter_ns()

    def synchronize(self) -> None:
        """Wait for the event."""

    wait = query = synchronize

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds from this event to a later one."""
        if not (self.timed and end_event.timed):
            raise ArgumentError("elapsed_time: make both events with enable_timing=True")
        if not (self.time and end_event.time):
            raise ArgumentError("elapsed_time: both events must have been recorded")
        return (end_event.time - self.time) / 1e6


@contextmanager
def device(which: Any) -> Iterator[None]:
    """Set the current GPU within the block."""
    if simulated() is not None:
        yield
        return
    with cuda.device(which):
        yield


def __getattr__(name: str) -> Any:
    if name in MEMORY:
        asked = getattr(cuda, name)
        return wraps(asked)(lambda device=None, *args, **options: asked(_place(device), *args, **options))
    try:
        return getattr(cuda, name)
    except AttributeError:
        raise missing("torch.cuda", name, dir(cuda)) from None
