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
from .node_groups import Key, RecordedStructure, group_key, groups, same_memory
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
    """The steps for one structure."""

    def __init__(self, key: Key, order: Sequence[Value], place: Device) -> None:
        recorded = RecordedStructure(key, order)
        self.slots = len(order)
        self.device = place.name
        self.given = (*recorded.in_memory, *recorded.numbers)
        """Slots of the values in memory, then of the numbers."""
        slot_of = list(range(len(order)))
        found = []
        for group in groups(recorded):
            if same_memory(recorded, group):
                slot_of[group.roots[0]] = slot_of[group.sources[0]]
            else:
                step = step_of(recorded, group, group_key(recorded, group), place)
                sources = tuple([slot_of[n] for n in group.sources])
                found.append(PlannedStep(step, sources, group.roots, order[group.roots[-1]].location))
        self.wanted = tuple([slot_of[n] for n in recorded.wanted])
        bytes: Any = [v.type.bytes for v in order]
        kept = frozenset((*self.given, *self.wanted))
        slots = [StepSlots(tuple(dict.fromkeys(planned.sources)), planned.roots) for planned in found]
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
        return [slots[n] for n in self.wanted]  # type: ignore[misc]

    def __str__(self) -> str:
        return "\n".join([f"{', '.join(f'%{n}' for n in s.roots)} = {s.step}" for s in self.steps])


def _with_last_uses(steps: Sequence[PlannedStep], wanted: Sequence[int]) -> tuple[PlannedStep, ...]:
    """Find after which step each value is not needed any more."""
    seen = set(wanted)
    planned = []
    for step in reversed(steps):
        slots = dict.fromkeys((*step.sources, *step.roots))
        planned.append(step._replace(last_uses=tuple([n for n in slots if n not in seen])))
        seen.update(step.sources)
    return tuple(reversed(planned))


_plans: dict[Key, FirstTierPlan] = {}
MAX_PLANS = 1024


def plan_of(key: Key, order: Sequence[Value], place: Device) -> FirstTierPlan:
    """Find or make the plan of a structure."""
    known = _plans.get(key)
    if known is None:
        while len(_plans) >= MAX_PLANS:
            del _plans[next(iter(_plans))]
        with collected_seldom():
            known = _plans[key] = FirstTierPlan(key, order, place)
    return known


def forget_plan(key: Key) -> None:
    """Evict the plan of a structure that runs compiled from now on."""
    _plans.pop(key, None)
