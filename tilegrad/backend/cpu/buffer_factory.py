"""Create and release small pool buffers in native code (the end of `runtime.ll`), faster than Python can."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...runtime.singletons import once
from . import native
from .memory import PoolBuffer
from .pool import MIN_MAPPED_BYTES, FreeList

if TYPE_CHECKING:
    from .device import CpuDevice

TP_FINALIZE = 80
"""Number of the slot `tp_finalize` in Python's stable ABI."""


def buffer_factory(device: CpuDevice, bytes: int) -> Callable[[], PoolBuffer]:
    """Return a function that allocates buffers of this size."""
    blocks = device.pool.blocks(bytes)
    if blocks.bytes < MIN_MAPPED_BYTES:
        return native.factory_function(_FactoryRecord(device, bytes, blocks))

    def make() -> PoolBuffer:
        return PoolBuffer(device, bytes, blocks, device.pool.take(blocks))

    return make


class _FactoryRecord(int):
    """Address of a factory record, passed as `self` to its native function; keeps alive what the record points to."""

    def __new__(cls, device: CpuDevice, bytes: int, blocks: FreeList) -> _FactoryRecord:
        kept = (small_buffer(), device, bytes, blocks, device.pool.fresh)
        words = native.AlignedWords(len(kept))
        words.view[:] = memoryview((ctypes.c_int64 * len(kept))(*map(id, kept))).cast("B").cast("q")
        record = super().__new__(cls, words.address)
        record.kept = (words, kept)
        return record

    def __init__(self, *_: object) -> None:
        self.kept: tuple[native.AlignedWords, tuple[object, ...]]


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )


@once
def small_buffer() -> type[PoolBuffer]:
    """Create the buffer class whose instances native code allocates."""
    addresses = native.code().addresses
    for slot in ("address", "blocks", "bytes", "device", "memory"):
        ctypes.c_int64.from_address(addresses[f"at_{slot}"]).value = _offset(slot)
    slots = (_Slot * 2)(_Slot(TP_FINALIZE, addresses["drop"]), _Slot(0, None))
    spec = _Spec(b"tilegrad.backend.cpu.SmallBuffer", 0, 0, 0, slots)
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.argtypes = (ctypes.c_void_p, ctypes.py_object)
    make.restype = ctypes.py_object
    return make(ctypes.addressof(spec), (PoolBuffer,))  # type: ignore[no-any-return]


def _offset(slot: str) -> int:
    """Find the offset of a slot in an object by storing a value there and looking for its address."""
    probe, value = object.__new__(_Probe), object()
    setattr(probe, slot, value)
    words = (ctypes.c_void_p * (PoolBuffer.__basicsize__ // 8)).from_address(id(probe))
    return 8 * list(words).index(id(value))


class _Probe(PoolBuffer):
    """A buffer to inspect; it owns no block."""

    __slots__ = ()

    def __del__(self) -> None:  # type: ignore[override]
        pass
