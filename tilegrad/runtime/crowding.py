"""Evict what is kept for speed alone when there is too much of it.

A kernel in memory takes two mappings of the process's address space, of which systems allow some ten thousands.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

shrinkers: list[Callable[[], None]] = []
"""Each lets go of half of what it keeps, the oldest first."""


def shrink() -> None:
    """Lets go of what can be made again."""
    for shrinker in shrinkers:
        shrinker()
    gc.collect()  # programs and the functions that call them refer to each other
