"""Define buffers: memory of a device, freed with the last reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .singletons import lock

if TYPE_CHECKING:
    from .device import Device


class DeviceBuffer:
    """`bytes` bytes of memory of a device.

    `address` is set for devices that have addresses; `memory` is whatever else the device needs to find the memory (an
    array, a handle). Devices with a pool subclass this to return the memory to it.
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

    shared: ClassVar[bool] = False
    """Whether foreign code shares the memory and may write to it at any time."""

    @property
    def owner(self) -> DeviceBuffer:
        """The buffer that owns the memory: itself, unless it is a loan."""
        return self

    def lend(self, offset: int = 0) -> Loan:
        """Lend the memory from a byte offset on."""
        return Loan(self, offset)

    def twin(self) -> DeviceBuffer | None:
        """Return a second buffer on the same memory, which this one still owns; None if the device has none."""
        return None

    def hand_over(self, twin: Any) -> None:
        """Transfer ownership to the second buffer: it frees the memory, not this one."""

    def __repr__(self) -> str:
        return f"<{self.bytes} bytes on {self.device.name}>"


class Loan(DeviceBuffer):
    """The memory of another buffer from a byte offset on.

    Writers lend memory to readers: while a loan is alive, it may still be read.
    """

    __slots__ = ("whole",)

    def __init__(self, whole: DeviceBuffer, offset: int = 0) -> None:
        self.device, self.whole = whole.device, whole
        self.bytes, self.address = whole.bytes - offset, whole.address + offset
        self.memory = whole.memory[offset:] if isinstance(whole.memory, np.ndarray) else whole.memory

    @property
    def owner(self) -> DeviceBuffer:
        return self.whole.owner

    @property
    def shared(self) -> bool:  # type: ignore[override]
        return self.whole.shared

    def twin(self) -> None:
        return None  # the memory is not its own

    def __del__(self) -> None:
        pass  # nothing of its own


class Everything(DeviceBuffer):
    """The whole address space of a device, from address 0 on."""

    __slots__ = ()

    def __init__(self, device: Device) -> None:
        self.device, self.bytes, self.address, self.memory = device, 0, 0, None

    def __del__(self) -> None:
        pass  # nothing of its own


class Usage:
    """Memory of a device in use."""

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        self.allocations = 0
        self._lock = lock()  # a buffer may die, by garbage collection, while its thread is in here

    def add(self, bytes: int) -> None:
        with self._lock:
            self.live += bytes
            if bytes > 0:
                self.allocations += 1
                self.peak = max(self.peak, self.live)

    def reset_peak(self) -> None:
        """Reset the peak to the current usage."""
        with self._lock:
            self.peak = self.live
