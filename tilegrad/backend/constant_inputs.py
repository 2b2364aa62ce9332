"""Hoist the part of a program that depends only on constant inputs, such as the weights of a network.

It becomes a program of its own, which runs when those inputs have changed; its results are further inputs of the rest.
They are in memory that nothing else writes to, and bounded in size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from ..ir.program import Launch, Program, Role, Step, uses
from ..ir.size import Dim, known
from ..ir.tile import Kernel

MAX_GROWTH, MAX_FREE_BYTES = 4, 1 << 16
"""Largest ratio of hoisted results to the inputs that they are computed from, and bytes below which it does not matter.
"""


Written = Callable[[Kernel, "Sequence[str | Dim]"], Set[str]]
"""Return the buffers that a launch with these arguments writes."""


def parted(program: Program, constants: Set[str], written: Written) -> tuple[Program | None, Program]:
    """Split a program into the part that depends only on some of its inputs, if there is one, and the rest."""
    found = _Found(program, constants, written)
    if not found.steps:
        return None, program
    rest = [step for n, step in enumerate(program.steps) if n not in found.steps]
    wanted = {name for step in rest for name in uses(step)}
    made = tuple([name for name in found.sources if name not in constants and name in wanted])
    used = {name for step in found.steps.values() for name in uses(step)}
    given = tuple([name for name in program.inputs if name in used])
    first = _part(program.replaced(name=f"{program.name}_steady", sizes=()), given, made, tuple(found.steps.values()))
    return first, _part(program, (*program.inputs, *made), program.outputs, tuple(rest))


def _part(program: Program, inputs: tuple[str, ...], outputs: tuple[str, ...], steps: tuple[Step, ...]) -> Program:
    """Make a program of some steps, whose inputs other steps compute."""
    role: Mapping[bool, Role] = {True: "input", False: "output"}
    roles = {name: role[name in inputs] for name in (*inputs, *outputs)}
    needed = {*inputs, *outputs, *(n for step in steps for n in uses(step))}
    buffers = [b for b in program.buffers if b.name in needed or b.alias]
    buffers = [b.replaced(role=roles[b.name], offset=None) if b.name in roles else b for b in buffers]
    ends = [b.offset + b.type.bytes for b in buffers if b.offset is not None]
    arena = program.arena if program.sizes else max(map(known, ends, [{}] * len(ends)), default=0)
    return Program(program.name, program.sizes, tuple(buffers), inputs, outputs, steps, arena)


class _Found:
    """The launches that read only constants. `sources` has the inputs that each buffer depends on."""

    def __init__(self, program: Program, constants: Set[str], written: Written) -> None:
        self.written = written
        self.buffers = {b.name: b for b in program.buffers}
        self.sources: dict[str, frozenset[str]] = {name: frozenset([name]) for name in constants}
        self.steps: dict[int, Step] = {}
        writes: list[str] = []
        for step in program.steps:
            writes += self.written(step.kernel, step.arguments) if isinstance(step, Launch) else uses(step)
        self.once = {name for name in writes if writes.count(name) == 1}
        for n, step in enumerate(program.steps):
            if isinstance(step, Launch) and not step.users and self._is_constant(step):
                self._look_at(n, step)

    def _is_constant(self, step: Launch) -> bool:
        """Whether a launch is the same for all sizes."""
        extents = [tiles.extent for tiles in step.grid]
        bytes = [self.buffers[name].type.bytes for name in uses(step)]
        return all(isinstance(x, str | int) for x in (*step.arguments, *extents, *bytes))

    def _look_at(self, n: int, step: Launch) -> None:
        makes = self.written(step.kernel, step.arguments)
        reads = {a for a in step.arguments if isinstance(a, str)} - makes
        if not reads or not all(name in self.sources for name in reads):
            return
        if not all(name in self.once and self.buffers[name].role == "temporary" for name in makes):
            return
        sources = frozenset().union(*(self.sources[name] for name in reads))
        if self._bytes(makes) > max(MAX_FREE_BYTES, MAX_GROWTH * self._bytes(sources)):
            return
        self.steps[n] = step
        self.sources |= dict.fromkeys(makes, sources)

    def _bytes(self, names: Set[str]) -> int:
        return sum([known(self.buffers[name].type.bytes, {}) for name in names])
