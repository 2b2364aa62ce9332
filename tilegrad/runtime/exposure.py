"""Track memory that foreign code can write to unnoticed: shared arrays, and memory whose address was handed out.

A cache of something computed from memory asks here whether it would notice changes of that memory.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet, ref

from .buffer import DeviceBuffer

_exposed: WeakSet[DeviceBuffer] = WeakSet()
_references: set[Any] = vars(_exposed)["data"]
"""The weak references in it: its own look-up is Python code."""
_relied_on: WeakSet[DeviceBuffer] = WeakSet()


class Exposures:
    """Counts exposures of memory that a cache relied on."""

    count = 0
    any = False
    """Whether any memory has ever been exposed."""


def expose(buffer: DeviceBuffer) -> None:
    """Mark memory as writable by foreign code."""
    _exposed.add(buffer.owner)
    Exposures.any = True
    if buffer.owner in _relied_on:
        Exposures.count += 1


def is_exposed(buffer: DeviceBuffer) -> bool:
    """Whether foreign code may write to this memory."""
    return ref(buffer.owner) in _references


def rely_on(buffers: list[DeviceBuffer]) -> bool:
    """Rely on memory being unexposed: return whether it is; if that changes, `Exposures.count` does.

    >>> from .device import device
    >>> x, before = device("reference").allocate(8), Exposures.count
    >>> rely_on([x]), expose(x), rely_on([x]), Exposures.count - before
    (True, None, False, 1)
    """
    owners = [buffer.owner for buffer in buffers]
    _relied_on.update(owners)
    return not any(owner in _exposed for owner in owners)
