"""Find the variables that a loop over registers would have to read from other threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.dtype import float32
from .elements import RegisterTile
from .layout import RegisterLayout

if TYPE_CHECKING:
    from .lower import CudaLowering


def unavailable_names(low: CudaLowering, members: Sequence[ir.Assign | ir.Store], layout: RegisterLayout) -> set[str]:
    """Return the variables that a loop over a layout cannot read from registers."""
    elements = low.elements.registers_only()
    view, _ = low.positions(layout)
    for member in members:
        for x in _evaluated(member):
            shape = elements.shape(x)
            whole = view[len(view) - len(shape) :] if shape else ()
            if shape and shape != layout.shape[len(view) - len(shape) :]:
                elements.part(x, view, layout.shape, float32)
            else:
                elements.of(x, whole, float32)
        if isinstance(member, ir.Assign) and not isinstance(member.value, ir.Reduce | ir.Scan):
            elements.register_tiles[member.name] = RegisterTile(member.name, layout)
    return elements.missing


def _evaluated(member: ir.Assign | ir.Store) -> list[ir.Tile]:
    """Return the expressions of a statement that are evaluated per element."""
    match member:
        case ir.Store(pointer, value, mask):
            found = [pointer, value, mask]
        case ir.Assign(_, ir.Load(pointer, mask, other)):
            found = [pointer, mask, other]
        case ir.Assign(_, ir.Reduce(_, x, _) | ir.Scan(_, x, _)):
            found = [x]
        case ir.Assign(_, value):
            found = [value]
    return [x for x in found if x is not None]
