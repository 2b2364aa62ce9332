"""A piece of a device's memory. It goes back when the last reference to it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .once import lock

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

    shared: ClassVar[bool] = False
    """Whether it is memory of somebody else, who may write to it at any time."""

    @property
    def owner(self) -> Buffer:
        """The buffer whose memory this is: itself, unless it is a loan."""
        return self

    def lend(self, offset: int = 0) -> Loan:
        """A loan of the memory from some byte on."""
        return Loan(self, offset)

    def twin(self) -> Buffer | None:
        """Another buffer on the same memory, which this one still gives back; None if that cannot be."""
        return None

    def hand_over(self, twin: Any) -> None:
        """From now on the twin gives the memory back, not this one."""

    def __repr__(self) -> str:
        return f"<{self.bytes} bytes on {self.device.name}>"


class Loan(Buffer):
    """The memory of another buffer from some byte on.

    Who writes to memory lends it to readers: as long as a loan is alive, somebody may still read.
    """

    __slots__ = ("whole",)

    def __init__(self, whole: Buffer, offset: int = 0) -> None:
        self.device, self.whole = whole.device, whole
        self.bytes, self.address = whole.bytes - offset, whole.address + offset
        self.memory = whole.memory[offset:] if isinstance(whole.memory, np.ndarray) else whole.memory

    @property
    def owner(self) -> Buffer:
        return self.whole.owner

    @property
    def shared(self) -> bool:  # type: ignore[override]
        return self.whole.shared

    def twin(self) -> None:
        return None  # the memory is not its own

    def __del__(self) -> None:
        pass  # nothing of its own


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
        self._lock = lock()  # a buffer may die, by garbage collection, while its thread is in here

    def add(self, bytes: int) -> None:
        with self._lock:
            self.live += bytes
            if bytes > 0:
                self.allocations += 1
                self.peak = max(self.peak, self.live)
