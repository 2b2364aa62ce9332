"""Read memory that foreign code may write to (arrays of numpy, DLPack) as it is when an operation is recorded.

Operations run later than they are recorded, and compute with what the memory held then. So each one reads a *snapshot*
of the elements. It is taken when the operation has been recorded, and shared by the next ones while its bytes are still
those of the memory. An operation that makes less than it reads, such as rows of a data set, is computed instead.

The tensor itself, and its views, stay on the memory.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakSet, ref

import numpy as np

from ..ir.dtype import uint8
from ..ir.graph import Input, Value, topological
from ..ir.node import amend
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import device
from ..runtime.exposure import expose, is_exposed
from .elements import MemoryPart, element_access
from .evaluation import drop_history, is_known
from .handle import Handle, Surroundings, recorders, state
from .layout import layout
from .storage import NEVER, Base, replaced

MAX_COMPARED_BYTES = 1 << 26
"""Bytes of a snapshot up to which it is compared with the memory to be used again."""
MAX_BYTES_COPIED_TO_COMPARE = 1 << 16
"""Bytes of dense elements up to which Python compares them as two strings: numpy needs ten times as long to begin."""
MIN_COMPUTED_BYTES = 1 << 20
"""Bytes of snapshots from which a smaller result is computed instead: a program costs more than copying less."""


class ElementSnapshot:
    """The elements of a tensor on foreign memory that operations read."""

    __slots__ = ("__weakref__", "checked", "leaf", "of", "part", "value")

    def __init__(self, value: Value, leaf: Value, of: Value, part: MemoryPart | None, checked: int) -> None:
        self.value = ref(value)
        """What operations read; it is gone when no recorded work needs it."""
        self.leaf = ref(leaf)
        """The whole memory of which it is a view, or itself."""
        self.of = ref(of)
        """The value of the tensor."""
        self.part = part
        """The part of the memory that it has copied, if not the whole."""
        self.checked = checked
        """The count of operations at which it had the elements of the memory."""

    @property
    def bytes(self) -> int:
        """The bytes that are copied."""
        found = (self.leaf if self.part is None else self.value)()
        bytes: Any = 0 if found is None else found.type.bytes
        return bytes  # type: ignore[no-any-return]

    def take(self) -> None:
        """Copy the elements."""
        value, leaf = self.value(), self.leaf()
        if value is None or leaf is None:
            return
        place = device(leaf.type.device)
        if self.part is None:
            leaf.hold(place.copy(leaf.buffer))
        elif value.buffer is None:
            value.hold(place.from_host(np.ascontiguousarray(_elements(value, self.part, leaf.buffer))))

    def is_equal(self, memory: DeviceBuffer) -> bool:
        """Whether its elements are bit for bit those of the memory."""
        found = (self.leaf if self.part is None else self.value)()
        if found is None or found.buffer is None:
            return False
        if self.part is None and memory.bytes <= MAX_BYTES_COPIED_TO_COMPARE:
            access, then = element_access(uint8, found.type.device), found.buffer.address
            if access is not None:
                space, now, bytes = access.space, memory.address, memory.bytes
                return space[now : now + bytes].tobytes() == space[then : then + bytes].tobytes()
        if self.bytes > MAX_COMPARED_BYTES:
            return False
        part = self.part or _whole(found)
        held = _elements(found, _whole(found), found.buffer)
        return bool(np.array_equal(_elements(found, part, memory), held))


class PendingReads(threading.local):
    """Per thread: snapshots of the operation that is being recorded."""

    def __init__(self) -> None:
        self.operations = 0
        self.snapshots: list[ElementSnapshot] = []


_pending = PendingReads()
_exported: WeakSet[DeviceBuffer] = WeakSet()
"""Memory of tensors that other libraries share."""


def share_memory(memory: DeviceBuffer, export: bool = False) -> None:
    """Note that foreign code may write to memory: to that of an array, or (`export`) to that of a tensor."""
    expose(memory)
    if export:
        _exported.add(memory.owner)
    Surroundings.read_foreign = read_foreign
    if take_snapshots not in recorders:
        recorders.append(take_snapshots)


def is_foreign(memory: DeviceBuffer) -> bool:
    """Whether foreign code may write to memory."""
    return (memory.shared and is_exposed(memory)) or memory.owner in _exported


def read_foreign(x: Handle, value: Value) -> Value:
    """Return the value that the next operation reads: a snapshot if foreign code may write to the tensor's memory."""
    whole = value if not x._moves else x.base().current()
    memory = whole.buffer
    if memory is None or value.type.count == 0 or not is_foreign(memory) or _is_just_read(x, value, memory):
        amend(value, is_held=True)
        return value
    last: ElementSnapshot | None = x._snapshot
    if last is not None and last.of() is value and (known := last.value()) is not None:
        if last.checked == _pending.operations or last.is_equal(memory):
            last.checked = _pending.operations
            return known
    leaf = whole.copied() if isinstance(whole, Input) else replaced(whole, Input(whole.type))
    leaf.hold(memory)
    base = x.base()
    read = leaf if whole is value else base.cut(leaf, x._moves)
    amend(read, is_held=True)
    base.storage.seen_by(read)
    found = x._snapshot = ElementSnapshot(read, leaf, value, _part(x, read, base), _pending.operations)
    _pending.snapshots.append(found)
    return read


