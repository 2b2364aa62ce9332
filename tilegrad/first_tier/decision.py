"""Decide which tier runs a recorded structure, by counting its meetings: see docs/decisions/0042-first-tier.md."""

from __future__ import annotations

from collections.abc import Sequence

from ..config import settings
from ..ir.graph import Value
from ..ir.size import Size
from ..runtime.device import Device
from .node_groups import Key
from .step_plan import FirstTierPlan, forget_plan, plan_of

_meetings: dict[int, int] = {}
"""Meetings of each structure, by the hash of its key: the key of a large graph is kept by its plan or program alone."""
MAX_COUNTED_STRUCTURES = 1 << 16


def plan_for(key: Key, order: Sequence[Value], place: Device) -> FirstTierPlan | None:
    """Count a meeting of a structure and return its plan; None if a compiled program runs it."""
    knobs = settings()
    if not place.has_first_tier or knobs.use or any(isinstance(n, Size) for v in order for n in v.shape):
        return None
    if knobs.tier == "counted" and _met(key) >= knobs.compile_at:
        forget_plan(key)
        return None
    return plan_of(key, order, place)


def _met(key: Key) -> int:
    """Count a meeting; the structure that was first met longest ago is forgotten where there are too many."""
    name = hash(key)
    count = _meetings.get(name, 0) + 1
    if count == 1 and len(_meetings) >= MAX_COUNTED_STRUCTURES:
        del _meetings[next(iter(_meetings))]
    _meetings[name] = count
    return count
