"""Memory that others can write to without telling us: that of arrays that we share, and what we gave out an address of.

Whoever keeps something that was computed from memory asks here whether changes of it would be noticed.
"""

from __future__ import annotations

from weakref import WeakSet

from .buffer import Buffer

_exposed: WeakSet[Buffer] = WeakSet()
_relied_on: WeakSet[Buffer] = WeakSet()


class Exposures:
    """How often memory that somebody relied on was exposed."""

    count = 0


def expose(buffer: Buffer) -> None:
    """From now on others may write to this memory."""
    _exposed.add(buffer.owner)
    if buffer.owner in _relied_on:
        Exposures.count += 1


def is_exposed(buffer: Buffer) -> bool:
    """Whether others may write to this memory."""
    return buffer.owner in _exposed


def rely_on(buffers: list[Buffer]) -> bool:
    """Whether nobody else can write to any of them; if that changes, `Exposures.count` does.

    >>> from .device import device
    >>> x, before = device("reference").allocate(8), Exposures.count
    >>> rely_on([x]), expose(x), rely_on([x]), Exposures.count - before
    (True, None, False, 1)
    """
    owners = [buffer.owner for buffer in buffers]
    _relied_on.update(owners)
    return not any(owner in _exposed for owner in owners)
