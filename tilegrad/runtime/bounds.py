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


FASTEST = "fastest"
"""The product of a kernel that may multiply any numbers."""


def limit(bytes: float, operations: float, limits: Mapping[str, Any], product: str = "") -> Limit:
    """Compute the roofline bound of a kernel; `product` names the numbers that its matrix unit multiplies.

    Data that fit a cache may still be there from the kernel before: they are charged at the cache's bandwidth if it is
    known, and otherwise not at all.

    >>> limits = {"copy": 40e9, "read": 35e9, "fma": 200e9, "L3": 1 << 20, "products": {"bfloat16": 400e9}}
    >>> limit(1 << 23, 0, limits).bound, limit(16, 10**9, limits).bound
    ('memory', 'arithmetic')
    >>> [limit(16, 4 * 10**11, limits, product).seconds for product in ("", "bfloat16", "int8", "fastest")]
    [2.0, 1.0, 0.0, 1.0]
    """
    peak = operations_per_second(limits, product)
    if product and peak is None:
        return Limit(0.0, "")  # how fast it may be is not known
    arithmetic = operations / peak if peak else 0.0
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


def operations_per_second(limits: Mapping[str, Any], product: str) -> float | None:
    """Return the peak of multiply-adds, or of a product in the matrix unit where its peaks are known apart."""
    rates: Mapping[str, float] | None = limits.get("products")
    peak: float | None = limits.get("fma")
    if not product or rates is None:
        return peak
    return max([peak or 0.0, *rates.values()]) if product == FASTEST else rates.get(product)
