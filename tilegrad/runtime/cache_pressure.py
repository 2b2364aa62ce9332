"""Shrink in-memory caches when they grow too large.

A loaded kernel takes two memory mappings of the process, of which systems allow some ten thousands.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

shrinkers: list[Callable[[], None]] = []
"""Functions that each evict the older half of their cache."""


def shrink() -> None:
    """Shrink all registered caches."""
    for shrinker in shrinkers:
        shrinker()
    gc.collect()  # programs and the functions that call them refer to each other
