"""Bind the symbolic sizes of a program: compute its launches and where buffers go in their arguments (`places.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...ir.node import set_fact_once
from ...ir.program import Copy, Foreign, Launch, Program
from ...ir.size import Dim, Size, known
from ...ir.tile import Kernel, Name, Store
from ...ir.tile_access import statements, walk
from ..places import INPUTS, Places, Span
from .costs import COPY_BYTES_PER_NS, EXTERNAL_CALL_OPERATIONS, OPERATIONS_PER_NS
from .partition import NativeCall
from .pool import ALIGNMENT
from .prepacked import PackingKernel
from .task_table import ArgumentPatch

if TYPE_CHECKING:
    from .external_calls import NativeExternalCall

COPY_BLOCK_BYTES = 1 << 16
"""Bytes copied by one instance of the kernel `copy_bytes`."""
Native = Mapping[str, int]


class BoundProgram(NamedTuple):
    """A program with its sizes bound: the bytes of new outputs and of its arena, the datum of each result."""

    calls: list[NativeCall]
    patches: list[ArgumentPatch]
    inputs: int
    made: list[int]
    results: list[int]
    arena: int
    external_calls: list[NativeExternalCall]

    @property
    def data(self) -> int:
        return self.inputs + len(self.made) + bool(self.arena)


def bind_sizes(
    program: Program, address: Callable[[Kernel], int], native: Native, sizes: Mapping[str, int]
) -> BoundProgram:
    """Bind the sizes of a program; `address` looks up the code of a kernel, `native` the functions of `runtime.ll`."""
    return _SizeBinder(program, sizes).bind(address, native)


class _SizeBinder:
    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        self.program = program
        self.sizes = sizes
        self.places = Places(program, sizes, ALIGNMENT)
        self.calls: list[NativeCall] = []
        self.patches: list[ArgumentPatch] = []
        self.external_calls: list[NativeExternalCall] = []

    def bind(self, address: Callable[[Kernel], int], native: Native) -> BoundProgram:
        for step in self.program.steps:
            match step:
                case Launch(kernel, arguments, grid, _, work):
                    values = [known(a, self.sizes) if isinstance(a, Size) else a for a in arguments]
                    extents = [tiles.count(self.sizes) for tiles in grid]
                    self._add(kernel.name, address(kernel), values, extents, written_buffers(kernel, values), work)
                    if isinstance(kernel, PackingKernel) and self.calls:
                        self.calls[-1] = self.calls[-1]._replace(is_prepack=True)
                case Copy(source, target):
                    bytes = self.places.bytes(source)
                    work = OPERATIONS_PER_NS * COPY_BLOCK_BYTES / COPY_BYTES_PER_NS
                    self._add(
                        f"copy {target}",
                        native["copy_bytes"],
                        [source, target, bytes],
                        [-(-bytes // COPY_BLOCK_BYTES)],
                        {target},
                        work,
                    )
                case Foreign():
                    self._add_external_call(step, native["call_outside"])
                case _:
                    pass  # other steps concern memory, which is planned already
        p = self.places
        return BoundProgram(self.calls, self.patches, p.inputs, p.made, p.results, p.arena, self.external_calls)

    def _add_external_call(self, step: Foreign, code: int) -> None:
        """Add a call of an external function, as a kernel of one instance."""
        from ...runtime.external_work import with_known_sizes
        from .external_calls import NativeExternalCall

        names = (*step.inputs, *step.outputs)
        types = [with_known_sizes(self.places.buffers[name].type, self.sizes) for name in names]
        count = len(step.inputs)
        call = NativeExternalCall(step.work.prepared(types[:count], types[count:], "cpu"), step.work.kind)
        self.external_calls.append(call)
        tensors = [word for pair in zip(names, call.prepared.data, strict=True) for word in pair]
        self._add(step.work.name, code, [*call.words, *tensors], [1], set(step.outputs), EXTERNAL_CALL_OPERATIONS)

    def _add(
        self,
        name: str,
        kernel: int,
        arguments: Sequence[str | int],
        grid: Sequence[int],
        written_buffers: set[str],
        work: float,
    ) -> None:
        instances = math.prod(grid)
        if instances == 0:
            return
        for slot, argument in enumerate(arguments):
            if isinstance(argument, str):
                place = self.places[argument]
                self.patches.append(ArgumentPatch(place.datum, len(self.calls), slot, place.offset))
        used = dict.fromkeys(a for a in arguments if isinstance(a, str))
        self.calls.append(
            NativeCall(
                name,
                kernel,
                tuple([0 if isinstance(a, str) else a for a in arguments]) + (*grid, 1, 1, 1)[:3],
                instances,
                instances * work / OPERATIONS_PER_NS,
                tuple([self._span(b) for b in used if b not in written_buffers]),
                tuple([self._span(b) for b in used if b in written_buffers]),
                sum([self.places.bytes(b) for b in used]),
                instances * work,
            )
        )

    def _span(self, name: str) -> Span:
        return INPUTS if self.places[name].datum < self.places.inputs else self.places.span(name)


def written_buffers(kernel: Kernel, arguments: Sequence[str | Dim]) -> set[str]:
    """Collect the buffers that a launch writes: all of its buffers if its stores do not tell."""
    pointers = {p.name: a for p, a in zip(kernel.parameters, arguments, strict=True) if isinstance(a, str)}
    if isinstance(kernel, PackingKernel):
        return {pointers[kernel.parameters[-1].name]}
    stored = kernel.__dict__.get("stored_pointers")
    if stored is None:
        stored = set_fact_once(kernel, "stored_pointers", _stored_pointers(kernel))
    return {pointers[name] for name in stored} or set(pointers.values())


def _stored_pointers(kernel: Kernel) -> frozenset[str]:
    """Return the pointers that the stores of a kernel name; none if some store names none."""
    pointers = {p.name for p in kernel.parameters if p.pointer}
    found: set[str] = set()
    for statement in statements(kernel.body):
        if isinstance(statement, Store):
            stored = {x.name for x in walk(statement.pointer) if isinstance(x, Name) and x.name in pointers}
            if not stored:
                return frozenset()
            found |= stored
    return frozenset(found)
