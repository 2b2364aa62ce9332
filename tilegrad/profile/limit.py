"""Compare work with the limits of the machine: roofline model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runtime.bounds import Limit as Limit
from ..runtime.bounds import limit
from ..runtime.bounds import memory_level as memory_level
from .count import Work

LAUNCH_NS = {"cpu": 400.0, "cuda": 2_000.0}
"""Nanoseconds that a launch takes at least, however little it computes, by kind of device."""


def launch_seconds(device: str) -> float:
    """Return the shortest time of a launch on a device, by its name or kind."""
    return LAUNCH_NS.get(device.partition(":")[0], 0.0) * 1e-9


def limit_of(work: Work, limits: Mapping[str, Any]) -> Limit:
    """Return the shortest time that the machine allows for this work.

    >>> limits = {"copy": 40e9, "read": 35e9, "fma": 200e9, "L3": 1 << 20}
    >>> limit_of(Work(1 << 22, 1 << 22, 0), limits).bound, limit_of(Work(8, 8, 10**9), limits).bound
    ('memory', 'arithmetic')
    """
    return limit(work.bytes, work.operations, limits, work.product)