def _is_just_read(x: Handle, value: Value, memory: DeviceBuffer) -> bool:
    """Whether a value is a copy of few elements, made anew each time the value of a tensor is asked for."""
    own = value.buffer
    return own is not None and own is not memory and bool(x._moves) and x._seen == NEVER and not is_foreign(own)


def _part(x: Handle, read: Value, base: Base) -> MemoryPart | None:
    """Return the part of the memory that a view has; None if it is not to be copied alone."""
    if not x._moves or x._strides is not None or read.tracked or base.__class__ is not Base:
        return None
    if base.storage.value.type.dtype is not read.type.dtype or element_access(read.type.dtype, read.device) is None:
        return None
    found, type, whole = layout(x), read.type, base.value.type
    offset: Any = found.offset
    return MemoryPart(type.shape, found.strides, offset) if type.bytes < whole.bytes else None  # type: ignore[operator]


def _whole(value: Value) -> MemoryPart:
    """Return the memory of a value as a vector."""
    count: Any = value.type.count
    return MemoryPart((count,), (1,), 0)


def _elements(value: Value, part: MemoryPart, memory: DeviceBuffer) -> Any:
    """Return a part of memory as an array of bits."""
    array = device(value.device).view(memory, value.dtype, (memory.bytes // value.dtype.bytes,))
    bits: Any = array.view(f"u{array.itemsize}")  # type: ignore[union-attr]
    steps = [stride * bits.itemsize for stride in part.strides]
    return np.lib.stride_tricks.as_strided(bits[part.offset :], part.shape, steps)


def take_snapshots(tensor: Handle, value: Value) -> None:
    """Take the snapshots that the operation just recorded reads, or compute its result if that is smaller."""
    _pending.operations += 1
    if not _pending.snapshots:
        return
    found, _pending.snapshots = [s for s in _pending.snapshots if s.value() is not None], []
    result: Any = value.type.bytes
    if sum([s.bytes for s in found]) >= max(MIN_COMPUTED_BYTES, 2 * result) and _is_computable(value):
        read = set(topological([value], lambda v: v.buffer is not None))
        inside = [s for s in found if s.value() in read]
        if inside:
            from .realize import realize  # loads the compiler

            realize([value])
            drop_history(tensor)
            _pending.snapshots = inside  # the operation may have more results
            found = [s for s in found if s not in inside]
    for snapshot in found:
        snapshot.take()


def _is_computable(value: Value) -> bool:
    """Whether a recorded value can be computed now, and nothing is lost: gradients need what it was computed from."""
    return not (value.tracked or value.buffer is not None or state.trace or state.stand_ins) and is_known([value])
