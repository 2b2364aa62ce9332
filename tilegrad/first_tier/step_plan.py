"""Plan how a recorded structure runs in the first tier: one step per group, memory released after its last use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..ir.graph import Value
from ..ir.location import Location
from ..runtime import events
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import Device
from ..runtime.garbage_collection import collected_seldom
from .group_step import GroupStep, step_of
from .node_groups import Key, RecordedStructure, given_values, group_key, groups, same_memory
from .repeated_segments import StructureSegment, repeated_segments
from .step_order import StepSlots, early_order


class PlannedStep(NamedTuple):
    """A step at its place in a plan: slots number the values of the structure."""

    step: GroupStep
    sources: tuple[int, ...]
    roots: tuple[int, ...]
    location: Location | None
    """The user's line of the first structure that had the plan."""
    last_uses: tuple[int, ...] = ()
    """Slots that no later step reads."""


class FirstTierPlan:
    """The steps for one structure, or for a segment of one."""

    def __init__(self, key: Key, order: Sequence[Value], place: Device, is_segment: bool = False) -> None:
        self.device = place.name
        self.given = tuple(given_values(key))
        """Slots of the values in memory, then of the numbers."""
        slot_of = list(range(len(order)))
        segments = [] if is_segment else repeated_segments(key, order)
        found = _joined(segments, order, slot_of, place) if segments else _grouped(key, order, slot_of, place)
        self.wanted = tuple([slot_of[n] for n in key[-1]])
        self.slots = len(slot_of)
        bytes = _bytes(found, order, slot_of)
        kept = frozenset((*self.given, *self.wanted))
        slots = [StepSlots(_unique(planned.sources), planned.roots) for planned in found]
        self.steps = _with_last_uses([found[n] for n in early_order(slots, bytes, kept)], self.wanted)

    def run(self, given: Sequence[DeviceBuffer]) -> list[DeviceBuffer]:
        """Compute the wanted values from those in memory and the numbers."""
        slots: list[DeviceBuffer | None] = [None] * self.slots
        for slot, buffer in zip(self.given, given, strict=True):
            slots[slot] = buffer
        begun = events.now() if events.listeners else 0
        for planned in self.steps:
            step, sources, roots, location, last_uses = planned
            start = events.now() if begun else 0
            results = step.run([slots[n] for n in sources])  # type: ignore[misc]
            for root, buffer in zip(roots, results, strict=True):
                slots[root] = buffer
            if begun and not step.is_program:
                read = {id(b): b.bytes for n in sources if (b := slots[n]) is not None}
                bytes = sum([*read.values(), *[b.bytes for b in results]])
                events.emit("launch", step.label, self.device, start, events.now(), bytes, origin=str(location or ""))
            for slot in last_uses:
                slots[slot] = None
        if begun:
            events.emit("run", "first tier", self.device, begun, events.now())
        return [slots[n] for n in self.wanted]

    def __str__(self) -> str:
        return "\n".join([f"{', '.join(f'%{n}' for n in s.roots)} = {s.step}" for s in self.steps])


def _grouped(key: Key, order: Sequence[Value], slot_of: list[int], place: Device) -> list[PlannedStep]:
    """Make a step of each group; note values that have the memory of another one in `slot_of`."""
    recorded = RecordedStructure(key, order)
    found = []
    for group in groups(recorded):
        if same_memory(recorded, group):
            slot_of[group.roots[0]] = slot_of[group.sources[0]]
        else:
            step = step_of(recorded, group, group_key(recorded, group), place)
            sources = tuple([slot_of[n] for n in group.sources])
            found.append(PlannedStep(step, sources, group.roots, order[group.roots[-1]].location))
    return found


def _joined(
    segments: Sequence[StructureSegment], order: Sequence[Value], slot_of: list[int], place: Device
) -> list[PlannedStep]:
    """Join the plans of segments; equal ones have one plan. A view that is made again has a slot of its own, which is
    added to `slot_of`.
    """
    found = []
    plans: dict[int, FirstTierPlan] = {}
    for key, numbers, views in segments:
        plan = plans.get(id(key))
        if plan is None:
            plan = plans[id(key)] = plan_of(key, [order[n] for n in numbers], place, True)
        slots = [slot_of[n] for n in numbers]
        for view in views:
            slots[view] = len(slot_of)
            slot_of.append(numbers[view])
        for step, sources, roots, _, _ in plan.steps:
            read, made = tuple([slots[n] for n in sources]), tuple([slots[n] for n in roots])
            found.append(PlannedStep(step, read, made, order[numbers[roots[-1]]].location))
        for value, slot in zip(key[-1], plan.wanted, strict=True):
            slot_of[numbers[value]] = slots[slot]
    return found


def _bytes(steps: Sequence[PlannedStep], order: Sequence[Value], slot_of: Sequence[int]) -> list[int]:
    """Return the bytes of the slots that steps read or write."""
    found = [0] * len(slot_of)
    for step in steps:
        for slot in (*step.sources, *step.roots):
            if not found[slot]:
                bytes: Any = order[slot if slot < len(order) else slot_of[slot]].type.bytes
                found[slot] = bytes
    return found


def _unique(slots: tuple[int, ...]) -> tuple[int, ...]:
    """Return slots without repetitions."""
    return slots if len(slots) < 2 or len(set(slots)) == len(slots) else tuple(dict.fromkeys(slots))


def _with_last_uses(steps: Sequence[PlannedStep], wanted: Sequence[int]) -> tuple[PlannedStep, ...]:
    """Find after which step each value is not needed any more."""
    seen = set(wanted)
    planned = []
    for step, sources, roots, location, _ in reversed(steps):
        last_uses = tuple([n for n in _unique((*sources, *roots)) if n not in seen])
        planned.append(PlannedStep(step, sources, roots, location, last_uses))
        seen.update(sources)
    return tuple(reversed(planned))


_plans: dict[Key, FirstTierPlan] = {}
MAX_PLANS = 1024


def plan_of(key: Key, order: Sequence[Value], place: Device, is_segment: bool = False) -> FirstTierPlan:
    """Find or make the plan of a structure."""
    known = _plans.get(key)
    if known is None:
        while len(_plans) >= MAX_PLANS:
            del _plans[next(iter(_plans))]
        with collected_seldom():
            known = _plans[key] = FirstTierPlan(key, order, place, is_segment)
    return known


def forget_plan(key: Key) -> None:
    """Evict the plan of a structure that runs compiled from now on."""
    _plans.pop(key, None)
