"""Programs on the CPU: compile kernels, bind sizes, partition launches among threads, run from Python.

What depends on the sizes of a call (grids, bytes, offsets) is computed once per set of sizes and kept as a `TaskTable`;
the code of the kernels is the same for all sizes. A call patches the addresses of its buffers into the table and runs
it with one call of a native function.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING

from ...config import settings
from ...deferred import part
from ...ir.program import Launch, Program
from ...runtime import events
from ...runtime.executable import Executable, HoistedProgram, Runner
from ...runtime.guarded import GuardedCall, packed
from . import native
from .bind_sizes import bind_sizes, written_buffers
from .buffer_factory import buffer_factory
from .build import KernelCode, build_kernels, index_faults
from .costs import BARRIER_NS, RELEASE_LOCK_NS, STAMP_NS
from .partition import NativeCall, partition
from .target import target
from .task_table import TaskTable

if TYPE_CHECKING:
    from .device import CpuDevice

MAX_BINDINGS = 256
"""Sets of sizes kept for one program."""
MEASURED_RUNS = 3
"""Measured runs of a program, beginning with its second, before it is partitioned for the last time."""


class CpuExecutable(Executable):
    """A compiled program."""

    def __init__(self, device: CpuDevice, program: Program, constant_inputs: Set[str] = frozenset()) -> None:
        program = specialise_users_kernels(program)
        prepack = part("backend.cpu.prepack", "prepack")
        made: Program = program if prepack is None else prepack(program, target(), constant_inputs)
        if constant_inputs:
            from ..constant_inputs import parted

            first, made = parted(made, constant_inputs, written_buffers)
            program = made
            if first is not None:
                places = tuple([program.inputs.index(name) for name in first.inputs])
                self.hoisted = HoistedProgram(CpuExecutable(device, first), places)
        super().__init__(program)
        self.device = device
        self.made = made
        """The program as it runs, with the launches that prepack operands."""
        self.code = build_kernels([step.kernel for step in self.made.steps if isinstance(step, Launch)])
        self._bindings: OrderedDict[tuple[int, ...], Runner] = OrderedDict()

    def bound(self, sizes: Mapping[str, int] = {}) -> Runner:
        key = tuple([sizes[name] for name in self.program.sizes])
        runner = self._bindings.get(key)
        if runner is None:
            runner = self._bindings[key] = self._binding(key).runner(self)
            while len(self._bindings) > MAX_BINDINGS:
                self._bindings.popitem(last=False)
        else:
            self._bindings.move_to_end(key)
        return runner

    def _binding(self, key: tuple[int, ...]) -> BoundExecutable:
        return BoundExecutable(self.device, self.made, self.code, dict(zip(self.program.sizes, key, strict=True)))


def specialise_users_kernels(program: Program) -> Program:
    """Specialise the users' kernels of a program at borders."""
    if not any(isinstance(step, Launch) and step.users for step in program.steps):
        return program
    from ...tiles.pipeline import run_passes

    steps = [
        s.replaced(kernel=run_passes(s.kernel, "cpu", users=True)) if isinstance(s, Launch) and s.users else s
        for s in program.steps
    ]
    return program.replaced(steps=tuple(steps))  # type: ignore[no-any-return]


class BoundExecutable:
    """A program with its sizes bound, and its code."""

    def __init__(self, device: CpuDevice, program: Program, code: KernelCode, sizes: Mapping[str, int]) -> None:
        self.name = program.name
        self.device, self.program, self.code, self.sizes = device, program, code, sizes
        self.bound = bind_sizes(program, code.__getitem__, native.code().addresses, sizes)

    def table(self, calls: Sequence[NativeCall], *, timed: bool = False) -> TaskTable:
        """Partition the program among the threads by the times of its calls."""
        team, bound = native.team(), self.bound
        asks_python = any(call.kind == "python" for call in bound.external_calls)
        long = asks_python or sum(call.nanoseconds for call in calls) > RELEASE_LOCK_NS
        segments = partition(calls, team.threads, merge=not timed)
        return TaskTable(team, calls, segments, bound.patches, bound.data, long=long, timed=timed)

    def runner(self, executable: Executable) -> Runner:
        """Generate the function that runs the program: outputs from inputs."""
        bound, learner = self.bound, Repartitioner(self, executable, settings().branches)
        self.device.grow_arena(bound.arena)
        call = GuardedCall("runner", ["inputs"], learner=learner, listeners=events.listeners, run=learner.table.run)
        call.add("global run")
        data = call.unpack("x", bound.inputs, "inputs")
        data += [call.let("y", f"{call.bind('make', buffer_factory(self.device, bytes))}()") for bytes in bound.made]
        memory = [*data]
        if bound.arena:  # looked up after `run`, which may have come with a larger one, and held until it ends
            memory.append(f"(arena := {call.bind('device', self.device)}.arena)")
        addresses = ", ".join(f"{x}.address" for x in memory)
        with call.block("if listeners"):
            call.add(f"learner.profiled({addresses})")
        with call.block("else"):
            call.add("if learner.learning: run = learner.next()", f"run({addresses})")
        if bound.external_calls:
            from .external_calls import raise_external_errors

            call.add(f"{call.bind('errors', partial(raise_external_errors, bound.external_calls))}()")
        if self.code.checks_indices:
            call.add(f"if {call.bind('wrong', index_faults.words)}[0]: {call.bind('faults', index_faults)}.look()")
        call.add(f"return {packed([data[n] for n in bound.results])}")
        return call.made()


