"""Bind memory to programs: buffers of tensors, numbers of the host, and storages that are updated in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..functions.creation import tensor
from ..ir.graph import Value
from ..ir.size import known
from ..lazy.handle import Handle
from ..lazy.realize import realize
from ..lazy.storage import Base
from ..ops.broadcasting import Fill
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import Device, device
from .numbers import may_vary
from .tracing import HostNumber


class HostNumberBuffer:
    """A number of the host and the buffer in which programs read it."""

    def __init__(self, number: HostNumber) -> None:
        self.read = number.read
        self.kind = number.kind
        self.placeholder = number.placeholder
        type = number.placeholder.type
        self.device = device(type.device)
        self.buffer = self.device.allocate(type.dtype.bytes)
        self.array = self.device.view(self.buffer, type.dtype, ())

    def on(self, place: Device) -> Callable[[], DeviceBuffer]:
        """Return a buffer with the number on another device: cached while the number is unchanged."""
        before: Any = None
        there = self.buffer

        def brought() -> DeviceBuffer:
            nonlocal before, there
            now = self.read()
            if now is not before or now.__class__ is not float:
                before, there = now, place.number_from(self.updated_buffer())
            return there

        return brought

    def is_its_kind(self) -> bool:
        """Whether the number has the class that the program was compiled for."""
        return self.kind is None or ((now := self.read()).__class__ is self.kind and may_vary(now))

    def copied_buffer(self) -> DeviceBuffer:
        """Copy the current number to a new buffer."""
        return memory_of(tensor(self.read(), dtype=self.placeholder.dtype, device=self.device.name))

    def updated_buffer(self) -> DeviceBuffer:
        """Return the buffer, updated to the current number."""
        now = self.read()
        if self.kind is not None and (now.__class__ is not self.kind or (self.kind is int and not may_vary(now))):
            raise LookupError("a number is of another kind than when the function was traced")
        if self.array is None:
            return memory_of(tensor(now, dtype=self.placeholder.dtype))
        self.array[()] = now
        return self.buffer


def memory_of(x: Handle) -> DeviceBuffer:
    """Return the buffer of a tensor, computing its elements if needed."""
    return memory_in(x.value)


def memory_in(value: Value) -> DeviceBuffer:
    if value.buffer is None:
        realize([value])
    return value.buffer  # type: ignore[no-any-return]


def unshared(found: DeviceBuffer) -> DeviceBuffer:
    """Return memory that is safe to hand out: a copy if others may write to it."""
    return found.device.copy(found) if found.shared else found


def _constant_memory(value: Fill) -> DeviceBuffer:
    """Fill memory with one number, as the initial state of an optimizer: cheaper than a program."""
    shape = tuple([known(extent, {}) for extent in value.shape])
    return device(value.device).from_host(np.full(shape, value.value, value.dtype.numpy))


def unshare_storage(base: Base) -> DeviceBuffer:
    """Copy a storage's elements to memory that it owns, so that no reader sees the update."""
    value = base.current()
    memory = _constant_memory(value) if isinstance(value, Fill) else device(value.device).copy(memory_in(value))
    base.own(memory)
    return memory
