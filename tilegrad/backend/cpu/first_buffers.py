"""Allocate the first buffers of a process in Python: loading native code takes as long as allocating thousands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from .memory import PoolBuffer

if TYPE_CHECKING:
    from .device import CpuDevice

MAX_FIRST_BUFFERS = 1 << 14
"""Number of buffers that Python allocates, 0.6 us slower each, before native code is loaded for it (10 ms)."""
NATIVE = f"{__package__}.buffer_factory"


class FirstBuffers:
    """Counts the buffers that Python has allocated."""

    count = 0


def buffer_maker(device: CpuDevice, bytes: int) -> Callable[[], PoolBuffer]:
    """Return a function that allocates buffers of this size: in native code once that is loaded, or worth loading.

    >>> from ...runtime.device import device
    >>> make = buffer_maker(device("cpu"), 64)
    >>> make().bytes, make() is make()
    (64, False)
    """
    if NATIVE in sys.modules:
        return _native_maker(device, bytes)
    blocks, native = device.pool.blocks(bytes), None

    def make() -> PoolBuffer:
        nonlocal native
        if native is not None:
            return native()
        FirstBuffers.count += 1
        if FirstBuffers.count > MAX_FIRST_BUFFERS:
            native = _native_maker(device, bytes)
        return PoolBuffer(device, bytes, blocks, device.pool.take(blocks))

    return make


def _native_maker(device: CpuDevice, bytes: int) -> Callable[[], PoolBuffer]:
    from .buffer_factory import buffer_factory  # loads native code

    return buffer_factory(device, bytes)
