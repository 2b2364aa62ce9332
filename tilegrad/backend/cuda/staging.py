"""Pipeline copies between host and GPU through pinned memory: the GPU copies a piece while the host fills the next."""

from __future__ import annotations

import ctypes
from threading import RLock
from typing import TYPE_CHECKING

from ...runtime.buffer import DeviceBuffer

if TYPE_CHECKING:
    from ...runtime.device import Device
    from .device import CudaDevice
    from .queues import Queue

MAX_UNSTAGED_BYTES = 1 << 16
"""Bytes up to which the driver itself buffers the contents before it returns."""
STAGING_BYTES = 1 << 22
"""Bytes of a pinned block, and of a pipelined copy."""
MIN_PINNED_BYTES = 4096
"""Smallest pinned block of users, in bytes: a page."""


class StagingBlock:
    """Pinned memory, and the event after which it is free."""

    def __init__(self, device: CudaDevice) -> None:
        self.address = device.driver.allocate_host(STAGING_BYTES)
        self.event = device.driver.new_event(False)
        self.pending = False


class Staging:
    """Two pinned pieces per direction for one device, allocated on first use."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self._up: list[StagingBlock] = []
        self._down: list[StagingBlock] = []
        self._lock_up, self._lock_down = RLock(), RLock()

    def upload(self, target: int, source: int, bytes: int, queue: Queue) -> None:
        """Copy host memory, which may change as soon as this returns."""
        driver = self.device.driver
        if bytes <= MAX_UNSTAGED_BYTES:
            if bytes:
                driver.to_device(target, source, bytes, queue.handle)
            return
        with self._lock_up:
            pieces = self._pieces(self._up)
            for n, start in enumerate(range(0, bytes, STAGING_BYTES)):
                piece, size = pieces[n % 2], min(STAGING_BYTES, bytes - start)
                if piece.pending:
                    driver.await_event(piece.event)
                ctypes.memmove(piece.address, source + start, size)
                driver.to_device(target + start, piece.address, size, queue.handle)
                driver.record(piece.event, queue.handle)
                piece.pending = True

    def download(self, target: int, source: int, bytes: int, queue: Queue) -> None:
        """Copy GPU memory to the host and wait for it."""
        driver = self.device.driver
        with self._lock_down:
            pieces = self._pieces(self._down)
            starts = range(0, bytes, STAGING_BYTES)
            for n in range(len(starts) + 1):
                if n < len(starts):
                    piece = pieces[n % 2]
                    driver.to_host(
                        piece.address, source + starts[n], min(STAGING_BYTES, bytes - starts[n]), queue.handle
                    )
                    driver.record(piece.event, queue.handle)
                if n:
                    piece, start = pieces[(n - 1) % 2], starts[n - 1]
                    driver.await_event(piece.event)
                    ctypes.memmove(target + start, piece.address, min(STAGING_BYTES, bytes - start))

    def _pieces(self, pieces: list[StagingBlock]) -> list[StagingBlock]:
        while len(pieces) < 2:
            pieces.append(StagingBlock(self.device))
        return pieces


class PinnedMemory:
    """A caching allocator of pinned host memory, in powers of two."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.free: dict[int, list[tuple[int, list[tuple[CudaDevice, int]]]]] = {}
        """Free addresses by size, each with the events after which no GPU reads it."""

    def take(self, host: Device, bytes: int) -> PinnedBuffer:
        """Allocate a CPU buffer in pinned memory."""
        size = max(MIN_PINNED_BYTES, 1 << max(0, bytes - 1).bit_length())
        device, blocks = self.device, self.free.setdefault(size, [])
        for n, (address, read) in enumerate(blocks):
            if all(reader.driver.event_done(event) for reader, event in read):
                del blocks[n]
                for reader, event in read:
                    reader.used(event)
                return PinnedBuffer(host, bytes, self, size, address)
        return PinnedBuffer(host, bytes, self, size, device.driver.allocate_host(size))


class PinnedBuffer(DeviceBuffer):
    """CPU memory that GPUs read directly."""

    __slots__ = ("pinned", "read", "size")

    def __init__(self, host: Device, bytes: int, pinned: PinnedMemory, size: int, address: int) -> None:
        super().__init__(host, bytes, address, pinned)
        self.pinned = pinned
        self.size = size
        self.read: list[tuple[CudaDevice, int]] = []
        """Events, with their devices, after submitted copies from here."""

    def read_by(self, queue: Queue) -> None:
        """Record a submitted copy from here, which may outlive the buffer."""
        event = queue.device.event()
        queue.device.driver.record(event, queue.handle)
        self.read.append((queue.device, event))

    def __del__(self) -> None:
        super().__del__()
        self.pinned.free.setdefault(self.size, []).append((self.address, self.read))
