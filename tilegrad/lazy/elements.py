"""Read and write elements of tensors that are in memory at once: no graph, no program.

A region is the place of a tensor in the memory of its storage. Reading one of few elements makes a value with memory of
its own, so that a later write to the region does not change what was read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from ctypes import c_float
from functools import lru_cache
from math import prod
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
MAX_COMBINED_ELEMENTS = 16
"""Elements up to which Python combines tensors: it takes about 0.04 us for each, recording and computing 10 us."""
MAX_FEW_ELEMENTS = 256
"""Elements up to which Python reduces a tensor: it takes about 0.03 us for each, a program 20 us."""
MAX_SHAPES = 1024
"""Shapes of a dtype for which the parts of a value are kept."""

_new: Any = object.__new__
dense_strides = lru_cache(1024)(row_major)
new_tuple: Any = tuple.__new__
"""Makes a named tuple of its items, in half the time of its constructor."""


class MemoryPart(NamedTuple):
    """A part of memory of fixed size: its shape, and its strides and first element in elements."""

    shape: Any
    strides: Any
    offset: int


class ElementAccess:
    """Reads and writes elements of a dtype in memory that the host can access, and makes values of them."""

    __slots__ = ("_fields", "_kinds", "_make", "beyond", "dtype", "name", "single", "size", "space", "type")

    def __init__(self, dtype: DType, name: str, space: memoryview) -> None:
        self.dtype, self.name, self.size, self.space = dtype, name, dtype.bytes, space
        self.beyond = space[1:]
        """The same without its first element: numpy takes no buffer at address 0."""
        self._kinds: dict[tuple[int, ...], tuple[dict[str, Any], Callable[[], DeviceBuffer]]] = {}
        self._fields, self._make = self._kind(())
        self.type: TensorType = self._fields["type"]
        self.single = _few(self, ())

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


class FewElements(NamedTuple):
    """A type of tensors of a few elements."""

    access: ElementAccess
    shape: tuple[int, ...]
    elements: int
    """How many there are."""
    format: str
    """The name of the dtype in arrays of Python."""
    pack: Callable[..., bytes]
    unpack: Callable[[bytes], tuple[Any, ...]]
    """Write numbers as elements, and read them: together they round numbers to the dtype."""
    functions: dict[Any, Any]
    """The types of results, and Python functions, by function of tensors that has computed elements of this type."""

    def value(self, numbers: Sequence[Any]) -> Value:
        """Return a value in memory that has these numbers."""
        if not self.shape:
            return self.access.value(numbers[0])
        return self.access.filled(self.shape, memoryview(self.pack(*numbers)).cast(self.format))  # type: ignore[call-overload]

    def read(self, memory: DeviceBuffer, part: MemoryPart) -> tuple[Any, ...] | None:
        """Return the elements of a part of memory, if they are in row-major order or have one axis."""
        shape, strides, offset = part
        access = self.access
        start = memory.address // access.size + offset
        if strides == dense_strides(shape):
            return tuple(access.space[start : start + self.elements].tolist())
        if len(shape) == 1 and strides[0] > 0:
            return tuple(access.space[start : start + self.elements * strides[0] : strides[0]].tolist())
        return None


@lru_cache(1024)
def few_elements(dtype: DType, shape: tuple[Any, ...], name: str) -> FewElements | None:
    """Return what is known of tensors of few elements, which can be accessed; None for others.

    >>> from tilegrad.ir.dtype import bfloat16, float32
    >>> few_elements(float32, (4, 4), "cpu").elements, few_elements(float32, (), "cpu").elements
    (16, 1)
    >>> [few_elements(float32, shape, "cpu") for shape in ((16, 17), (0,))], few_elements(bfloat16, (4,), "cpu")
    ([None, None], None)
    """
    if any(extent.__class__ is not int for extent in shape) or not 0 < prod(shape) <= MAX_FEW_ELEMENTS:
        return None
    access = element_access(dtype, name)
    if access is None or not shape:
        return None if access is None else access.single
    return _few(access, shape)


def _few(access: ElementAccess, shape: tuple[int, ...]) -> FewElements:
    numbers = struct.Struct(f"={prod(shape)}{access.space.format}")
    return FewElements(access, shape, prod(shape), access.space.format, numbers.pack, numbers.unpack, {})


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
        storage = self.base.storage
        memory = storage.owned or storage.value.buffer
        return changes if memory is None or self.is_private(memory) else NEVER

    def numbers(self, kind: FewElements) -> tuple[Any, ...] | None:
        """Return the elements, if they are known, as numbers."""
        if not kind.shape:
            number = self.number(self.part.offset)
            return None if number is None else (number,)
        memory = self.memory()
        return None if memory is None else kind.read(memory, self.part)

    @staticmethod
    def is_private(memory: DeviceBuffer) -> bool:
        """Whether foreign code cannot write to memory."""
        return not (memory.shared or (Exposures.any and is_exposed(memory)))

    def read(self, part: MemoryPart) -> Value | None:
        """Return the value of a part, if it has few elements and they are known."""
        access, shape = self.access, part[0]
        if not shape:
            number = self.number(part[2])
            return None if number is None else access.value(number)
        memory = self.memory()
        return access.copy(memory, part) if memory is not None and is_small(shape, access.size) else None

    def number(self, offset: int) -> Any:
        """Return the element at an offset, if it is known."""
        storage, access = self.base.storage, self.access
        if storage.traced or self.base.value.tracked:
            return None
        memory = storage.owned or storage.value.buffer
        if memory is not None:
            return access.space[memory.address // access.size + offset]
        value = storage.value
        return access.rounded(value.value) if value.__class__ is Fill else None


def is_small(shape: tuple[int, ...], size: int) -> bool:
    """Whether so many elements are copied when they are read."""
    for extent in shape:
        size *= extent
    return size <= MAX_READ_BYTES
