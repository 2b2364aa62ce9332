"""Programs on the CPU: kernels compiled, sizes settled, dealt to threads, and called from Python.

What depends on the sizes of a call (grids, bytes, offsets) is settled once for each set of sizes and kept as a
`Table`; the code of the kernels is the same for all. A call then patches the addresses of this call's buffers into the
table and runs it: one call of a native function.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...errors import RuntimeFault
from ...ir.program import Allocate, Copy, Free, Launch, Program, Record, Wait
from ...ir.size import Size, known
from ...ir.tile import Kernel, Name, Store
from ...ir.tile_access import statements, walk
from ...runtime import events
from ...runtime.device import Executable, Runner
from . import native
from .build import KernelCode, built
from .deal import Call, Span, deal
from .memory import PoolBuffer
from .table import Patch, Table

if TYPE_CHECKING:
    from .device import CpuDevice

MOST_BINDINGS = 256
"""Sets of sizes that are kept for one program."""
LONG = 50_000.0
"""Nanoseconds from which on a program runs without the interpreter's lock."""
OPERATIONS = 4.0
"""A guess of the operations in a nanosecond, until the program has been measured."""
BYTES = 8.0
"""A guess of the bytes moved in a nanosecond."""
COPIED = 1 << 16
"""What one instance of the kernel `copy_bytes` copies."""
MEASURED_RUNS = 3
"""A program is measured this often, beginning with its second run, before it is dealt for good."""


class CpuExecutable(Executable):
    """A compiled program."""

    def __init__(self, device: CpuDevice, program: Program) -> None:
        super().__init__(program)
        self.device = device
        self.code = built([step.kernel for step in program.steps if isinstance(step, Launch)])
        self._bindings: OrderedDict[tuple[int, ...], Runner] = OrderedDict()

    def bound(self, sizes: Mapping[str, int] = {}) -> Runner:
        key = tuple([sizes[name] for name in self.program.sizes])
        runner = self._bindings.get(key)
        if runner is None:
            runner = self._bindings[key] = self._binding(key).runner()
            while len(self._bindings) > MOST_BINDINGS:
                self._bindings.popitem(last=False)
        else:
            self._bindings.move_to_end(key)
        return runner

    def _binding(self, key: tuple[int, ...]) -> Binding:
        return Binding(self.device, self.program, self.code, dict(zip(self.program.sizes, key, strict=True)))


class Place(NamedTuple):
    """Where a buffer of the program is in a call: at data[datum] + offset."""

    datum: int
    offset: int = 0


