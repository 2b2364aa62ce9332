"""Assemble the program of a schedule: kernels in order, buffers, and an arena for temporaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.graph import Value
from ..ir.program import Argument, Copy, Launch, Program, ProgramBuffer, Role, Step, uses
from ..ir.size import Dim, Size
from ..runtime.arena import Lifetime, plan_arena
from ..runtime.choice import Choice, Lock
from ..runtime.device import LaunchListener
from .group import Group, Schedule
from .instances import Lowered
from .lower import lower


def assemble(
    schedule: Schedule,
    updates: Mapping[int, int] = {},
    name: str = "program",
    lock: Lock = Lock(),
    listener: LaunchListener | None = None,
) -> Program:
    """Make the program of a schedule. `updates` maps outputs (by number) to the inputs whose new values they are: they
    are copied there unless a kernel overwrites the input in place. `lock` has the tuned choices; `listener` learns of
    each launch as soon as it is made, if there are several.
    """
    return _Assembly(schedule, updates, lock, listener if len(schedule.groups) > 1 else None).program(name)


class _Assembly:
    """The buffers and steps of a program under construction. A value without a kernel is copied."""

    def __init__(
        self, schedule: Schedule, updates: Mapping[int, int], lock: Lock, listener: LaunchListener | None
    ) -> None:
        self.schedule = schedule
        self.lock = lock
        self.listener = listener
        self.updates = updates
        self.overwritten = dict(schedule.overwritten)
        self.names = buffer_names(schedule)
        self.renewed = {schedule.inputs[old] for old in updates.values()}
        self.extra: list[ProgramBuffer] = []
        self.first: list[Step] = []
        self.last: list[Step] = []
        self.saved: dict[Value, str] = {}
        self.outputs = tuple([self._output(n, v) for n, v in enumerate(schedule.outputs)])

    def _output(self, n: int, value: Value) -> str:
        """Return the buffer that holds an output at the end."""
        name = self.names[value]
        if n in self.updates:
            place = self.names[self.schedule.inputs[self.updates[n]]]
            if name != place:
                self.last.append(Copy(self._source(value), place))
            return place
        in_place = value in self.overwritten
        if not in_place and value not in self.renewed:
            return name
        own = self._added(value, "output")  # the memory that it is in belongs to somebody else
        (self.last if in_place else self.first).append(Copy(name, own))
        return own

    def _source(self, value: Value) -> str:
        """Return where a value is at the end: an input that is overwritten by then is saved at the beginning."""
        if value not in self.renewed:
            return self.names[value]
        if value not in self.saved:
            self.saved[value] = self._added(value, "temporary")
            self.first.append(Copy(self.names[value], self.saved[value]))
        return self.saved[value]

    def _added(self, value: Value, role: Role) -> str:
        taken = {*self.names.values(), *(b.name for b in self.extra)}
        made = ProgramBuffer(_unique(f"{self.names[value]}_copy", taken), value.type, role)
        self.extra.append(made)
        return made.name

    def _choice(self, group: Group) -> Choice | None:
        """Return the locked choice for a group; None: the cost model chooses."""
        if not self.lock.entries:
            return None
        from .options import locked

        found = locked(group, self.schedule.target, self.lock)
        return None if found is None else found.choice

    def program(self, name: str) -> Program:
        schedule, names = self.schedule, self.names
        groups = [g for g in schedule.groups if any(v.type.count != 0 for v in g.stored)]
        made: list[Step] = []
        for n, group in enumerate(groups):
            made += self._steps(group, len(groups) - n)
        steps = (*self.first, *made, *self.last)
        placed, arena = _placed([*self._buffers(), *self.extra], steps)
        inputs = tuple(names[x] for x in schedule.inputs)
        return Program(name, _sizes(schedule, steps), placed, inputs, self.outputs, steps, arena)

    def _steps(self, group: Group, left: int) -> list[Step]:
        """Make the steps of a group; `left` groups are left."""
        if group.stored[0].external:
            from .external_calls import steps_of

            return steps_of(group, self.names)
        lowered = lower(group, self.names, self.schedule.target, self._choice(group))
        launch = launch_of(lowered, self.names)
        if self.listener is not None:
            bytes = {self.names[v]: v.type.bytes for v in lowered.arguments if isinstance(v, Value)}
            self.listener(launch, bytes, left)
        return [launch]

    def _buffers(self) -> list[ProgramBuffer]:
        buffers = {self.names[x]: ProgramBuffer(self.names[x], x.type, "input") for x in self.schedule.inputs}
        for group in self.schedule.groups:
            for value in group.stored:
                role: Role = "output" if self.names[value] in self.outputs else "temporary"
                buffers.setdefault(self.names[value], ProgramBuffer(self.names[value], value.type, role))
        return list(buffers.values())


def buffer_names(schedule: Schedule) -> dict[Value, str]:
    """Name the buffer of each value that is stored; values written over an input have its buffer."""
    names = _names(schedule)
    names |= {new: names[old] for new, old in schedule.overwritten}
    if any(group.stored and group.stored[0].external for group in schedule.groups):
        from .external_calls import in_one_place

        names |= in_one_place(schedule, names)
    return names


def _names(schedule: Schedule) -> dict[Value, str]:
    names: dict[Value, str] = {}
    taken: set[str] = set()
    for value, stem in schedule.names().items():
        names[value] = _unique(stem, taken)
        taken.add(names[value])
    return names


def _unique(stem: str, taken: set[str]) -> str:
    name, n = stem, 1
    while name in taken:
        n += 1
        name = f"{stem}_{n}"
    return name


def launch_of(lowered: Lowered, names: Mapping[Value, str]) -> Launch:
    """Launch a kernel on named buffers."""
    arguments: list[str | Dim] = []
    written = lowered.kernel.parameters
    for argument in lowered.arguments:
        if not isinstance(argument, Value):
            arguments.append(argument)
        elif len(written) == len(lowered.arguments) or names[argument] not in arguments:
            arguments.append(names[argument])
    return Launch(lowered.kernel, tuple(arguments), lowered.grid, 0, lowered.work)


def _placed(buffers: list[ProgramBuffer], steps: tuple[Step, ...]) -> tuple[tuple[ProgramBuffer, ...], Dim]:
    """Place temporaries in the arena."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for n, step in enumerate(steps):
        for name in uses(step):
            first.setdefault(name, n)
            last[name] = n
    temporary = [b for b in buffers if b.role == "temporary" and b.name in first]
    offsets, arena = plan_arena([Lifetime(b.name, b.type.bytes, first[b.name], last[b.name]) for b in temporary])
    kept = [b for b in buffers if b.role != "temporary" or b.name in first]
    return tuple(b.replaced(offset=offsets[b.name]) if b.name in offsets else b for b in kept), arena


def _sizes(schedule: Schedule, steps: Sequence[Step]) -> tuple[str, ...]:
    """List the symbols of a program: of its buffers, and those that only its kernels read, such as offsets."""
    dims: list[Argument] = [a for step in steps if type(step) is Launch for a in step.arguments]
    dims += [d for x in schedule.inputs for d in x.shape]
    dims += [d for g in schedule.groups for v in g.stored for d in v.shape]
    return tuple(sorted({name for d in dims if d.__class__ is Size for name in d.names()}))
