"""Attribute the launches of a program to the user's lines and modules, and count the work of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..ir.program import Copy, Foreign, Launch, Program
from ..ir.size import known
from ..ir.stored import NotStored
from ..runtime import events
from .count import Work
from .explanation import Explanation
from .measure import works_of
from .shares import Share, shares_of


class LaunchOrigin(NamedTuple):
    """The origin of a launch: its lines (the largest share first), its work, the shapes that it reads."""

    lines: tuple[Share, ...] = ()
    work: Work | None = None
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def module(self) -> str:
        """Path of the module with the largest share."""
        return next((line.module for line in self.lines if line.module), "")


UNKNOWN = LaunchOrigin()


def sources_of(launches: events.Launches, compiled: Any) -> list[LaunchOrigin]:
    """Return the source of each launch of a program, in order."""
    nothing = [UNKNOWN] * len(launches.steps)
    if compiled is None:
        return nothing
    program: Program = compiled.executable.program
    steps = [s for s in program.steps if isinstance(s, Launch | Copy | Foreign) and not _is_empty(s, launches.sizes)]
    try:
        explained = Explanation(launches.name, compiled, lambda: (), launches.sizes)
        groups = explained.groups
        works = works_of(program, groups, launches.sizes)
        shares = shares_of(explained, launches.sizes)
    except (ValueError, LookupError, NotStored):  # a device made launches of its own that no group stands for
        return nothing
    if len(steps) != len(launches.steps) or len(works) != len(steps):
        return nothing
    remaining = iter(shares)
    found = []
    for step, work in zip(steps, works, strict=True):
        lines = () if isinstance(step, Copy) else next(remaining, ())
        found.append(LaunchOrigin(lines, work, tuple(_shapes(program, step, launches.sizes))))
    return found


def _is_empty(step: Launch | Copy | Foreign, sizes: Mapping[str, int]) -> bool:
    return isinstance(step, Launch) and any(tiles.count(sizes) == 0 for tiles in step.grid)


def _shapes(program: Program, step: Launch | Copy | Foreign, sizes: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    match step:
        case Launch(_, arguments):
            names = [a for a in arguments if isinstance(a, str)][:-1] or [a for a in arguments if isinstance(a, str)]
        case Copy(source):
            names = [source]
        case _:
            names = list(step.inputs)
    declared = {b.name: b.type for b in program.buffers}
    for name in names:
        yield tuple(known(extent, sizes) for extent in declared[name].shape)
