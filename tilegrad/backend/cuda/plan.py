"""Plan a program with bound sizes: calls, arguments that hold the run's data (`places.py`), and dependences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ...ir.program import Copy, Foreign, Launch, Program
from ...ir.size import Dim, known
from ...ir.tile import Kernel
from ...ir.tile_access import Accesses, accesses
from ...ir.tile_checker import check
from ...runtime.external_work import with_known_sizes
from ..dependences import dependences
from ..places import INPUTS, Place, Places, Span
from .driver import CopyCall, LibraryCall, NodeCall
from .functions import LoadedKernel
from .outside import ForeignCall
from .properties import GpuProperties

ALIGNMENT = 256
"""Alignment of temporaries, in bytes."""
CompiledLaunch: TypeAlias = tuple[Kernel, LoadedKernel, Sequence[int]]
"""A kernel, its loaded function, and its grid."""
Substitute: TypeAlias = Callable[[CompiledLaunch, CompiledLaunch | None], LibraryCall | None]
"""Returns a library call that replaces a kernel, or also the kernel after it, the only reader of its result."""


class AddressPatch(NamedTuple):
    """An argument of a call that is an address: a datum plus an offset."""

    step: int
    slot: int
    offset: int


class PlannedCall(NamedTuple):
    """A call and the memory that it reads and writes; `launch` is its origin, None for a copy."""

    call: NodeCall | ForeignCall
    origin: str
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    sizes: tuple[int, ...]
    """Bytes of the buffer in each slot; 0 for a number."""
    bytes: int
    """Bytes of all buffers, each counted once."""
    operations: float
    launch: Launch | None


class LaunchPlan(NamedTuple):
    """A planned program: `made` are the bytes of new outputs, `results` the datum of each result, `updated` the inputs
    written in place, `patches` the arguments that hold each datum.
    """

    steps: list[PlannedCall]
    patches: list[list[AddressPatch]]
    inputs: int
    made: list[int]
    results: list[int]
    updated: list[int]
    arena: int

    @property
    def calls_external(self) -> bool:
        """Whether external functions are called."""
        return any(isinstance(step.call, ForeignCall) for step in self.steps)

    def dependences(self, distinct: bool) -> list[list[int]]:
        """Return the steps that each step must wait for, transitively reduced; `distinct`: inputs do not alias."""

        def memory(span: Span) -> Span:
            return span if distinct or span.datum >= self.inputs else INPUTS

        return dependences([(list(map(memory, s.reads)), list(map(memory, s.writes))) for s in self.steps])


def written_buffers(kernel: Kernel, arguments: Sequence[str | Dim]) -> set[str]:
    """Return the buffers that a launch writes."""
    stored = accesses(kernel, check(kernel)).stored
    return {a for p, a in zip(kernel.parameters, arguments, strict=True) if p.name in stored and isinstance(a, str)}


def plan_program(
    program: Program,
    functions: Mapping[str, LoadedKernel],
    limits: GpuProperties,
    sizes: Mapping[str, int],
    substitute: Substitute | None = None,
) -> LaunchPlan:
    """Plan a program for these sizes and check every launch against the GPU's limits.

    `substitute` may replace kernels by library calls.
    """
    return _Planner(program, functions, limits, sizes, substitute).plan()


class _Planner:
    def __init__(
        self,
        program: Program,
        functions: Mapping[str, LoadedKernel],
        limits: GpuProperties,
        sizes: Mapping[str, int],
        substitute: Substitute | None,
    ) -> None:
        self.program, self.substitute = program, substitute
        self.workspace: Place | None = None
        self.functions = functions
        self.limits = limits
        self.sizes = sizes
        self.accesses: dict[str, Accesses] = {}
        self.places = Places(program, sizes, ALIGNMENT)
        self.steps: list[PlannedCall] = []
        data = self.places.inputs + len(self.places.made) + 1
        self.patches: list[list[AddressPatch]] = [[] for _ in range(data)]
        self.updated: set[int] = set()
        self.replaced_by_copy: list[Launch | None] = []
        """Launches replaced by a copy, because a library call has done their work."""

    def plan(self) -> LaunchPlan:
        for step in self.program.steps:
            match step:
                case Launch():
                    self._launch(step)
                case Copy(source, target):
                    self._copy(source, target)
                case Foreign():
                    self._call_external(step)
                case _:
                    pass  # allocation is planned already, dependences follow from memory accesses
        p = self.places
        return LaunchPlan(self.steps, self.patches, p.inputs, p.made, p.results, sorted(self.updated), p.arena)

    def _compiled_launch(self, step: Launch) -> CompiledLaunch:
        return step.kernel, self.functions[step.kernel.digest()], [tiles.count(self.sizes) for tiles in step.grid]

    def _substitute(self, step: Launch) -> LibraryCall | None:
        """Return the library call that replaces a kernel; a second kernel whose work it does becomes a copy."""
        if self.substitute is None or step.users:
            return None
        after = self._only_reader(step)
        call = self.substitute(self._compiled_launch(step), self._compiled_launch(after) if after is not None else None)
        if call is not None and call.sums_parts:
            self.replaced_by_copy.append(after)
        return call

    def _only_reader(self, step: Launch) -> Launch | None:
        """Return the next kernel, if it alone reads the one buffer that a step writes."""
        made = written_buffers(step.kernel, step.arguments)
        if len(made) != 1 or made & {*self.program.inputs, *self.program.outputs}:
            return None
        readers = [s for s in self.program.steps if s is not step and made & self._used(s)]
        match readers:
            case [Launch(arguments=(source, _)) as found] if source in made and not found.users:
                return found
        return None

    def _used(self, step: object) -> set[object]:
        match step:
            case Launch():
                return set(step.arguments)
            case Copy():
                return {step.source, step.target}
            case Foreign():
                return {*step.inputs, *step.outputs}
        return set()

    def _launch(self, step: Launch) -> None:
        if any(step is s for s in self.replaced_by_copy):
            source, target = step.arguments
            self._copy(str(source), str(target))
            return
        kernel, function, extents = self._compiled_launch(step)
        instances = math.prod(extents)
        if instances == 0:
            return  # an axis is empty
        numbers = [0 if isinstance(a, str) else known(a, self.sizes) for a in step.arguments]
        call: NodeCall = self._substitute(step) or function.call(self.limits, numbers, extents)
        found = self._accesses(kernel)
        named = {p.name: a for p, a in zip(kernel.parameters, step.arguments, strict=True) if isinstance(a, str)}
        loaded = [named[name] for name in named if name in found.loaded]
        stored = [named[name] for name in named if name in found.stored]
        slots = [(slot, a) for slot, a in enumerate(step.arguments) if isinstance(a, str)]
        self._add(call, kernel.origin, slots, loaded, stored, instances * step.work, step)

    def _copy(self, source: str, target: str) -> None:
        bytes = min(self.places.bytes(source), self.places.bytes(target))
        if bytes:
            self._add(CopyCall(bytes), f"to {target}", [(0, source), (1, target)], [source], [target], 0.0, None)

    def _call_external(self, step: Foreign) -> None:
        names = (*step.inputs, *step.outputs)
        types = [with_known_sizes(self.places.buffers[name].type, self.sizes) for name in names]
        count = len(step.inputs)
        call = ForeignCall(step.work, types[:count], types[count:], types[-1].device)
        self._add(call, "", list(enumerate(names)), step.inputs, step.outputs, 0.0, None)

    def _add(
        self,
        call: NodeCall | ForeignCall,
        origin: str,
        slots: Sequence[tuple[int, str]],
        loaded: Sequence[str],
        stored: Sequence[str],
        operations: float,
        launch: Launch | None,
    ) -> None:
        for slot, name in slots:
            place = self.places[name]
            self.patches[place.datum].append(AddressPatch(len(self.steps), slot, place.offset))
        self.updated |= {self.places[name].datum for name in stored} & set(range(self.places.inputs))
        reads, writes = tuple(map(self.places.span, loaded)), tuple(map(self.places.span, stored))
        if isinstance(call, LibraryCall):
            writes = (*writes, self._reserve_workspace(call))
        buffers = dict(slots)
        sizes = tuple([self.places.bytes(buffers[n]) if n in buffers else 0 for n in range(len(call.slots))])
        bytes = sum(self.places.bytes(name) for name in set(buffers.values()))
        self.steps.append(PlannedCall(call, origin, reads, writes, sizes, bytes, operations, launch))

    def _reserve_workspace(self, call: LibraryCall) -> Span:
        """Reserve workspace behind all temporaries. All library calls share it and so run one after the other."""
        if self.workspace is None:
            self.workspace = self.places.behind(0)
        datum, offset = self.workspace
        self.places.arena = max(self.places.arena, offset + call.workspace)
        self.patches[datum].append(AddressPatch(len(self.steps), len(call.slots) - 1, offset))
        return Span(datum, offset, offset + call.workspace)

    def _accesses(self, kernel: Kernel) -> Accesses:
        digest = kernel.digest()
        if digest not in self.accesses:
            self.accesses[digest] = accesses(kernel, check(kernel))
        return self.accesses[digest]
