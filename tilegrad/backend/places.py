"""Assign each buffer of a program run a memory block and an offset in it.

The blocks of a run are the addresses of its inputs, of the outputs allocated for it, and of the arena, in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..errors import RuntimeFault
from ..ir.program import Program
from ..ir.size import known


class Place(NamedTuple):
    """The address data[datum] + offset."""

    datum: int
    offset: int = 0


class Span(NamedTuple):
    """Bytes `begin` to `end` of a block (or of INPUTS)."""

    datum: int
    begin: int
    end: int

    def meets(self, other: Span) -> bool:
        return self.datum == other.datum and self.begin < other.end and other.begin < self.end


INPUTS = Span(-1, 0, 1)
"""The memory of all inputs, as one: a caller may pass the same buffer twice."""


class Places:
    """The places of a program with known sizes. `made` has the bytes of new outputs, `arena` those of temporaries."""

    def __init__(self, program: Program, sizes: Mapping[str, int], alignment: int) -> None:
        self.program, self.sizes, self.alignment = program, sizes, alignment
        self.buffers = {b.name: b for b in program.buffers}
        self.made: list[int] = []
        self.arena = known(program.arena, sizes)
        self._bytes: dict[str, int] = {}
        self._of = {name: Place(n) for n, name in enumerate(program.inputs)}
        for name in program.outputs:
            if name not in self._of and not self.buffers[name].alias:
                self._of[name] = Place(len(program.inputs) + len(self.made))
                self.made.append(self.bytes(name))
        self._place_temporaries()
        for b in program.buffers:
            if b.alias:
                self._of.setdefault(b.name, self._of[b.alias])

    def _place_temporaries(self) -> None:
        for b in self.program.buffers:
            if b.name in self._of or b.alias:
                continue
            if b.role in ("input", "constant"):
                raise RuntimeFault(f"{self.program.name}: nothing gives {b.role} {b.name} its elements")
            if b.offset is None:  # the plan left it out
                self._of[b.name] = self.behind(self.bytes(b.name))
            else:
                self._of[b.name] = Place(self.inputs + len(self.made), known(b.offset, self.sizes))

    def __getitem__(self, name: str) -> Place:
        return self._of[name]

    @property
    def inputs(self) -> int:
        return len(self.program.inputs)

    @property
    def results(self) -> list[int]:
        """The block of each result."""
        return [self[name].datum for name in self.program.outputs]

    def behind(self, bytes: int) -> Place:
        """Reserve memory at the end of the arena."""
        begin = -(-self.arena // self.alignment) * self.alignment
        self.arena = begin + bytes
        return Place(self.inputs + len(self.made), begin)

    def bytes(self, name: str) -> int:
        found = self._bytes.get(name)
        if found is None:
            found = self._bytes[name] = known(self.buffers[name].type.bytes, self.sizes)
        return found

    def span(self, name: str) -> Span:
        place = self[name]
        return Span(place.datum, place.offset, place.offset + self.bytes(name))
