"""Execution contexts on the CPU: task tables that hold the addresses of constants, on one thread or on all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ...runtime.buffer import DeviceBuffer
from ...runtime.execution_context import ContextFactory, ExecutionContext
from . import native
from .build import index_faults
from .executable import BoundExecutable, CpuExecutable, Repartitioner
from .partition import is_single_threaded, partition
from .pool import class_bytes
from .task_table import ArgumentPatch, TaskTable


class CpuContextFactory(ContextFactory):
    """A program with bound sizes on the CPU."""

    def __init__(self, executable: CpuExecutable, sizes: Mapping[str, int] = {}) -> None:
        self.binding = BoundExecutable(executable.device, executable.made, executable.code, sizes)
        self.learner = Repartitioner(self.binding, executable)
        bound = self.binding.bound
        self.arena, self.outputs, self.results = bound.arena, bound.made, bound.results

    @property
    def is_parallel(self) -> bool:
        return not is_single_threaded(partition(self.learner.calls, native.team().threads))

    def allocated(self, bytes: int) -> int:
        return class_bytes(bytes)

    def learn(self, inputs: Sequence[DeviceBuffer]) -> None:
        device = self.binding.device
        memory = [*inputs, *map(device.allocate, self.outputs), device.allocate(self.arena)]
        addresses = [buffer.address for buffer in memory[: self.binding.bound.data]]
        while self.learner.learning:
            self.learner.next()(*addresses)
        self._check()

    def context(
        self, constants: Mapping[int, DeviceBuffer], arena: DeviceBuffer | None, is_single_threaded: bool
    ) -> ExecutionContext:
        bound = self.binding.bound
        known = {n: buffer.address for n, buffer in constants.items()}
        if bound.arena:
            assert arena is not None
            known[bound.data - 1] = arena.address
        varying = [n for n in range(bound.data) if n not in known]
        run = self._table(known, varying, is_single_threaded).run
        can_fail = bound.external_calls or self.binding.code.checks_indices
        profiled = partial(self._profiled, known, varying)
        return ExecutionContext(run, profiled, self._check if can_fail else None)

    def _table(self, known: Mapping[int, int], varying: Sequence[int], is_single_threaded: bool) -> TaskTable:
        """Make a task table with known addresses in place; only the others are patched in a run."""
        place = {datum: n for n, datum in enumerate(varying)}
        slots = [list(call.slots) for call in self.learner.calls]
        patches = []
        for datum, call, slot, offset in self.binding.bound.patches:
            if datum in known:
                slots[call][slot] = known[datum] + offset
            else:
                patches.append(ArgumentPatch(place[datum], call, slot, offset))
        calls = [call._replace(slots=tuple(s)) for call, s in zip(self.learner.calls, slots, strict=True)]
        team = native.Team(1, ()) if is_single_threaded else native.team()
        return TaskTable(team, calls, partition(calls, team.threads), patches, len(varying), long=True)

    def _profiled(self, known: Mapping[int, int], varying: Sequence[int], *given: int) -> None:
        addresses = dict(zip(varying, given, strict=True))
        self.learner.profiled(*[known[n] if n in known else addresses[n] for n in range(self.binding.bound.data)])

    def _check(self) -> None:
        """Raise the error of a run."""
        if self.binding.bound.external_calls:
            from .external_calls import raise_external_errors

            raise_external_errors(self.binding.bound.external_calls)
        index_faults.look()


context_factory = CpuContextFactory
"""Specialises an executable of this device for callers with memory of their own."""
