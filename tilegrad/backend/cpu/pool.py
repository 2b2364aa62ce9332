"""The memory pool of the CPU: blocks in size classes, kept when they are freed.

Touching fresh memory costs more than most kernels take to fill it (a page fault per 4 KiB), so a block returns to the
system only when too much is free. Blocks are aligned to 64 bytes; large ones are mapped individually, at a multiple of
2 MiB and on huge pages; small ones are cut from chunks of 2 MiB.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

from ...config import settings
from ...errors import OutOfMemoryError
from ...runtime import events
from ...runtime.device import Statistics
from ...runtime.singletons import lock

ALIGNMENT = 64
"""Alignment of buffers, in bytes: a cache line."""
CHUNK_BYTES = 1 << 21
"""Bytes that are asked of the system at once, for blocks without a mapping of their own: a huge page."""
CLASSES_PER_DOUBLING = 8
"""Size classes between a power of two and the next, which bound the bytes that are lost to rounding."""
MIN_MAPPED_BYTES = 1 << 18
"""Bytes from which on a block is a mapping of its own."""
MAX_MEMORY_MULTIPLE = 4
"""Multiple of the machine's memory beyond which a block is refused."""


class FreeList(list[int]):
    """The addresses of the free blocks of one size class."""

    __slots__ = ("bytes", "made")

    def __init__(self, bytes: int) -> None:
        super().__init__()
        self.bytes = bytes
        self.made = 0


def class_bytes(bytes: int) -> int:
    """Round a request up to its size class: at most an eighth more than requested, or 64 bytes.

    >>> [class_bytes(n) for n in (0, 1, 64, 65, 1000, 1025, 1 << 20, (1 << 20) + 1)]
    [64, 64, 64, 128, 1024, 1152, 1048576, 1179648]
    """
    if bytes <= CLASSES_PER_DOUBLING * ALIGNMENT:
        return max(1, -(-bytes // ALIGNMENT)) * ALIGNMENT
    step = max(ALIGNMENT, (1 << (bytes - 1).bit_length() - 1) // CLASSES_PER_DOUBLING)
    return -(-bytes // step) * step


class MemoryPool:
    """Allocates addresses. Taking a free block is one `list.pop`, returning it one `append`.

    `peak` is sampled whenever the system is asked for memory, and whenever statistics are read.
    """

    def __init__(self, keep: int = 0) -> None:
        self.keep = keep or settings().memory or _memory_of_machine() // 8
        self.classes: dict[int, FreeList] = {}
        self.mappings: dict[int, mmap.mmap] = {}
        self.held = self.held_peak = 0
        self.allocations = 0
        """Number of requests to the system for memory: constant in the steady state."""
        self._chunk = (0, 0)
        self._peak = 0
        self._lock = lock()  # garbage collection may run a buffer's finalizer while its thread holds the lock

    def blocks(self, bytes: int) -> FreeList:
        """Return the free list that serves requests of this size."""
        size = class_bytes(bytes)
        found = self.classes.get(size)
        return found if found is not None else self.classes.setdefault(size, FreeList(size))

    def take(self, blocks: FreeList) -> int:
        """Take a block of a size class and return its address."""
        try:
            return blocks.pop()
        except IndexError:
            return self.fresh(blocks)

    def trim_excess(self) -> None:
        """Trim the pool if too much is free; to be called after a large block was returned (by `blocks.append`)."""
        if self.held > self.keep and self.free > self.keep:
            self.trim(self.keep)

    @property
    def free(self) -> int:
        return sum(blocks.bytes * len(blocks) for blocks in list(self.classes.values()))

    @property
    def live(self) -> int:
        """Bytes of the blocks in use."""
        return sum([blocks.bytes * (blocks.made - len(blocks)) for blocks in list(self.classes.values())])

    @property
    def statistics(self) -> Statistics:
        live = self.live
        self._peak = max(self._peak, live)
        return Statistics(live, self._peak, self.held, self.allocations, self.held_peak)

    def reset_peaks(self) -> None:
        """Reset the peaks of the statistics to the current usage."""
        self._peak, self.held_peak = 0, self.held

    def trim(self, keep: int = 0) -> None:
        """Return free large blocks to the system, the largest first, until at most `keep` bytes are free."""
        with self._lock:
            excess = self.free - keep
            for size in sorted(self.classes, reverse=True):
                blocks = self.classes[size]
                while size >= MIN_MAPPED_BYTES and excess > 0 and blocks:
                    try:
                        address = blocks.pop()
                    except IndexError:
                        break
                    self.mappings.pop(address).close()
                    blocks.made -= 1
                    self.held -= size
                    excess -= size
                    if events.listeners:
                        events.emit("free", "pool", "cpu", bytes=size)

    def fresh(self, blocks: FreeList) -> int:
        """Allocate a new block of a size class and return its address."""
        with self._lock:
            size = blocks.bytes
            start = events.now()
            address = self._mapped(size) if size >= MIN_MAPPED_BYTES else self._cut(size)
            blocks.made += 1
            self._peak = max(self._peak, self.statistics.live)
            if events.listeners:
                events.emit("allocate", "pool", "cpu", start, events.now(), size)
            return address

    def _cut(self, size: int) -> int:
        """Cut a small block from the current chunk; the rest of a chunk too short for it is lost (under 13 %)."""
        at, end = self._chunk
        if at + size > end:
            at = self._mapped(CHUNK_BYTES)
            end = at + CHUNK_BYTES
        self._chunk = (at + size, end)
        return at

    def _mapped(self, size: int) -> int:
        try:
            mapping, address = _map(size)
        except (OSError, OverflowError):
            self.trim()  # free blocks may be what is missing
            try:
                mapping, address = _map(size)
            except (OSError, OverflowError) as e:
                from ..shortage import REMEDIES, largest_tensors

                head = f"no memory for a tensor of {size:,} bytes: {self.statistics.live:,} bytes are live"
                raise OutOfMemoryError("\n".join([head, *largest_tensors("cpu"), REMEDIES])) from e
        self.mappings[address] = mapping
        self.held += size
        self.held_peak = max(self.held_peak, self.held)
        self.allocations += 1
        return address


def _map(size: int) -> tuple[mmap.mmap, int]:
    """Map fresh memory, private to the process (not shared after a fork), and return its address."""
    if size > MAX_MEMORY_MULTIPLE * _memory_of_machine():
        raise OverflowError("some machines would give the addresses, and end the process when they are used")
    huge = size >= CHUNK_BYTES and settings().huge_pages and hasattr(mmap, "MADV_HUGEPAGE")
    length = size + CHUNK_BYTES if huge else size  # address space only: untouched pages cost nothing
    if hasattr(mmap, "MAP_PRIVATE"):
        mapping = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        mapping = mmap.mmap(-1, length)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    if not huge:
        return mapping, address
    aligned = -(-address // CHUNK_BYTES) * CHUNK_BYTES
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        pass  # no huge pages here
    return mapping, aligned


def _memory_of_machine() -> int:
    """Bytes of memory that this process may have: those of the machine, or of its container."""
    found = [8 << 30]
    try:
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (AttributeError, ValueError, OSError):
        pass  # not Linux, or no limit ("max")
    return min(found)
