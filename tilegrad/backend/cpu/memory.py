"""CPU buffers: blocks of the pool, or memory owned by a numpy array."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.dtype import DType
from ...runtime.buffer import DeviceBuffer
from .pool import MIN_MAPPED_BYTES, FreeList

if TYPE_CHECKING:
    from .device import CpuDevice


MAX_COPIED_TWICE_BYTES = 4096
"""Bytes up to which copying twice is faster than asking numpy for an address."""


class PoolBuffer(DeviceBuffer):
    """A block of the pool, returned to it when the buffer dies."""

    __slots__ = ("blocks",)

    def __init__(self, device: CpuDevice, bytes: int, blocks: FreeList, address: int) -> None:
        self.device = device
        self.bytes = bytes
        self.address = address
        self.memory = None
        self.blocks = blocks

    def twin(self) -> PoolBuffer:
        made = object.__new__(PoolBuffer)
        made.device, made.bytes, made.address, made.memory = self.device, self.bytes, self.address, None
        made.blocks = FreeList(0)
        return made

    def hand_over(self, twin: PoolBuffer) -> None:
        self.blocks, twin.blocks = twin.blocks, self.blocks

    def __del__(self, large: int = MIN_MAPPED_BYTES) -> None:  # globals may be cleared before the last buffer dies
        blocks = self.blocks
        blocks.append(self.address)
        if blocks.bytes >= large:
            self.device.pool.trim_excess()  # type: ignore[attr-defined]


class BorrowedBuffer(DeviceBuffer):
    """The memory of an array, which the buffer keeps alive (`memory`)."""

    __slots__ = ()
    shared = True

    def __init__(self, device: CpuDevice, array: np.ndarray) -> None:
        self.device = device
        self.bytes = array.nbytes
        self.address = address_of(array)
        self.memory = array

    def twin(self) -> BorrowedBuffer:
        made = object.__new__(BorrowedBuffer)
        made.device, made.bytes, made.address, made.memory = self.device, self.bytes, self.address, self.memory
        return made

    def __del__(self) -> None:
        pass  # owns no block


def address_of(array: np.ndarray) -> int:
    """Address of the first element of an array."""
    return int(array.__array_interface__["data"][0])


class _Window:
    """Numpy's array interface on a buffer; an array made from it keeps the buffer alive."""

    __slots__ = ("__array_interface__", "buffer")

    def __init__(self, buffer: DeviceBuffer, count: int) -> None:
        self.buffer = buffer
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "shape": (count,),
            "typestr": "|u1",
            "data": (buffer.address, False),
        }


def view(buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """Return an array that shares the memory of a buffer."""
    count = dtype.bytes
    for extent in shape:
        count *= extent
    if count == 0:
        return np.empty(shape, dtype.numpy)
    return np.asarray(_Window(buffer, count)).view(dtype.numpy).reshape(shape)


def fill(buffer: DeviceBuffer, array: np.ndarray) -> None:
    """Copy an array into a buffer, in row-major order."""
    if array.nbytes <= MAX_COPIED_TWICE_BYTES:
        ctypes.memmove(buffer.address, array.tobytes(), array.nbytes)
    else:
        dense = np.ascontiguousarray(array)
        ctypes.memmove(buffer.address, address_of(dense), dense.nbytes)


def copied(buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """Copy a buffer into a new array."""
    if buffer.bytes <= MAX_COPIED_TWICE_BYTES:
        return np.ndarray(shape, dtype.numpy, bytearray(ctypes.string_at(buffer.address, buffer.bytes)))
    return view(buffer, dtype, shape).copy()
