"""Barriers for memory that a kernel both reads and writes.

In the tile language a statement is done before the next one begins; threads of a block run ahead of each other. What
one thread has stored another one may load only after a barrier, and the other way round, unless every thread stores
exactly what it alone has loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir import tile as ir
from ....ir.tile_access import accesses, statements, walk
from ....ir.tile_types import Types
from .layout import Layout

Place = tuple[ir.Tile, Layout] | None
"""Where something is accessed, and by whom; None: nobody knows."""


class Guard:
    """What has been loaded and stored since the last barrier."""

    def __init__(
        self, kernel: ir.Kernel, types: Types, body: Sequence[ir.Statement], expanded: Callable[[ir.Tile], ir.Tile]
    ) -> None:
        self.types, self.expanded = types, expanded
        found = accesses(kernel.replaced(body=tuple(body)), types)
        self.loaded, self.stored = found.loaded, found.stored
        every = list(statements(tuple(body)))
        self.alone = not any(
            isinstance(x, ir.ProgramId) for s in statements(kernel.body) for x in _expressions(s)
        )
        """A kernel of one instance may overwrite what it has read, under another parameter's name."""
        self.bases: dict[str, set[str]] = {p.name: {p.name} for p in kernel.parameters if p.pointer}
        moved = [s for s in every if isinstance(s, ir.Assign) and types.variables[s.name].pointer]
        for _ in moved:
            for assign in moved:
                self.bases.setdefault(assign.name, set()).update(self._bases(assign.value))
        self.reading: dict[str, list[Place]] = {}
        self.writing: set[str] = set()

    def _bases(self, pointer: ir.Tile) -> set[str]:
        names = [x.name for x in walk(pointer) if isinstance(x, ir.Name) and self.types.variables[x.name].pointer]
        return set().union(*(self.bases.get(name, set()) for name in names))

    def is_shared(self, parameter: str) -> bool:
        """Whether what is stored may be what is loaded."""
        return self.alone or (parameter in self.loaded and parameter in self.stored)

    def keys(self, pointer: ir.Tile) -> set[str]:
        """The memories that an access may go to, of those that matter."""
        if self.alone:
            return {self.types.of(pointer).dtype.name}
        return {name for name in self._bases(pointer) if self.is_shared(name)}

    def loading(self, pointer: ir.Tile, layout: Layout | None) -> bool:
        """Notes a load; whether it must wait for what was stored."""
        keys = self.keys(pointer)
        waits = bool(keys & self.writing)
        if waits:
            self.met()
        for key in keys:
            self.reading.setdefault(key, []).append(None if layout is None else (self.expanded(pointer), layout))
        return waits

    def storing(self, pointer: ir.Tile, layout: Layout) -> bool:
        """Notes a store; whether it must wait for what others load."""
        keys = self.keys(pointer)
        place = (self.expanded(pointer), layout)
        waits = any(read != place for key in keys for read in self.reading.get(key, ()))
        waits = waits or (not layout.shape and any(self.reading.get(key) for key in keys))
        if waits:
            self.met()
        self.writing |= keys
        return waits

    def met(self) -> None:
        """There was a barrier."""
        self.reading, self.writing = {}, set()

    def repeat(self, statement: ir.Statement) -> None:
        """Before a loop: all that its turns do may have been done before."""
        for s in statements((statement,)):
            if isinstance(s, ir.Store):
                self.writing |= self.keys(s.pointer)
            for x in _expressions(s):
                if isinstance(x, ir.Load):
                    for key in self.keys(x.pointer):
                        self.reading.setdefault(key, []).append(None)


def _expressions(statement: ir.Statement) -> list[ir.Tile]:
    from ....ir.tile_access import roots

    return list(walk(*roots(statement)))
