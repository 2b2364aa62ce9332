"""Looks at everything that the compiler makes while the tests run: `conftest.py` installs it.

After fusion every read of a group is proved to be in range. Of each kernel, once per structure (its text without
numbers, in at most `TIMES` sizes), every access is proved to be in range and every buffer that it stores to be stored
whole; what cannot be proved is run in the checked interpreter, if it is small. What is proved to be wrong fails the
test. What stays open is counted: `unproved.txt` has the number that it may not exceed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.verifier.kernels import verdict
from tests.verifier.ranges import unproved
from tilegrad.backend.reference.tile import run
from tilegrad.errors import CompileError, KernelError
from tilegrad.ir.program import Copy, Foreign, Launch, Program
from tilegrad.ir.size import known
from tilegrad.schedule import assemble, fuse
from tilegrad.schedule.group import Schedule

TIMES = 2
"""Sizes in which a kernel of one structure is looked at."""
SIZES = (3, 8)
"""Values that stand for symbolic sizes."""
MAX_ELEMENTS, MAX_INSTANCES = 1 << 14, 64
"""Limits of a launch that is interpreted."""
BY_HAND = 1e5
"""The estimate that kernels have which an op brings along."""
ALLOWED = Path(__file__).with_name("unproved.txt")


class Seen(NamedTuple):
    """Verdicts on the kernels of a run, by structure; `reads` are those of groups."""

    times: Counter[str]
    proved: set[str]
    interpreted: set[str]
    open: set[str]
    reads: set[str]

    def as_lists(self) -> dict[str, list[str]]:
        return {name: sorted(getattr(self, name)) for name in ("proved", "interpreted", "open", "reads")}

    def add(self, found: Mapping[str, list[str]]) -> None:
        for name, structures in found.items():
            getattr(self, name).update(structures)


PLAIN_CHECK, PLAIN_PROGRAM = fuse.check_schedule, assemble._Assembly.program
SEEN = Seen(Counter(), set(), set(), set(), set())


@contextmanager
def watching() -> Iterator[None]:
    """Within the block what is compiled is looked at."""

    def check_schedule(schedule: Schedule) -> Schedule:
        look_at_reads(PLAIN_CHECK(schedule))
        return schedule

    def program(assembly: assemble._Assembly, name: str) -> Program:
        made = PLAIN_PROGRAM(assembly, name)
        look_at_kernels(made)
        return made

    with _in_place(check_schedule, program):
        yield


@contextmanager
def not_watching() -> Iterator[None]:
    """Within the block what is compiled is not looked at: for tests that count what compiling takes."""
    with _in_place(PLAIN_CHECK, PLAIN_PROGRAM):
        yield


@contextmanager
def _in_place(check: Any, program: Any) -> Iterator[None]:
    before = fuse.check_schedule, assemble._Assembly.program
    fuse.check_schedule, assemble._Assembly.program = check, program  # type: ignore[method-assign]
    try:
        yield
    finally:
        fuse.check_schedule, assemble._Assembly.program = before  # type: ignore[method-assign]


def look_at_reads(schedule: Schedule) -> None:
    """Refuses reads out of range. One whose place depends on data is counted, if no condition keeps it inside."""
    for group in schedule.groups:
        for member in group.stores if group.kind != "opaque" else ():
            for found in unproved(member.expr):
                if not found.depends_on_data:
                    raise CompileError(f"{member.value} may read out of range: {found}")
                SEEN.reads.add(f"{member.value.op} of {found.read.source.op}")


def look_at_kernels(program: Program) -> None:
    for n, step in enumerate(program.steps):
        if isinstance(step, Launch) and not step.users:
            structure = _structure(step)
            SEEN.times[structure] += 1
            if SEEN.times[structure] <= TIMES:
                _look_at(program, n, step, structure)


def _structure(step: Launch) -> str:
    """A kernel without its numbers."""
    own = step.kernel.__dict__
    if "_structure" not in own:
        text = re.sub(r"\d+", "#", repr(step.kernel.body))
        own["_structure"] = f"{step.kernel.name} {sha256(text.encode()).hexdigest()[:16]}"
    return own["_structure"]  # type: ignore[no-any-return]


def _look_at(program: Program, n: int, step: Launch, structure: str) -> None:
    for turn in range(1 if not program.sizes else len(SIZES)):
        sizes = {name: SIZES[(turn + k) % len(SIZES)] for k, name in enumerate(program.sizes)}
        names = {p.name: a for p, a in zip(step.kernel.parameters, step.arguments, strict=True)}
        numbers = {p: known(a, sizes) for p, a in names.items() if not isinstance(a, str)}
        counts = {p: known(program.buffer(a).type.count, sizes) for p, a in names.items() if isinstance(a, str)}
        grid = tuple([t.count(sizes) for t in step.grid])
        fresh = {p for p, a in names.items() if isinstance(a, str) and _is_unwritten(program, n, a)}
        if step.work == BY_HAND:
            fresh = set()  # parts of them are notes of their own, written as far as they are read
        found = verdict(step.kernel, numbers, counts, grid, fresh)
        if found.wrong:
            raise CompileError(f"kernel {step.kernel.name} {grid}: {'; '.join(found.wrong)}\n{step.kernel}")
        kind = SEEN.proved if not found.open else SEEN.open
        if found.open and _runs_in_the_interpreter(step, numbers, counts, grid, fresh):
            kind = SEEN.interpreted
        kind.add(structure)
    if structure in SEEN.open:
        SEEN.proved.discard(structure)
        SEEN.interpreted.discard(structure)


def _is_unwritten(program: Program, n: int, name: str) -> bool:
    """Whether a buffer has nothing in it before a step."""
    if program.buffer(name).role not in ("temporary", "output"):
        return False
    for step in program.steps[:n]:
        match step:
            case Copy(_, target) if target == name:
                return False
            case Foreign(_, _, outputs) if name in outputs:
                return False
            case Launch(_, arguments) if name in arguments:
                return False
    return True


def _runs_in_the_interpreter(
    step: Launch, numbers: Mapping[str, int], counts: Mapping[str, int], grid: tuple[int, ...], fresh: set[str]
) -> bool:
    """Whether the checked interpreter runs a kernel to its end, on zeros; large ones are not tried."""
    if sum(counts.values()) > MAX_ELEMENTS or prod(grid) > MAX_INSTANCES:
        return False
    kernel = step.kernel
    given = {p.name: np.zeros(counts[p.name], p.dtype.numpy) for p in kernel.parameters if p.pointer}
    try:
        run(kernel, {**given, **numbers}, grid, checked=True, unwritten=fresh, complete=True, nan=False)
    except KernelError:
        return False
    return True


def kernels() -> list[str]:
    """The names of the kernels of which some structure is not proved: those that are written by hand."""
    return sorted({structure.split()[0] for structure in SEEN.open})


def summary() -> list[str]:
    """The line at the end of a run."""
    counts = f"{len(SEEN.proved)} proved, {len(SEEN.interpreted)} interpreted, {len(SEEN.open)} open"
    names = f"of {len(kernels())} kernels (at most {allowed()})"
    lines = [f"structures of kernels: {counts}, {names}; reads that data place: {len(SEEN.reads)}"]
    if len(kernels()) > allowed():
        lines.append(f"more kernels than before are not proved to be in range and whole: {', '.join(kernels())}")
    return lines


def allowed() -> int:
    """Read the number of kernel structures that may stay unproved."""
    return int(ALLOWED.read_text())
