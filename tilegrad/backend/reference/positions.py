"""Find the expressions of a kernel that compute addresses."""

from __future__ import annotations

from ...ir.tile import Assign, Atomic, Kernel, Load, Name, Store, Tile, parts
from ...ir.tile_access import roots, statements, walk


def position_parts(kernel: Kernel) -> frozenset[int]:
    """Return the identities of the expressions that an address is computed from, through names too.

    A load ends the search: an index that was read from memory is data.
    """
    every = list(statements(kernel.body))
    found: set[int] = set()
    names: set[str] = set()

    def mark(x: Tile) -> None:
        if id(x) in found:
            return
        found.add(id(x))
        if isinstance(x, Name):
            names.add(x.name)
        elif not isinstance(x, Load):
            for part in parts(x):
                mark(part)

    for statement in every:
        for x in walk(*roots(statement)):
            if isinstance(x, Load):
                mark(x.pointer)
        if isinstance(statement, Store | Atomic):
            mark(statement.pointer)
    before = -1
    while before != len(found) + len(names):
        before = len(found) + len(names)
        for statement in every:
            if isinstance(statement, Assign) and statement.name in names:
                mark(statement.value)
    return frozenset(found)
