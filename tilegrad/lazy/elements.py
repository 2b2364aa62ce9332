"""Read and write elements of tensors that are in memory at once: no graph, no program.

A region is the place of a tensor in the memory of its storage. Reading one of few elements makes a value with memory of
its own, so that a later write to the region does not change what was read.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_float
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..ir.dtype import DType, float32
from ..ir.graph import Input, TensorType, Value
from ..ir.node import amend
from ..ir.position import row_major
from ..ops.broadcasting import Fill
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import device
from ..runtime.exposure import Exposures, is_exposed
from .storage import NEVER, Base, Move

MAX_READ_BYTES = 4096
"""Bytes of a region up to which it is copied when it is read, instead of recording a view of it."""
MAX_SHAPES = 1024
"""Shapes of a dtype for which the parts of a value are kept."""

_new: Any = object.__new__
new_tuple: Any = tuple.__new__
"""Makes a named tuple of its items, in half the time of its constructor."""


class MemoryPart(NamedTuple):
    """A part of memory of fixed size: its shape, and its strides and first element in elements."""

    shape: Any
    strides: Any
    offset: int


class ElementAccess:
    """Reads and writes elements of a dtype in memory that the host can access, and makes values of them."""

    __slots__ = ("_fields", "_kinds", "_make", "beyond", "dtype", "name", "size", "space", "type")

    def __init__(self, dtype: DType, name: str, space: memoryview) -> None:
        self.dtype, self.name, self.size, self.space = dtype, name, dtype.bytes, space
        self.beyond = space[1:]
        """The same without its first element: numpy takes no buffer at address 0."""
        self._kinds: dict[tuple[int, ...], tuple[dict[str, Any], Callable[[], DeviceBuffer]]] = {}
        self._fields, self._make = self._kind(())
        self.type: TensorType = self._fields["type"]

    def _kind(self, shape: tuple[int, ...]) -> tuple[dict[str, Any], Callable[[], DeviceBuffer]]:
        """Return the fields of values of a shape, and the function that allocates their memory."""
        found = self._kinds.get(shape)
        if found is None:
            like = Input(TensorType(self.dtype, shape, self.name))
            amend(like, location=None)  # no line of the user's made it more than another
            bytes: Any = like.type.bytes
            if len(self._kinds) >= MAX_SHAPES:
                self._kinds.clear()
            found = self._kinds[shape] = dict(vars(like)), device(self.name).maker(bytes)
        return found

    def value(self, number: Any) -> Value:
        """Return a number as a value in memory, rounded to the dtype."""
        value = _new(Input)
        own = value.__dict__
        own |= self._fields
        buffer = own["buffer"] = self._make()
        self.space[buffer.address // self.size] = number
        return value  # type: ignore[no-any-return]

    def filled(self, shape: tuple[int, ...], numbers: Any) -> Value:
        """Return numbers, an array or memoryview of the dtype, as a value in memory."""
        fields, make = self._kind(shape)
        value = _new(Input)
        own = value.__dict__
        own |= fields
        buffer = own["buffer"] = make()
        at = buffer.address // self.size
        self.space[at : at + len(numbers)] = numbers
        return value  # type: ignore[no-any-return]

    def rounded(self, number: Any) -> Any:
        """Round a number to the dtype."""
        return c_float(number).value if self.dtype is float32 else number

    def copy(self, memory: DeviceBuffer, part: MemoryPart) -> Value:
        """Return a part of memory as a value with memory of its own."""
        shape, strides, offset = part
        fields, make = self._kind(shape)
        value = _new(Input)
        own = value.__dict__
        own |= fields
        buffer = own["buffer"] = make()
        space, size = self.space, self.size
        at, start = buffer.address // size, memory.address // size + offset
        if len(shape) == 1 and strides[0] > 0:
            count = shape[0]
            space[at : at + count] = space[start : start + count * strides[0] : strides[0]]
        elif 0 not in shape:
            self.array(buffer, MemoryPart(shape, row_major(shape), 0))[...] = self.array(memory, part)
        return value  # type: ignore[no-any-return]

    def write(self, memory: DeviceBuffer, offset: int, number: Any) -> None:
        """Set the element at an offset."""
        self.space[memory.address // self.size + offset] = number

    def array(self, memory: DeviceBuffer, part: MemoryPart) -> Any:
        """Return a part of memory as an array, which does not keep the memory alive."""
        size = self.size
        shape, strides, offset = part
        steps = tuple([stride * size for stride in strides])
        return np.ndarray(shape, self.dtype.numpy, self.beyond, memory.address + (offset - 1) * size, steps)


@lru_cache(256)
def element_access(dtype: DType, name: str) -> ElementAccess | None:
    """Return the access to elements on a device; None if the host has no such numbers, or cannot access the memory.

    >>> from tilegrad.ir.dtype import bfloat16, float32
    >>> access = element_access(float32, "cpu")
    >>> float(access.array(access.value(3).buffer, MemoryPart((), (), 0))), element_access(bfloat16, "cpu")
    (3.0, None)
    """
    space = device(name).address_space(dtype)
    return None if space is None else ElementAccess(dtype, name, space)


class Region(NamedTuple):
    """The place of a tensor in the memory of its storage."""

    base: Base
    moves: tuple[Move, ...]
    part: MemoryPart
    access: ElementAccess
    assignable: bool
    """Whether no element of the storage is in it twice."""

    def memory(self) -> DeviceBuffer | None:
        """Return the memory of the storage, if its elements are there."""
        base = self.base
        storage = base.storage
        if storage.traced or base.value.tracked:
            return None
        found = storage.owned
        return storage.value.buffer if found is None else found

    def seen(self, changes: int) -> int:
        """Return the write count of elements that are read now: none if foreign code may write to them unnoticed."""
        memory = self.memory()
        return changes if memory is None or self.is_private(memory) else NEVER

    @staticmethod
    def is_private(memory: DeviceBuffer) -> bool:
        """Whether foreign code cannot write to memory."""
        return not (memory.shared or (Exposures.any and is_exposed(memory)))

    def read(self, part: MemoryPart) -> Value | None:
        """Return the value of a part, if it has few elements and they are known."""
        memory, access, shape = self.memory(), self.access, part[0]
        if memory is not None:
            if not shape:
                return access.value(access.space[memory.address // access.size + part[2]])
            return access.copy(memory, part) if is_small(shape, access.size) else None
        value = self.base.storage.value
        if shape or value.__class__ is not Fill or value.buffer is not None or self.base.value.tracked:
            return None
        return access.value(value.value)


def is_small(shape: tuple[int, ...], size: int) -> bool:
    """Whether so many elements are copied when they are read."""
    for extent in shape:
        size *= extent
    return size <= MAX_READ_BYTES
