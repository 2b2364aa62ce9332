"""The memory of a GPU: a caching allocator with size classes and a free list per queue.

A freed block can be reused on its queue at once, because later work runs later. A block that other queues have read
returns when its queue waits for them. New memory comes from the driver's pool, which remaps address space, so released
large blocks serve any other size.
"""

from __future__ import annotations

from itertools import accumulate
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import OutOfMemoryError
from ...runtime import events
from ...runtime.buffer import DeviceBuffer, Loan, Usage
from ..shortage import REMEDIES, format_bytes, largest_tensors
from .driver import OUT_OF_MEMORY, DriverFault

if TYPE_CHECKING:
    from .device import CudaDevice
    from .queues import Queue

MIN_BLOCK_BYTES = 512
"""Smallest block, and granularity of small ones, in bytes."""
LARGE_GRANULARITY = 1 << 21
"""Granularity of large blocks, in bytes."""
MIN_LARGE_BYTES = 1 << 25
"""Smallest large block, in bytes."""
CACHE_DIVISOR = 8
"""Cached free memory is limited to 1 / CACHE_DIVISOR of the GPU's memory when other sizes are needed."""
FOREIGN_DIVISOR = 8
"""Memory held by others is named from 1 / FOREIGN_DIVISOR of the GPU's memory on."""
MAX_PENDING_CHANGES = 4096
"""Usage changes collected before they are summed."""
MAX_SEARCHED_BLOCKS = 16
"""Free blocks searched for a preferred address."""


class FreeBlocks(list[int]):
    """Addresses of the free blocks of one size on one queue."""

    __slots__ = ("bytes",)

    def __init__(self, bytes: int) -> None:
        super().__init__()
        self.bytes = bytes


class CudaBuffer(DeviceBuffer):
    """A block of GPU memory, returned to its queue when the buffer dies."""

    __slots__ = ("blocks", "queue", "readers", "written")

    def __init__(self, device: CudaDevice, bytes: int, queue: Queue, blocks: FreeBlocks, address: int) -> None:
        self.device = device
        self.bytes = bytes
        self.address = address
        self.memory = None
        self.blocks = blocks
        self.queue = queue
        """The queue that wrote it last."""
        self.written = queue.submitted + 1
        self.readers: tuple[Queue, ...] = ()
        """Other queues that have read it since."""
        device.usage.add(blocks.bytes)

    def move(self, queue: Queue) -> None:
        """Move the memory to another queue."""
        self.queue = queue
        self.blocks = blocks_of(queue, self.blocks.bytes)

    def lend(self, offset: int = 0) -> CudaLoan:
        return CudaLoan(self, offset)

    def twin(self) -> CudaBuffer:
        made = object.__new__(CudaBuffer)
        made.device, made.bytes, made.address, made.memory = self.device, self.bytes, self.address, None
        made.blocks, made.queue, made.written, made.readers = FreeBlocks(0), self.queue, self.written, ()
        return made

    def hand_over(self, twin: CudaBuffer) -> None:
        self.blocks, twin.blocks = twin.blocks, self.blocks
        self.readers, twin.readers = twin.readers, self.readers

    def __del__(self) -> None:
        device, blocks = self.device, self.blocks
        device.usage.add(-blocks.bytes)
        if self.readers:
            device.memory.returned.append((self.address, self.queue, blocks, self.readers))  # type: ignore[attr-defined]
        else:
            blocks.append(self.address)


class CudaLoan(Loan):
    """A loan of GPU memory; forwards its state to the owner."""

    __slots__ = ()
    own: ClassVar[frozenset[str]] = frozenset({"address", "bytes", "device", "memory", "whole"})

    def lend(self, offset: int = 0) -> CudaLoan:
        return CudaLoan(self, offset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self if name in self.own else self.whole, name, value)


class AllMemory(CudaBuffer):
    """All of a GPU's address space, for work whose accesses are unknown; ordered only with its own queue."""

    __slots__ = ()

    def __init__(self, device: CudaDevice, queue: Queue) -> None:
        self.device, self.bytes, self.address, self.memory = device, 0, 0, None
        self.queue, self.written, self.readers = queue, 0, ()

    def move(self, queue: Queue) -> None:
        self.queue = queue

    def twin(self) -> None:  # type: ignore[override]
        return None

    def __del__(self) -> None:
        pass  # owns no memory


