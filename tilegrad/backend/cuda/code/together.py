"""Where a kernel renews what it reads, some vectors are loaded together, before anything is stored.

A load must not move above the store before it (weights, beside their gradients), and a thread would have one vector of
memory under way at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ....ir import tile as ir
from .layout import Layout

if TYPE_CHECKING:
    from .lower import Lowering

VECTORS = 8
"""Of a thread, under way at a time."""


class Together(NamedTuple):
    """Loops over registers, outer ones first, as variables and extents; so many turns of the first are one piece."""

    loops: tuple[tuple[str, int], ...]
    piece: int
    first: str
    """What the first turn of a piece is called."""
    loads: frozenset[str]
    """The variables that are loaded so."""

    @property
    def outer(self) -> str:
        """The head of the loop over pieces."""
        name, extent = self.loops[0]
        if self.piece == 1:
            return f"for (int {name} = 0; {name} < {extent}; ++{name})"
        return f"for (int {self.first} = 0; {self.first} < {extent}; {self.first} += {self.piece})"

    @property
    def inner(self) -> list[str]:
        """The heads of the loops of a piece."""
        inner = [f"for (int {name} = 0; {name} < {extent}; ++{name})" for name, extent in self.loops[1:]]
        if self.piece == 1:
            return inner
        name, first = self.loops[0][0], self.first
        return [f"for (int {name} = {first}; {name} < {first} + {self.piece}; ++{name})", *inner]

    @property
    def extents(self) -> str:
        """Of an array for what a piece loads."""
        return "".join(f"[{n}]" for n in (*([self.piece] if self.piece > 1 else []), *(n for _, n in self.loops[1:])))

    @property
    def indices(self) -> str:
        """Of the vector at hand."""
        first = f"[{self.loops[0][0]} - {self.first}]" if self.piece > 1 else ""
        return first + "".join(f"[{name}]" for name, _ in self.loops[1:])


def together(low: Lowering, layout: Layout, members: Sequence[ir.Assign | ir.Store]) -> Together | None:
    """How some statements load together, if they renew what they read."""
    if not low.plan.renews or layout.width == 1:
        return None
    parameter, stored, loads = low.products.definitions.parameter, set[str | None](), set()
    for m in members:
        if isinstance(m, ir.Store):
            stored.add(parameter(m.pointer))
        elif isinstance(m.value, ir.Load) and m.value.mask is None:
            source = parameter(m.value.pointer)
            if source is not None and source not in stored and low.guard.is_shared(source):
                loads.add(m.name)
    if not loads:
        return None
    registers = [(a, p) for a, p in layout.registers() if (a, p) != (layout.vector, 0)]
    loops = tuple([(low.variable(layout, a, p), layout.axes[a][p].extent) for a, p in reversed(registers)])
    if not loops:
        return None
    inner = 1
    for _, extent in loops[1:]:
        inner *= extent
    piece = max(n for n in range(1, loops[0][1] + 1) if loops[0][1] % n == 0 and (n == 1 or n * inner <= VECTORS))
    return Together(loops, piece, low.names.fresh("first") if piece > 1 else "", frozenset(loads))
