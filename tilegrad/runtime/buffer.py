"""A piece of a device's memory. It goes back when the last reference to it goes."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .device import Device


class Buffer:
    """`bytes` bytes of memory of a device.

    `address` is where they are, for devices that have addresses; `memory` is whatever else the device needs
    to find them (an array, a handle). Devices with a pool have a subclass that gives the memory back to it.
    """

    __slots__ = ("__weakref__", "address", "bytes", "device", "memory")

    def __init__(self, device: Device, bytes: int, address: int = 0, memory: Any = None) -> None:
        self.device = device
        self.bytes = bytes
        self.address = address
        self.memory = memory
        device.usage.add(bytes)

    def __del__(self) -> None:
        if hasattr(self, "memory"):  # else the device refused, and nothing was counted
            self.device.usage.add(-self.bytes)

    def __repr__(self) -> str:
        return f"<{self.bytes} bytes on {self.device.name}>"


class Everything(Buffer):
    """All that a device has addresses for, from address 0 on."""

    __slots__ = ()

    def __init__(self, device: Device) -> None:
        self.device, self.bytes, self.address, self.memory = device, 0, 0, None

    def __del__(self) -> None:
        pass  # nothing of its own


class Usage:
    """How much memory of a device is in use."""

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        self.allocations = 0
        self._lock = RLock()  # a buffer may die, by garbage collection, while its thread is in here

    def add(self, bytes: int) -> None:
        with self._lock:
            self.live += bytes
            if bytes > 0:
                self.allocations += 1
                self.peak = max(self.peak, self.live)