class Binding:
    """A program with its sizes settled.

    The data of a call are the addresses of its inputs, of the outputs made for it, and of the arena.
    """

    def __init__(self, device: CpuDevice, program: Program, code: KernelCode, sizes: Mapping[str, int]) -> None:
        self.device = device
        self.program = program
        self.code = code
        self.sizes = sizes
        self.made: list[int] = []
        self.arena = known(self.program.arena, sizes)
        self.places, self.results = self._placed()
        self.calls, self.patches = self._settled()
        self.device.grow_arena(self.arena)

    def _placed(self) -> tuple[dict[str, Place], list[int]]:
        """The place of each buffer, and for each output its datum."""
        program, sizes = self.program, self.sizes
        places = {name: Place(n) for n, name in enumerate(program.inputs)}
        datum = len(program.inputs)
        given = {b.name: b for b in program.buffers}
        for name in program.outputs:
            if name not in places and not given[name].alias:
                places[name] = Place(datum)
                self.made.append(known(given[name].type.bytes, sizes))
                datum += 1
        for b in program.buffers:
            if b.name in places or b.alias:
                continue
            if b.role == "input" or b.role == "constant":
                raise RuntimeFault(f"{program.name}: nothing gives {b.role} {b.name} its elements")
            if b.offset is None:
                self.arena = -(-self.arena // 64) * 64
                places[b.name] = Place(datum, self.arena)
                self.arena += known(b.type.bytes, sizes)
            else:
                places[b.name] = Place(datum, known(b.offset, sizes))
        for b in program.buffers:
            if b.alias:
                places.setdefault(b.name, places[b.alias])
        return places, [places[name].datum for name in program.outputs]

    def _settled(self) -> tuple[list[Call], list[Patch]]:
        """The launches that there are for these sizes, and where data go in their arguments."""
        calls: list[Call] = []
        patches: list[Patch] = []

        def settle(
            name: str, kernel: int, arguments: Sequence[str | int], grid: Sequence[int], written: set[str]
        ) -> None:
            instances = math.prod(grid)
            if instances == 0:
                return
            slots: list[int] = []
            reads: list[Span] = []
            writes: list[Span] = []
            for slot, argument in enumerate(arguments):
                if isinstance(argument, str):
                    place = self.places[argument]
                    patches.append(Patch(place.datum, len(calls), slot, place.offset))
                    (writes if argument in written else reads).append(self._span(argument))
                slots.append(0 if isinstance(argument, str) else argument)
            extents = (*grid, 1, 1, 1)[:3]
            calls.append(Call(name, kernel, (*slots, *extents), instances, 0.0, tuple(reads), tuple(writes)))

        for step in self.program.steps:
            settled, work = len(calls), 0.0
            match step:
                case Launch(kernel, arguments, grid, _, work):
                    values = [known(a, self.sizes) if isinstance(a, Size) else a for a in arguments]
                    extents = [tiles.count(self.sizes) for tiles in grid]
                    settle(kernel.name, self.code[kernel], values, extents, _written(kernel, values))
                case Copy(source, target):
                    bytes = known(self.program.buffer(source).type.bytes, self.sizes)
                    copy, pieces = native.code().addresses["copy_bytes"], -(-bytes // COPIED)
                    settle(f"copy {target}", copy, [source, target, bytes], [pieces], {target})
                    work = COPIED / BYTES * OPERATIONS
                case Allocate() | Free() | Record() | Wait():
                    pass  # memory is planned, and steps run in order
            for n in range(settled, len(calls)):
                calls[n] = calls[n]._replace(nanoseconds=calls[n].instances * work / OPERATIONS)
        return calls, patches

    def _span(self, name: str) -> Span:
        """The memory of a buffer. Inputs count as one: the caller may give the same buffer twice."""
        place = self.places[name]
        if place.datum < len(self.program.inputs):
            return Span(-1, 0, 1)
        return Span(place.datum, place.offset, place.offset + known(self.program.buffer(name).type.bytes, self.sizes))

    def table(self, calls: Sequence[Call], *, timed: bool = False) -> Table:
        team = native.team()
        data = len(self.program.inputs) + len(self.made) + bool(self.arena)
        total = sum(call.nanoseconds for call in calls)
        segments = deal(calls, team.threads, merge=not timed)
        return Table(team, calls, segments, self.patches, data, long=total > LONG, timed=timed)

    def runner(self) -> Runner:
        """The function that runs the program: its outputs from its inputs.

        It is written for this program as a person would for one of so many inputs and outputs: loops over them would
        take longer than the kernels of a small program.
        """
        learner = _Learner(self)
        names = {
            "device": self.device,
            "take": self.device.pool.take,
            "PoolBuffer": PoolBuffer,
            "learner": learner,
            "listeners": events.listeners,
            "run": learner.table.run,
        } | {f"blocks{n}": self.device.pool.blocks(bytes) for n, bytes in enumerate(self.made)}
        source = runner_source(len(self.program.inputs), self.made, self.results, bool(self.arena))
        exec(source, names)
        return names["runner"]  # type: ignore[return-value]


def _written(kernel: Kernel, arguments: Sequence[str | int]) -> set[str]:
    """The buffers that a launch writes; all that it has where its stores do not say."""
    pointers = {p.name: a for p, a in zip(kernel.parameters, arguments, strict=True) if isinstance(a, str)}
    written = set()
    for statement in statements(kernel.body):
        if isinstance(statement, Store):
            stored = {x.name for x in walk(statement.pointer) if isinstance(x, Name) and x.name in pointers}
            if not stored:
                return set(pointers.values())
            written |= {pointers[name] for name in stored}
    return written or set(pointers.values())


def runner_source(inputs: int, made: Sequence[int], results: Sequence[int], arena: bool) -> str:
    """The text of a runner: `made` has the bytes of each new output, `results` the datum of each result.

    >>> print(runner_source(2, [64], [2, 0], True))
    def runner(inputs):
        global run
        x0, x1 = inputs
        y0 = PoolBuffer(device, 64, blocks0, take(blocks0))
        arena = device.arena
        if listeners:
            learner.profiled(x0.address, x1.address, y0.address, arena.address)
            return (y0, x0,)
        if learner.learning:
            run = learner.next()
        run(x0.address, x1.address, y0.address, arena.address)
        return (y0, x0,)
    """
    given = [f"x{n}" for n in range(inputs)]
    new = [f"y{n}" for n in range(len(made))]
    data = ", ".join(f"{name}.address" for name in [*given, *new, *(["arena"] if arena else [])])
    everything = given + new
    result = f"return ({''.join(everything[n] + ', ' for n in results).rstrip()})"
    lines = ["def runner(inputs):", "    global run"]
    lines += [f"    {', '.join(given)}{',' if inputs == 1 else ''} = inputs"] if inputs else []
    lines += [
        f"    {y} = PoolBuffer(device, {bytes}, blocks{n}, take(blocks{n}))"
        for n, (y, bytes) in enumerate(zip(new, made, strict=True))
    ]
    lines += ["    arena = device.arena"] if arena else []
    lines += ["    if listeners:", f"        learner.profiled({data})", f"        {result}"]
    lines += ["    if learner.learning:", "        run = learner.next()", f"    run({data})", f"    {result}"]
    return "\n".join(lines)


class _Learner:
    """Measures the first runs of a program, and deals it anew by what its launches took.

    The first run is not measured: it meets fresh memory. Of the others the shortest counts, launch by launch, since
    the system may take the core away at any time.
    """

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.calls = binding.calls
        self.learning = bool(binding.calls)
        self.table = binding.table(self.calls)
        """Starts as a guess, and ends as measured."""
        self._timed: Table | None = None
        self._runs = 0

    def next(self) -> Callable[..., None]:
        """What the next run should call."""
        if self._runs > 1 and self._timed is not None:
            self._note(self._timed)
        if self._runs == 0:
            run = self.table.run
        elif self._runs <= MEASURED_RUNS:
            run = self._measuring().run
        else:
            self.table = self.binding.table(self.calls)
            self.learning = False
            run = self.table.run
        self._runs += 1
        return run

    def _measuring(self) -> Table:
        if self._timed is None:
            self._timed = self.binding.table(self.calls, timed=True)
        return self._timed

    def _note(self, table: Table) -> None:
        """Takes over what the last run measured."""
        taken = []
        times = table.times
        for call, segment, start, stop in zip(self.calls, table.segments, times, times[1:], strict=False):
            spent = max(0.0, float(stop - start)) * len(segment.lanes)
            taken.append(call._replace(nanoseconds=spent if self._runs == 2 else min(call.nanoseconds, spent)))
        self.calls = taken

    def profiled(self, *data: int) -> None:
        """Runs, and tells those who listen how long each launch took."""
        table = self._measuring()
        table.run(*data)
        times = table.times
        for call, start, stop in zip(self.calls, times, times[1:], strict=False):
            events.emit("launch", call.name, "cpu", start, stop)
        events.emit("run", self.binding.program.name, "cpu", times[0], times[-1])
