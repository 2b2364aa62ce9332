"""Queues: the streams of a GPU, each with its free memory and its recent work.

Work on one queue runs in order. Buffers record the queue that wrote them and the queues that have read them since, so
that queues wait for each other exactly where they share memory, without user synchronisation.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .device import CudaDevice
    from .memory import CudaBuffer, FreeBlocks

MAX_RECENT_WORK = 256
"""Items of work that a queue records to name a failing one."""


DIRECT_RUNS = 2
"""First runs of a program, in which every kernel's end is marked to find errors; they use no graph, whose construction
costs several runs.
"""
MARK_INTERVAL = 16
"""Interval, in items of work, of progress marks after that; a mark costs GPU time."""


class QueuedWork(NamedTuple):
    """A record of submitted work: the program, and its kernels with their origins."""

    program: str
    kernels: tuple[tuple[str, str], ...]


class Queue:
    """A stream of a device, which lives as long as the device."""

    def __init__(self, device: CudaDevice, handle: int, progress: int, priority: int = 0) -> None:
        self.device = device
        self.handle = handle
        self.priority = priority
        self.submitted = 0
        """Items of work submitted, counted after they are on the stream."""
        self.lock = RLock()
        """Held while work is submitted and counted."""
        self.growing = RLock()
        """Held while the arena is replaced; acquired before any `lock`."""
        self.progress = progress
        """Address of the pinned word that receives the number of the last finished item."""
        self.recent: deque[tuple[int, QueuedWork, bool]] = deque(maxlen=MAX_RECENT_WORK)
        """Recent work: number, description, and whether its end is marked."""
        self.seen: dict[Queue, int] = {}
        """Item of each other queue that work submitted here already waits for."""
        self.blocks: dict[int, FreeBlocks] = {}
        """Free memory by size: reusable on this queue without waiting."""
        self.arena: CudaBuffer | None = None
        """Memory for temporaries, shared by all programs of the queue."""

    def count_submitted(self) -> int:
        """Count a submitted item and return its number."""
        with self.lock:
            self.submitted = number = self.submitted + 1
            return number

    def reserve_arena(self, bytes: int) -> CudaBuffer:
        """Return memory for temporaries, at least this large; it never shrinks."""
        arena = self.arena
        if arena is None or arena.bytes < bytes:
            with self.growing:
                arena = self.arena
                if arena is None or arena.bytes < bytes:
                    arena = self.arena = self.device.memory.take(self, bytes)
        return arena

    def reads(self, buffer: CudaBuffer) -> None:
        """Wait for the last write of a buffer by another queue, and record the read."""
        if buffer.queue is not self:
            self.wait_for(buffer.queue, buffer.written)
            if self not in buffer.readers:
                buffer.readers = (*buffer.readers, self)

    def writes(self, buffer: CudaBuffer) -> None:
        """Wait for the readers of a buffer, and take it over."""
        for reader in buffer.readers:
            self.wait_for(reader, reader.submitted)
        buffer.readers = ()
        if buffer.queue is not self:
            self.wait_for(buffer.queue, buffer.written)
            buffer.move(self)

    def wait_for(self, other: Queue, number: int | None = None) -> None:
        """Let new work wait for another queue's work, up to an item."""
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
        """Number of the last item known to be done."""
        return ctypes.c_uint32.from_address(self.progress).value

    def suspects(self) -> list[QueuedWork]:
        """Return the items that may have failed: those after the last finished one, up to the next mark."""
        done, found = self.finished, []
        for number, work, marked in list(self.recent):
            if number > done:
                found.append(work)
                if marked:
                    break
        return found

    def __repr__(self) -> str:
        return f"<queue {self.handle:#x} of {self.device.name}>"


class ThreadDevice(threading.local):
    """The thread's current device and queues."""

    def __init__(self) -> None:
        self.device: CudaDevice | None = None
        self.queues: dict[CudaDevice, Queue] = {}


here = ThreadDevice()


@contextmanager
def on_queue(queue: Queue) -> Iterator[None]:
    """Run this thread's work on a queue within the block."""
    before = here.queues.get(queue.device)
    here.queues[queue.device] = queue
    try:
        yield
    finally:
        if before is None:
            del here.queues[queue.device]
        else:
            here.queues[queue.device] = before
