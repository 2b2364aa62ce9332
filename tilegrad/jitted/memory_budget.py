"""Report the memory of a program and of rematerialisation under a byte budget: `tg.jit(fit="2GB")`."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..compiler import Compiled
from ..errors import ArgumentError
from ..ir.graph import Graph
from ..ir.program import Program
from ..ir.program_printer import peak
from ..ir.size import Dim, Size
from ..transform.operation_count import operations
from ..transform.rematerialise import recomputed, summary

AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([kKMGT]?)(i?)B?")
POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def bytes_of(amount: str | float, what: str = "fit") -> int:
    """Parse an amount of memory.

    >>> bytes_of("2GB"), bytes_of("512 MiB"), bytes_of(4096)
    (2000000000, 536870912, 4096)
    """
    found = AMOUNT.fullmatch(amount.strip()) if isinstance(amount, str) else None
    count = amount if found is None else float(found[1]) * (1024 if found[3] else 1000) ** POWERS[found[2]]
    if isinstance(count, int | float) and not isinstance(count, bool) and 1 <= count < float("inf"):
        return int(count)
    raise ArgumentError(
        f"{what}={amount!r}: an amount of memory is wanted, such as '2GB', '512MiB' or a number of bytes"
    )


class ProgramMemory(NamedTuple):
    """The peak memory of a program, in bytes, and the cost of rematerialisation to stay within it."""

    temporaries: Dim
    inputs: Dim
    results: Dim
    """Outputs that do not update inputs."""
    gradients: Dim
    """Results that stay in `.grad` of parameters."""
    again: str
    values: int
    """Number of recomputed values."""
    operations: int
    """Operations of the recomputation."""
    share: float
    """Operations of the recomputation, as a fraction of those of the program without it."""
    kept: int = 0
    """Values hoisted from captured tensors and cached between calls."""

    @property
    def peak(self) -> Dim:
        return self.temporaries + self.inputs + self.results + self.kept

    def __str__(self) -> str:
        lines = [
            f"peak {shown_bytes(self.peak)}: {shown_bytes(self.temporaries)} for temporaries, "
            f"{shown_bytes(self.inputs)} for inputs, {shown_bytes(self.results)} for results"
        ]
        if self.kept:
            lines.append(f"of these {shown_bytes(self.kept)} are made of captured tensors, and kept from call to call")
        if self.values:
            lines.append(f"computed again: {self.again}; {self.operations:,} more operations ({self.share:.1%})")
        if isinstance(self.gradients, int) and isinstance(self.peak, int) and self.gradients * 20 > self.peak:
            lines.append(
                f"{shown_bytes(self.gradients)} are gradients that stay: with optimizer.zero_grad() behind "
                "optimizer.step() they need no memory"
            )
        return "\n".join(lines)


def memory(compiled: Compiled, gradients: Dim = 0) -> ProgramMemory:
    """Measure the memory of a compiled program."""
    temporaries, rest = peak(compiled.program)
    hoisted, kept = compiled.executable.hoisted, 0
    if hoisted is not None:
        temporaries, kept = compiled.executable.program.arena, hoisted.bytes
    inputs = _inputs(compiled.program)
    graph = [s.artifact for s in compiled.stages.made if isinstance(s.artifact, Graph)][-1]
    again = recomputed(graph)
    extra = sum(map(operations, again))
    needed = sum(map(operations, graph.values())) - extra
    results = rest - inputs
    share = extra / max(1, needed)
    return ProgramMemory(temporaries, inputs, results, gradients, summary(again), len(again), extra, share, kept)


def _inputs(program: Program) -> Dim:
    total: Dim = 0
    for b in program.buffers:
        total = total + (b.type.bytes if b.role == "input" and b.alias is None else 0)
    return total


def shown_bytes(count: Dim) -> str:
    """Format a number of bytes.

    >>> shown_bytes(123), shown_bytes(45_600), shown_bytes(785_000_000)
    ('123 bytes', '45.6 kB', '785.0 MB')
    """
    if isinstance(count, Size):
        return f"{count} bytes"
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.1f} {unit}"
    return f"{count} bytes"
