"""Let Python's garbage collector run seldom while much is made that stays."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from .singletons import lock

MIN_NODES_COLLECTED = 100_000
"""Objects that are made between two collections."""
_lock = lock()


class _Seldom:
    inside = 0
    """Number of blocks, of all threads, in which the collector runs seldom."""
    before = 0, 0, 0
    """The thresholds outside of them."""


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Let the collector run seldom in a block: the many nodes made there are no garbage, and going through them again
    and again takes half of the time.
    """
    with _lock:
        if not _Seldom.inside:
            first, *others = _Seldom.before = gc.get_threshold()
            gc.set_threshold(first and max(first, MIN_NODES_COLLECTED), *others)
        _Seldom.inside += 1
    try:
        yield
    finally:
        with _lock:
            _Seldom.inside -= 1
            if not _Seldom.inside:
                gc.set_threshold(*_Seldom.before)
