"""Group consecutive statements with one layout, to be written as one loop (`fused_statements.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.tile_access import names_read
from .foreign_registers import unavailable_names
from .fused_statements import FusedLoop
from .layout import RegisterLayout

if TYPE_CHECKING:
    from .lower import CudaLowering


class StatementGrouper:
    """Collects statements in order and writes the group before a statement that must see its effects."""

    def __init__(self, low: CudaLowering, before_joining: Callable[[], None] = lambda: None) -> None:
        self.low, self.before_joining = low, before_joining
        self._begin()

    def _begin(self) -> None:
        self.layout: RegisterLayout | None = None
        self.members: list[ir.Assign | ir.Store] = []
        self.assigned: set[str] = set()
        self.available_after: set[str] = set()
        """Names available only after the loop: results of reductions and scans."""
        self.stores = False

    def add_scalar(self, statement: ir.Assign) -> None:
        """Hoist a scalar before the loop if the group does not depend on it; else write the group first."""
        names = names_read(statement)
        used = {n for member in self.members for n in names_read(member)}
        loads = isinstance(statement.value, ir.Load) and self.low.hazards.may_read_stored(statement.value.pointer)
        if names & (self.available_after | self.assigned) or statement.name in used or (loads and self.stores):
            self.flush()
        self.low.assign_scalar(statement)

    def add(self, statement: ir.Assign | ir.Store) -> None:
        self.before_joining()
        layout = self._layout(statement)
        if not self._can_join(statement, layout):
            self.flush()
        self.layout = layout
        self.members.append(statement)
        if isinstance(statement, ir.Store):
            self.stores = True
        elif isinstance(statement.value, ir.Reduce | ir.Scan):
            self.available_after.add(statement.name)
        else:
            self.assigned.add(statement.name)

    def _layout(self, statement: ir.Assign | ir.Store) -> RegisterLayout:
        plan = self.low.plan
        match statement:
            case ir.Store():
                return plan.of_store(statement)
            case ir.Assign(_, ir.Reduce(_, x, _)):
                return plan.of_operand(x)
            case ir.Assign(_, ir.Scan(_, x, axis)):
                return plan.of_scan(x, axis)
        return plan.of_name(statement.name)

    def _can_join(self, statement: ir.Assign | ir.Store, layout: RegisterLayout) -> bool:
        """Return whether a statement can join the group."""
        if not self.members:
            return True
        if layout != self.layout or names_read(statement) & self.available_after:
            return False
        match statement:
            case ir.Assign(name) if name in self.available_after:
                return False
            case ir.Assign(name, ir.Load(pointer)):
                # vectors are loaded first: the group must not use or assign the variable before
                if name in self.assigned or any(name in names_read(m) for m in self.members):
                    return False
                if self.stores:
                    return not self.low.hazards.may_read_stored(pointer)
            case ir.Store() if self._conflicts(statement, layout):
                return False
        return not (unavailable_names(self.low, [*self.members, statement], layout) & self.assigned)

    def _conflicts(self, store: ir.Store, layout: RegisterLayout) -> bool:
        """Return whether a store may touch elements that other threads of the group access."""
        hazards = self.low.hazards
        location, keys = hazards.location_of(store.pointer), hazards.keys(store.pointer)
        if layout.copy_bits(self.low.threads) >> 5:  # another holder of a copy may load what the owner has stored
            if any(hazards.location_of(load.pointer) == location for load in self._loads()):
                return True
        expanded = hazards.expanded(store.pointer)
        return any(hazards.keys(x) & keys and hazards.expanded(x) != expanded for x in self._accessed())

    def _accessed(self) -> list[ir.Tile]:
        """Return the pointers of stores, and of loads that may alias stores."""
        found = [m.pointer for m in self.members if isinstance(m, ir.Store)]
        return found + [load.pointer for load in self._loads() if self.low.hazards.may_read_stored(load.pointer)]

    def _loads(self) -> list[ir.Load]:
        return [m.value for m in self.members if isinstance(m, ir.Assign) and isinstance(m.value, ir.Load)]

    def flush(self) -> None:
        """Write the group."""
        if self.members:
            assert self.layout is not None
            FusedLoop(self.low, self.layout, self.members).write()
        self._begin()
