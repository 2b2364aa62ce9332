"""Find the expressions that addresses and masks of a kernel depend on."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir import tile as ir
from ....ir.tile_access import expressions, statements


def position_parts(body: Sequence[ir.Statement]) -> frozenset[int]:
    """Return the identities of the expressions that addresses and masks depend on, also through names."""
    assigned: dict[str, list[ir.Tile]] = {}
    waiting: list[ir.Tile | None] = []
    for statement in statements(tuple(body)):
        match statement:
            case ir.Assign(name, value):
                assigned.setdefault(name, []).append(value)
            case ir.Store(pointer=pointer, mask=mask) | ir.Atomic(pointer=pointer, mask=mask):
                waiting += [pointer, mask]
            case ir.For(_, start, stop, step):
                waiting += [start, stop, step]
    waiting += [part for x in expressions(*body) if isinstance(x, ir.Load) for part in (x.pointer, x.mask)]
    found: set[int] = set()
    while waiting:
        x = waiting.pop()
        if x is None or id(x) in found:
            continue
        found.add(id(x))
        if isinstance(x, ir.Name):
            waiting += assigned.pop(x.name, [])
        elif not isinstance(x, ir.Load):
            waiting += ir.parts(x)
    return frozenset(found)
