"""Queues: the streams of a GPU, with the memory that is kept for each and what was started last on it.

Work on one queue runs in order. Memory remembers on which queue it was written last and which others read it since,
so that queues wait for each other exactly where they share memory; no user has to say so.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .device import CudaDevice
    from .memory import Blocks, CudaBuffer

REMEMBERED = 256
"""Pieces of work that a queue remembers, to tell which one failed."""


DIRECT_RUNS = 2
"""The first runs of a program, in which mistakes show: the end of every kernel is marked. They are no graph yet: making
one costs as much as several runs."""
MARKED = 16
"""Later, every so many pieces of work a queue says how far it is; that takes the GPU two microseconds."""


class Work(NamedTuple):
    """What is remembered of what was started: the program, and its kernels with their lines."""

    program: str
    kernels: tuple[tuple[str, str], ...]


class Queue:
    """A stream of a device. Those of a device live as long as it does."""

    def __init__(self, device: CudaDevice, handle: int, progress: int, priority: int = 0) -> None:
        self.device = device
        self.handle = handle
        self.priority = priority
        self.submitted = 0
        """Pieces of work that were started here: a number is counted only after its work is on the stream."""
        self.lock = RLock()
        """Held while work is put on the stream and counted."""
        self.growing = RLock()
        """Held while the arena is exchanged; taken before any `lock`."""
        self.progress = progress
        """The address of a word of the host, in which the number of the last finished piece appears."""
        self.recent: deque[tuple[int, Work, bool]] = deque(maxlen=REMEMBERED)
        """What was started last: its number, what it is, and whether its end is marked."""
        self.seen: dict[Queue, int] = {}
        """How much of another queue's work comes before what is started here now."""
        self.blocks: dict[int, Blocks] = {}
        """Free memory: whoever takes it on this queue needs not wait."""
        self.arena: CudaBuffer | None = None
        """Memory for the temporaries of programs; one does for all, as they run one after the other."""

    def counted(self) -> int:
        """Counts a piece of work that has been started, and gives its number."""
        with self.lock:
            self.submitted = number = self.submitted + 1
            return number

    def room(self, bytes: int) -> CudaBuffer:
        """Memory for the temporaries of a program: at least so much, and never less than before."""
        arena = self.arena
        if arena is None or arena.bytes < bytes:
            with self.growing:
                arena = self.arena
                if arena is None or arena.bytes < bytes:
                    arena = self.arena = self.device.memory.take(self, bytes)
        return arena

    def reads(self, buffer: CudaBuffer) -> None:
        """Work that comes here now reads memory that was written on another queue."""
        if buffer.queue is not self:
            self.follow(buffer.queue, buffer.written)
            if self not in buffer.readers:
                buffer.readers = (*buffer.readers, self)

    def writes(self, buffer: CudaBuffer) -> None:
        """Work that comes here now writes to memory: it waits for those who read it, and takes it over."""
        for reader in buffer.readers:
            self.follow(reader, reader.submitted)
        buffer.readers = ()
        if buffer.queue is not self:
            self.follow(buffer.queue, buffer.written)
            buffer.move(self)

    def follow(self, other: Queue, number: int | None = None) -> None:
        """What comes here from now on starts after the work of another queue, up to a number."""
        wanted = other.submitted if number is None else number
        if other is self or self.seen.get(other, 0) >= wanted:
            return
        driver = self.device.driver
        with other.device.entered(), other.lock:
            event = other.device.event()
            driver.record(event, other.handle)
            started = other.submitted
        with self.device.entered():
            driver.stream_waits(self.handle, event)
        self.seen[other] = started
        other.device.used(event)

    @property
    def finished(self) -> int:
        """The number of the last piece of work that is known to be done."""
        return ctypes.c_uint32.from_address(self.progress).value

    def suspects(self) -> list[Work]:
        """What may have failed: everything after what is known to be done, up to the next mark."""
        done, found = self.finished, []
        for number, work, marked in list(self.recent):
            if number > done:
                found.append(work)
                if marked:
                    break
        return found

    def __repr__(self) -> str:
        return f"<queue {self.handle:#x} of {self.device.name}>"


class Here(threading.local):
    """What holds for a thread: the device whose context it has entered, and the queues that it works on."""

    def __init__(self) -> None:
        self.device: CudaDevice | None = None
        self.queues: dict[CudaDevice, Queue] = {}


here = Here()