class Repartitioner:
    """Measures the first runs of a program and partitions it again by the measured times of its launches.

    The first run is not measured, since it touches fresh memory. Of the other runs the shortest time of each launch
    counts, since the system may take the core away at any time. `branches` is the setting: those that run side by side
    may need a larger arena, as the device's grows, so callers with memory of their own do without.
    """

    def __init__(self, binding: BoundExecutable, executable: Executable, branches: str = "consecutive") -> None:
        self.binding, self.branches = binding, branches
        self.executable = weakref.ref(executable)
        self.calls = binding.bound.calls
        self.learning = bool(self.calls)
        self.table = self._partitioned(measured=False)
        """Task table by estimated times at first, by measured times in the end."""
        self._timed: TaskTable | None = None
        self._launches: events.Launches | None = None
        self._runs = 0

    def next(self) -> Callable[..., None]:
        """Return the function that the next run calls."""
        if self._runs > 1 and self._timed is not None:
            self._note(self._timed)
        if self._runs == 0:
            run = self.table.run
        elif self._runs <= MEASURED_RUNS:
            run = self._measuring().run
        else:
            self._bind()
            run = self.table.run
        self._runs += 1
        return run

    def _partitioned(self, measured: bool) -> TaskTable:
        wanted = self.branches == "always" or (measured and self.branches == "measured")
        concurrent = part("backend.cpu.branches", "branch_table") if wanted else None
        return (concurrent and concurrent(self.binding, self.calls, self.branches)) or self.binding.table(self.calls)

    def _bind(self) -> None:
        """Partition the program for good."""
        self.table = self._partitioned(measured=True)
        self._timed = None
        self.learning = False

    def _measuring(self) -> TaskTable:
        if self._timed is None:
            self._timed = self.binding.table(self.calls, timed=True)
        return self._timed

    def _note(self, table: TaskTable) -> None:
        """Record the times of the last run."""
        taken = []
        times = table.times
        if not times[0]:
            return  # another thread called next() in between, and this table has not run
        for call, segment, start, stop in zip(self.calls, table.segments, times, times[1:], strict=False):
            spent = max(0.0, float(stop - start)) * len(segment.lanes)
            taken.append(call._replace(nanoseconds=spent if self._runs == 2 else min(call.nanoseconds, spent)))
        self.calls = taken

    def profiled(self, *data: int) -> None:
        """Run with a time stamp for each launch, and report them to those who listen."""
        table, start = self._measuring(), events.now()
        table.run(*data)
        stop, times, workers = events.now(), table.times, table.workers
        if self._launches is None:
            steps = [
                events.Launched("launch", call.name, n, call.bytes, call.operations)
                for n, call in enumerate(self.calls, 1)
                if not call.is_prepack
            ]
            binding = self.binding
            self._launches = events.Launches(binding.name, "cpu", steps, self.executable, binding.sizes)
        barriers = 0 if table.is_single_threaded else len(table.segments) - len(self.table.segments)
        stamping = STAMP_NS * len(times) + BARRIER_NS * barriers
        events.emit_run(
            events.Run(
                self._launches,
                start,
                stop,
                times if times[0] >= start else (),
                workers,
                round(stamping) + events.now() - stop,
            )
        )
        if self.learning:
            self._runs += 1
            if self._runs > 1:
                self._note(table)
            if self._runs > MEASURED_RUNS:
                self._bind()
