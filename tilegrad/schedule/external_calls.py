"""Schedule external calls: one group each, with all of their outputs.

An output that is initialised from an argument takes the argument's memory where nothing needs that afterwards, so that
a chain of kernels which write to one tensor copies nothing; elsewhere the argument is copied first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ir.dtype import int64
from ..ir.graph import Value
from ..ir.program import Copy, Foreign, Launch, Step
from ..ir.scalar import const
from ..ops.external_call import ExternalCall, TileWork
from .group import Group, GroupMember, Schedule
from .inline import canonical

ESTIMATED_INSTANCE_OPERATIONS = 1e5
"""Estimated operations of an instance of a user's kernel."""


def call_of(value: Value, nodes: Iterable[Value]) -> Group:
    """Make the group of a call, with the outputs that nothing reads: the call writes them too."""
    assert isinstance(value, ExternalCall)
    known = {v.place: v for v in nodes if isinstance(v, ExternalCall) and (v is value or v.call == value.call)}
    outputs = [known.get(place) or value.sibling(place) for place in range(len(value.results))]
    members = tuple([GroupMember(v, canonical(v.shape), const(0, int64)) for v in outputs])
    return Group("opaque", (), (), members, tuple(outputs))


def in_one_place(schedule: Schedule, names: Mapping[Value, str]) -> dict[Value, str]:
    """Alias temporaries that an output is initialised from, and that nothing needs afterwards, to the output."""
    last: dict[Value, int] = {}
    for n, group in enumerate(schedule.groups):
        last.update(dict.fromkeys(group.needs(), n))
    made = {v for group in schedule.groups for v in group.stored} - set(schedule.outputs)
    taken = {new for new, _ in schedule.overwritten}
    renamed: dict[Value, str] = {}
    for n, group in reversed(list(enumerate(schedule.groups))):
        for new in group.stored:
            if not isinstance(new, ExternalCall) or new in taken or new.starts[new.place] is None:
                continue
            old = new.arguments[new.starts[new.place] or 0]
            if old in made and last[old] == n and new.overwrites(old):
                renamed[old] = renamed.get(new, names[new])
    return renamed


def steps_of(group: Group, names: Mapping[Value, str]) -> list[Step]:
    """Make the steps of a call: copies of initial contents, unless they are in place already; then the call."""
    value = group.stored[0]
    assert isinstance(value, ExternalCall)
    inputs = [names[x] for x in value.arguments]
    outputs = [names[v] for v in group.stored]
    steps: list[Step] = []
    for output, start in zip(outputs, value.starts, strict=True):
        if start is not None and inputs[start] != output:
            steps.append(Copy(inputs[start], output))
            inputs[start] = output
    if not isinstance(value.work, TileWork):
        return [*steps, Foreign(value.work, tuple(inputs), tuple(outputs))]
    work, everything = value.work, [*inputs, *outputs]
    places, sizes = iter(work.places), iter(work.sizes)
    arguments = tuple([everything[next(places)] if p.pointer else next(sizes) for p in work.kernel.parameters])
    return [*steps, Launch(work.kernel, arguments, work.grid, 0, ESTIMATED_INSTANCE_OPERATIONS, True)]
