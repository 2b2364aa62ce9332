"""Bind memory to programs: buffers of tensors, numbers of the host, and storages that are updated in place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ..functions.creation import tensor
from ..ir.graph import Input, Value
from ..lazy.evaluation import constant_memory
from ..lazy.handle import Handle, state
from ..lazy.realize import realize
from ..lazy.storage import Base
from ..ops.broadcasting import Fill
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import Device, device
from ..runtime.guarded import GuardedCall
from .numbers import may_vary
from .tracing import Captured, HostNumber


class ProgramInput(ABC):
    """An input of a program, with its memory and value in each call."""

    placeholder: Input
    is_lent = False
    """Whether a result shares its memory."""

    @abstractmethod
    def memory(self, leaves: Sequence[Any] = ()) -> DeviceBuffer:
        """Return the memory to run on, for the arguments of a call."""

    @abstractmethod
    def present(self, leaves: Sequence[Any] = ()) -> Value:
        """Return the value in a call."""


class CapturedInput(ProgramInput):
    """A captured storage: an input of the program, and also an output if the function writes to it."""

    is_reread = False
    """Whether gradients of results read the elements from before the update."""

    def __init__(self, captured: Captured, standing: Value, is_updated: bool) -> None:
        self.base = captured.base
        self.placeholder = captured.placeholder
        self.standing = standing
        """Its value when the function begins."""
        self.is_updated = is_updated
        standing.note().hooks = None  # of the tensors that it stands for: they call them themselves

    def is_current(self) -> bool:
        """Whether it has the type and the kind of history that it had in the trace."""
        have, wanted = self.base.storage.value.type, self.placeholder.type
        return (have is wanted or have == wanted) and self.base.current().tracked is self.standing.tracked

    def memory(self, leaves: Sequence[Any] = ()) -> DeviceBuffer:
        owned = self.base.storage.owned
        if self.is_updated:
            return self.base.storage.free() or unshare_storage(self.base)
        if owned is not None and not self.is_lent:
            return owned
        found = memory_in(self.base.current())
        return unshared(found) if self.is_lent else found

    def present(self, leaves: Sequence[Any] = ()) -> Value:
        """Return its value in a call; without its elements if they are overwritten and nothing reads them."""
        return self.base.standing() if self.is_updated and not self.is_reread else self.base.current()

    def is_guardable(self) -> bool:
        """Whether generated guards can look up its memory."""
        if self.base.storage.owned is None:
            return not (self.is_updated or self.is_lent) and self.base.standing().buffer is not None
        return True

    def guard(self, call: GuardedCall) -> str:
        """Guard that the storage and its history are the same; return source that looks up the memory."""
        value = self.base.standing()
        base, storage = call.bind("base", self.base), call.bind("storage", self.base.storage)
        call.guard(f"{base}.value is {call.bind('value', value)}")
        call.guard(f"{storage}.value is {call.bind('whole', self.base.storage.value)}")
        if self.base.storage.owned is None:
            call.guard(f"{base}.seen == {storage}.changes")
            return f"{call.bind('value', value)}.buffer"
        if self.is_updated:
            call.guard(f"((lent := {storage}.lent) is None or lent() is None)")
        return f"{storage}.{'loan()' if self.is_lent else 'owned'}"


class HostNumberInput(ProgramInput):
    """A number of the host and the buffer in which programs read it."""

    place: Device | None = None
    """The device that the number is copied to, if the program runs on another."""

    def __init__(self, number: HostNumber) -> None:
        self.read = number.read
        self.kind = number.kind
        self.placeholder = number.placeholder
        type = number.placeholder.type
        self.device = device(type.device)
        self.buffer = self.device.allocate(type.dtype.bytes)
        self.array = self.device.view(self.buffer, type.dtype, ())

    def memory(self, leaves: Sequence[Any] = ()) -> DeviceBuffer:
        return self._copied() if self.is_lent else self._updated()

    def present(self, leaves: Sequence[Any] = ()) -> Value:
        return tensor(self.read(), dtype=self.placeholder.dtype).value

    def is_current(self) -> bool:
        """Whether the number has the class that the program was compiled for."""
        return self.kind is None or ((now := self.read()).__class__ is self.kind and may_vary(now))

    def guard(self, call: GuardedCall) -> str:
        """Return source that looks up its memory, on the program's device."""
        read = self._updated if self.place is None or self.array is None else self._on(self.place)
        return f"{call.bind('number', read)}()"

    def _on(self, place: Device) -> Callable[[], DeviceBuffer]:
        """Return a buffer with the number on another device: cached while the number is unchanged."""
        before: Any = None
        there = self.buffer

        def brought() -> DeviceBuffer:
            nonlocal before, there
            now = self.read()
            if now is not before or now.__class__ is not float:
                before, there = now, place.number_from(self._updated())
            return there

        return brought

    def _copied(self) -> DeviceBuffer:
        return memory_of(tensor(self.read(), dtype=self.placeholder.dtype, device=self.device.name))

    def _updated(self) -> DeviceBuffer:
        now = self.read()
        if self.kind is not None and (now.__class__ is not self.kind or (self.kind is int and not may_vary(now))):
            raise LookupError("a number is of another kind than when the function was traced")
        if self.array is None:
            return memory_of(tensor(now, dtype=self.placeholder.dtype))
        self.array[()] = now
        return self.buffer


def memory_of(x: Handle) -> DeviceBuffer:
    """Return the buffer of a tensor, computing its elements if needed."""
    return memory_in(x.value if x._moves or state.trace is not None else x.own_value())


def memory_in(value: Value) -> DeviceBuffer:
    if value.buffer is None:
        realize([value])
    return value.buffer  # type: ignore[no-any-return]


def unshared(found: DeviceBuffer) -> DeviceBuffer:
    """Return memory that is safe to hand out: a copy if others may write to it."""
    return found.device.copy(found) if found.shared else found


def unshare_storage(base: Base) -> DeviceBuffer:
    """Copy a storage's elements to memory that it owns, so that no reader sees the update."""
    value = base.current()
    memory = constant_memory(value) if isinstance(value, Fill) else device(value.device).copy(memory_in(value))
    base.own(memory)
    return memory