class Tally(Usage):
    """Counts bytes without a lock: changes are appended in order and summed later."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._live = self._peak = 0
        self.changes: list[int] = []
        self.add = self.changes.append  # type: ignore[method-assign, assignment]

    def update_peaks(self) -> None:
        """Sum the collected changes."""
        with self._lock:
            count = len(self.changes)
            sums = list(accumulate(self.changes[:count], initial=self._live))
            del self.changes[:count]
            self._live, self._peak = sums[-1], max(self._peak, *sums)

    @property
    def live(self) -> int:  # type: ignore[override]
        self.update_peaks()
        return self._live

    @property
    def peak(self) -> int:  # type: ignore[override]
        self.update_peaks()
        return self._peak

    def reset_peak(self) -> None:
        """Reset the peak to the current usage."""
        with self._lock:
            self._peak = self.live


def class_bytes(bytes: int) -> int:
    """Return the size class of a request, at most an eighth larger.

    >>> [class_bytes(n) for n in (0, 513, 5000, 100_000_001)]
    [512, 1024, 5120, 100663296]
    """
    if bytes >= MIN_LARGE_BYTES:
        return -(-bytes // LARGE_GRANULARITY) * LARGE_GRANULARITY
    step = max(MIN_BLOCK_BYTES, 1 << max(0, (bytes - 1).bit_length() - 4))
    return max(1, -(-bytes // step)) * step


def blocks_of(queue: Queue, size: int) -> FreeBlocks:
    """Return the free blocks of a size class on a queue."""
    found = queue.blocks.get(size)
    return found if found is not None else queue.blocks.setdefault(size, FreeBlocks(size))


class DeviceMemory:
    """Allocates the memory of one device."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.usage = device.usage
        self.held = self.held_peak = 0
        """Bytes obtained from the driver, now and at most."""
        self.fetched = 0
        """Number of driver allocations; constant in the steady state."""
        self.returned: list[tuple[int, Queue, FreeBlocks, tuple[Queue, ...]]] = []
        """Freed blocks that other queues may still read. (Buffers die anywhere, so nothing is called then.)"""
        self._lock = RLock()

    def take(self, queue: Queue, bytes: int, size: int = 0, preferred: int = 0) -> CudaBuffer:
        """Allocate a buffer for work submitted to this queue from now on.

        `size` is its size class, if known; `preferred` is a preferred address, which spares updates of graphs.
        """
        blocks = blocks_of(queue, size or class_bytes(bytes))
        try:
            address = blocks.pop()
            if preferred and address != preferred and preferred in blocks[-MAX_SEARCHED_BLOCKS:]:
                blocks.remove(preferred)
                blocks.append(address)
                address = preferred
        except IndexError:
            address = self._fresh(queue, blocks)
        except ValueError:  # another thread took it
            pass
        if len(self.usage.changes) > MAX_PENDING_CHANGES:
            self.usage.update_peaks()
        return CudaBuffer(self.device, bytes, queue, blocks, address)

    def _fresh(self, queue: Queue, blocks: FreeBlocks) -> int:
        with self._lock:
            self._reclaim()
            if blocks:
                return blocks.pop()
            if blocks.bytes >= LARGE_GRANULARITY and self.cached > self.device.properties.total_memory // CACHE_DIVISOR:
                self._release_free_blocks()
            driver = self.device.driver
            try:
                address = driver.allocate(blocks.bytes, queue.handle)
            except DriverFault as fault:
                if fault.code != OUT_OF_MEMORY:
                    raise
                self.empty()
                address = self._allocate_or_fail(queue, blocks.bytes)
            self.held += blocks.bytes
            self.held_peak = max(self.held_peak, self.held)
            self.fetched += 1
        if events.listeners:
            events.emit("allocate", "pool", self.device.name, bytes=blocks.bytes)
        return address

    def _allocate_or_fail(self, queue: Queue, bytes: int) -> int:
        try:
            return self.device.driver.allocate(bytes, queue.handle)
        except DriverFault as fault:
            if fault.code != OUT_OF_MEMORY:
                raise
        self.device.driver.trim(self.device.number)  # a failed pool allocation keeps the memory it could get
        raise OutOfMemoryError(self.shortage(bytes))

    def _reclaim(self) -> None:
        """Make blocks read by other queues reusable: their queue waits for the readers."""
        while self.returned:
            address, queue, blocks, readers = self.returned.pop()
            for reader in readers:
                queue.wait_for(reader)
            blocks.append(address)

    def _release_free_blocks(self) -> None:
        """Return free blocks to the driver's pool in queue order, without waiting."""
        driver = self.device.driver
        for queue in self.device.queues:
            for blocks in list(queue.blocks.values()):
                while blocks:
                    driver.free(blocks.pop(), queue.handle)
                    self.held -= blocks.bytes

    def empty(self) -> None:
        """Return all free memory to the system."""
        with self._lock:
            self._reclaim()
            self._release_free_blocks()
            self.device.synchronize()
            self.device.driver.trim(self.device.number)

    @property
    def cached(self) -> int:
        """Bytes in free blocks."""
        return self.held - self.device.usage.live

    def shortage(self, bytes: int) -> str:
        """Return the message of an out-of-memory error."""
        device = self.device
        free, total = device.driver.memory_info()
        live = device.usage.live
        lines = [
            f"{device.name} ({device.properties.name}) has no {format_bytes(bytes)} left: {format_bytes(free)} of "
            f"{format_bytes(total)} are free, {format_bytes(live)} are held by tensors and temporaries of this process"
        ]
        if total - free - live > total // FOREIGN_DIVISOR:
            lines.append(
                f"others (libraries in this process, or other processes) hold {format_bytes(total - free - live)}"
            )
        return "\n".join([*lines, *largest_tensors(device.name), REMEDIES])
