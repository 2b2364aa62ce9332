"""Decide which tier runs a recorded structure, by counting its meetings: see docs/decisions/0042-first-tier.md."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence

from ..config import settings
from ..ir.graph import Value
from ..runtime.device import Device
from .node_groups import Key
from .reference_step import runs_by_reference
from .step_plan import FirstTierPlan, forget_plan, plan_of


class Meetings(threading.local):
    """Counts of each thread: which thread comes first decides nothing."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        """By the hash of a structure's key: the key of a large graph is kept by its plan or program alone."""
        self.failures: dict[int, str] = {}
        """Why structures could not be compiled, by the same hash."""


_meetings = Meetings()
MAX_COUNTED_STRUCTURES = 1 << 16
VALUES_PER_MEETING = 50
"""Values of a structure for each meeting that it waits: compiling a value takes about as long as it saves in as many
meetings, so that waiting and compiling cost at most twice what the better of the two would.
"""

SIZES_PER_MEETING = 8
"""Meetings of new sizes for each meeting of a structure that it waits: a program for all sizes saves less in each, and
compiling it takes longer.
"""


def meetings_to_compile(values: int) -> int:
    """Return the meeting at which a structure of so many values is compiled.

    >>> meetings_to_compile(20), meetings_to_compile(2500)
    (3, 50)
    """
    return max(settings().compile_at, values // VALUES_PER_MEETING)


def sizes_to_compile(order: Sequence[Value]) -> int:
    """Return the meeting at which a structure is compiled for all sizes, if each was of other sizes.

    Kernels that take sizes as data are bound to new ones in little time; what has none of them is compiled for each.
    """
    least = meetings_to_compile(len(order))
    is_bound = not any(v.user_defined or (v.opaque and not runs_by_reference(v)) for v in order)
    return least * SIZES_PER_MEETING if is_bound else least


def plan_for(key: Key, order: Sequence[Value], place: Device) -> FirstTierPlan | None:
    """Count a meeting of a structure and return its plan; None if a compiled program runs it."""
    knobs = settings()
    if _why_compiled(order, place):
        return None
    if knobs.tier == "counted" and _met(key) >= meetings_to_compile(len(order)):
        if hash(key) not in _meetings.failures:
            forget_plan(key)
            return None
    return plan_of(key, order, place)


def plan_despite(key: Key, order: Sequence[Value], place: Device, error: Exception) -> FirstTierPlan | None:
    """Return the plan of a structure whose compilation failed, warn, and keep the error; None if the tier is fixed."""
    if settings().tier != "counted" or _why_compiled(order, place):
        return None
    reason = f"{type(error).__name__}: {error}"
    plan, failures = plan_of(key, order, place), _meetings.failures
    if len(failures) >= MAX_COUNTED_STRUCTURES:
        del failures[next(iter(failures))]
    failures[hash(key)] = reason
    warnings.warn(f"{len(order)} recorded values could not be compiled, and run one by one: {reason}", stacklevel=2)
    return plan


def _why_compiled(order: Sequence[Value], place: Device) -> str:
    """Tell why a structure cannot run in the first tier; empty if it can."""
    knobs = settings()
    if knobs.tier == "compiled":
        return "TILEGRAD_TIER=compiled"
    if knobs.use:
        return "TILEGRAD_USE puts kernels in the place of generated ones"
    if place.ready_kernels is None:
        return f"{place.name} has no first tier"
    if any(extent.__class__ is not int for shape in {v.type.shape for v in order} for extent in shape):
        return "sizes vary"
    return ""


def explain_tier(key: Key, order: Sequence[Value], place: Device) -> str:
    """Tell which tier would run a structure now, why, and by which steps; this is no meeting."""
    why, knobs, met = _why_compiled(order, place), settings(), _meetings.counts.get(hash(key), 0)
    compiled_at, failure = meetings_to_compile(len(order)), _meetings.failures.get(hash(key))
    if not why and not failure and knobs.tier == "counted" and met + 1 >= compiled_at:
        why = f"met {met} times before, compiled from meeting {compiled_at} on"
    if why:
        return f"compiled as one program: {why}"
    until = f"met {met} times before, compiled at meeting {compiled_at}"
    if failure:
        until = f"it could not be compiled: {failure}"
    plan = FirstTierPlan(key, order, place)
    return f"first tier: {until if knobs.tier == 'counted' else 'TILEGRAD_TIER=interpreted'}\n{plan}"


def _met(key: Key) -> int:
    """Count a meeting; the structure that was first met longest ago is forgotten where there are too many."""
    name, counts = hash(key), _meetings.counts
    count = counts.get(name, 0) + 1
    if count == 1 and len(counts) >= MAX_COUNTED_STRUCTURES:
        del counts[next(iter(counts))]
    counts[name] = count
    return count
