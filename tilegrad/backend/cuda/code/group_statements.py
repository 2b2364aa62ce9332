"""Group consecutive statements with one layout, to be written as one loop (`fused_statements.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.tile_access import roots, walk
from .foreign_registers import missing
from .fused_statements import Segment
from .layout import Layout

if TYPE_CHECKING:
    from .lower import Lowering


class Gathered:
    """Collects statements in order and writes the group before a statement that must see its effects."""

    def __init__(self, low: Lowering) -> None:
        self.low = low
        self.layout: Layout | None = None
        self.members: list[ir.Assign | ir.Store] = []
        self.assigned: set[str] = set()
        self.later: set[str] = set()
        """Names available only after the loop: results of reductions and scans."""
        self.stores = False

    def before(self, statement: ir.Assign) -> None:
        """Hoist a scalar before the loop if the group does not depend on it; else write the group first."""
        names = _names(statement)
        held = {n for member in self.members for n in _names(member)}
        loads = isinstance(statement.value, ir.Load) and self.low.guard.matters(statement.value.pointer)
        if names & (self.later | self.assigned) or statement.name in held or (loads and self.stores):
            self.finish()
        self.low.number(statement)

    def add(self, statement: ir.Assign | ir.Store) -> None:
        layout = self._layout(statement)
        if not self._joins(statement, layout):
            self.finish()
        self.layout = layout
        self.members.append(statement)
        if isinstance(statement, ir.Store):
            self.stores = True
        elif isinstance(statement.value, ir.Reduce | ir.Scan):
            self.later.add(statement.name)
        else:
            self.assigned.add(statement.name)

    def _layout(self, statement: ir.Assign | ir.Store) -> Layout:
        plan = self.low.plan
        match statement:
            case ir.Store():
                return plan.of_store(statement)
            case ir.Assign(_, ir.Reduce(_, x, _)):
                return plan.of_operand(x)
            case ir.Assign(_, ir.Scan(_, x, axis)):
                return plan.of_scan(x, axis)
        return plan.of_name(statement.name)

    def _joins(self, statement: ir.Assign | ir.Store, layout: Layout) -> bool:
        """Return whether a statement can join the group."""
        if not self.members:
            return True
        if layout != self.layout or _names(statement) & self.later:
            return False
        if isinstance(statement, ir.Assign) and statement.name in self.later:
            return False
        if isinstance(statement, ir.Assign) and isinstance(statement.value, ir.Load):
            # vectors are loaded before all else: a variable with another value before must have had its turn
            if statement.name in self.assigned or any(statement.name in _names(m) for m in self.members):
                return False
        guard = self.low.guard
        if isinstance(statement, ir.Store):
            if layout.copies(self.low.threads) >> 5 and any(
                guard.anonymous(load.pointer) == guard.anonymous(statement.pointer) for load in self._loads()
            ):
                return False  # of the threads that hold copies, some may load what the owner has just stored
            mine = guard.expanded(statement.pointer)
            for pointer in self._accessed():
                if guard.keys(pointer) & guard.keys(statement.pointer) and guard.expanded(pointer) != mine:
                    return False
        if isinstance(statement, ir.Assign) and isinstance(statement.value, ir.Load) and self.stores:
            return not guard.matters(statement.value.pointer)
        return not (missing(self.low, [*self.members, statement], layout) & self.assigned)

    def _accessed(self) -> list[ir.Tile]:
        """Return the pointers of stores, and of loads that may alias stores."""
        found = [m.pointer for m in self.members if isinstance(m, ir.Store)]
        return found + [load.pointer for load in self._loads() if self.low.guard.matters(load.pointer)]

    def _loads(self) -> list[ir.Load]:
        return [m.value for m in self.members if isinstance(m, ir.Assign) and isinstance(m.value, ir.Load)]

    def finish(self) -> None:
        """Write the group."""
        if self.members:
            assert self.layout is not None
            Segment(self.low, self.layout, self.members).write()
        self.__init__(self.low)  # type: ignore[misc]


def _names(statement: ir.Statement) -> set[str]:
    return {x.name for root in roots(statement) for x in walk(root) if isinstance(x, ir.Name)}
