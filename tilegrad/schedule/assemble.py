"""From a schedule to a program: kernels in order, buffers with places."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.graph import Value
from ..ir.program import Buffer, Copy, Launch, Program, Role, Step
from ..ir.size import Dim, Size
from .group import Schedule
from .inplace import place_updates
from .instances import Lowered
from .lower import lower
from .memory import Lifetime, plan


def assemble(schedule: Schedule, updates: Mapping[Value, Value] = {}, name: str = "program") -> Program:
    """The program of a schedule. `updates` says which inputs get new values, and from which outputs."""
    schedule, overwritten = place_updates(schedule, updates)
    names = _names(schedule, overwritten)
    steps: list[Step] = []
    for group in schedule.groups:
        if all(v.type.count == 0 for v in group.stored):
            continue
        steps.append(_launch(lower(group, names), names))
    copied = {out: old for out, old in updates.items() if out not in overwritten}
    steps.extend(Copy(names[out], names[old]) for out, old in copied.items())
    outputs = tuple(names[copied.get(v, v)] for v in schedule.outputs)
    buffers = _buffers(schedule, names, overwritten, set(outputs))
    placed, arena = _placed(buffers, steps, outputs)
    inputs = tuple(names[x] for x in schedule.inputs)
    return Program(name, _sizes(schedule), placed, inputs, outputs, tuple(steps), arena)


def _names(schedule: Schedule, overwritten: Mapping[Value, Value]) -> dict[Value, str]:
    names: dict[Value, str] = {}
    taken: set[str] = set()
    for value, stem in schedule.names().items():
        name, n = stem, 1
        while name in taken:
            n += 1
            name = f"{stem}_{n}"
        taken.add(name)
        names[value] = name
    return names | {out: names[old] for out, old in overwritten.items()}


def _launch(lowered: Lowered, names: Mapping[Value, str]) -> Launch:
    arguments: list[str | Dim] = []
    written = lowered.kernel.parameters
    for argument in lowered.arguments:
        if not isinstance(argument, Value):
            arguments.append(argument)
        elif len(written) == len(lowered.arguments) or names[argument] not in arguments:
            arguments.append(names[argument])
    return Launch(lowered.kernel, tuple(arguments), lowered.grid, 0, lowered.work)


def _buffers(
    schedule: Schedule, names: Mapping[Value, str], overwritten: Mapping[Value, Value], outputs: set[str]
) -> list[Buffer]:
    buffers = [Buffer(names[x], x.type, "input") for x in schedule.inputs]
    known = {b.name for b in buffers}
    for group in schedule.groups:
        for value in group.stored:
            if names[value] not in known:
                role: Role = "output" if names[value] in outputs else "temporary"
                buffers.append(Buffer(names[value], value.type, role))
                known.add(names[value])
    return buffers


def _placed(buffers: list[Buffer], steps: list[Step], outputs: tuple[str, ...]) -> tuple[tuple[Buffer, ...], Dim]:
    """Gives temporaries their place in the arena."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for n, step in enumerate(steps):
        used = step.arguments if isinstance(step, Launch) else (step.source, step.target)  # type: ignore[union-attr]
        for name in used:
            if isinstance(name, str):
                first.setdefault(name, n)
                last[name] = n
    temporary = [b for b in buffers if b.role == "temporary" and b.name in first]
    offsets, arena = plan([Lifetime(b.name, b.type.bytes, first[b.name], last[b.name]) for b in temporary])
    kept = [b for b in buffers if b.role != "temporary" or b.name in first]
    return tuple(b.replaced(offset=offsets[b.name]) if b.name in offsets else b for b in kept), arena


def _sizes(schedule: Schedule) -> tuple[str, ...]:
    dims = [d for x in schedule.inputs for d in x.shape]
    dims += [d for g in schedule.groups for v in g.stored for d in v.shape]
    return tuple(sorted({name for d in dims if isinstance(d, Size) for name in d.names()}))
