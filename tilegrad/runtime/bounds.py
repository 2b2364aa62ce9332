"""Compute roofline bounds: the shortest time that a machine needs for given bytes and operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Bound = Literal["memory", "cache", "arithmetic", ""]


class Limit(NamedTuple):
    """The shortest time that the hardware allows, in seconds, and the resource that bounds it."""

    seconds: float
    bound: Bound

    def share(self, seconds: float) -> float:
        """Return the fraction of the bound that a time achieves: 1 is the bound itself."""
        return self.seconds / seconds if seconds > 0 else 0.0


def limit(bytes: float, operations: float, limits: Mapping[str, Any]) -> Limit:
    """Compute the roofline bound of a kernel.

    Data that fit a cache may still be there from the kernel before: they are charged at the cache's bandwidth if it is
    known, and otherwise not at all.

    >>> limits = {"copy": 40e9, "read": 35e9, "fma": 200e9, "L3": 1 << 20}
    >>> limit(1 << 23, 0, limits).bound, limit(16, 10**9, limits).bound
    ('memory', 'arithmetic')
    """
    arithmetic = operations / limits["fma"] if limits.get("fma") else 0.0
    level = memory_level(bytes, limits)
    rate = limits.get(f"{level}_read", 0.0) if level else max(limits.get(k, 0.0) for k in ("read", "copy", "triad"))
    moving = bytes / rate if rate else 0.0
    if not arithmetic and not moving:
        return Limit(0.0, "")
    if arithmetic >= moving:
        return Limit(arithmetic, "arithmetic")
    return Limit(moving, "cache" if level else "memory")


def memory_level(bytes: float, limits: Mapping[str, Any]) -> str:
    """Return the smallest cache that holds so many bytes (all cores together); empty if none does."""
    threads = limits.get("threads", 1)
    for level in ("L1", "L2", "L3"):
        shared = 1 if level == "L3" else threads
        if bytes <= 2 * limits.get(level, 0) * shared:  # twice: part of it may be found there
            return level
    return ""
