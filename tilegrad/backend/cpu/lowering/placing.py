"""Where results go: to the memory of a parameter, or to a tile on the stack."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....ir.dtype import DType
from .elements import TRUE, Address, Elements, Frame, Position, Slot, dense_strides, projected
from ..emit import Value
from .roots import Root

LINE = 64
"""Bytes of a cache line."""


def commit(elements: Elements, root: Root, at: Position, value: Value) -> None:
    """Puts the value of a root where it belongs."""
    frame = elements.frame
    if root.kind == "store":
        assert root.pointer is not None
        mask = TRUE if root.mask is None else elements.value(root.mask, projected(at, root.mask.shape))
        where = elements.at(root.pointer, at)
        elements.write(where, value, root.pointer.dtype, mask)
        return
    if root.slot is None:
        frame.results[root.node] = value
        return
    assert root.slot is not None
    where = Address(root.slot.pointer, root.slot.offset(elements.b, at), None, "")
    elements.write(where, value, root.node.dtype)


def allocate(frame: Frame, dtype: DType, shape: Sequence[int], hint: str, dropped: int = 0) -> Slot:
    """Memory of an instance for a tile.

    Rows are whole cache lines, an odd number of them: those of one column then lie in different sets of the cache.
    """
    room = list(shape)
    if len(shape) > 1 and shape[-1] > 1:
        line = LINE // dtype.bytes
        room[-1] = (-(-shape[-1] // line) | 1) * line
    pointer = frame.builder.allocate(math.prod(room) * dtype.bytes, hint)
    return Slot(pointer, dtype, dense_strides(room), dropped)


def common_lanes(frame: Frame, roots: Sequence[Root]) -> int:
    """The lanes of a nest: as many as a register has of the widest elements that it moves."""
    widest = 1
    for root in roots:
        for node, _ in root.visits:
            if node.kind in ("load", "slot") or (node.dtype.is_float and node.kind != "literal"):
                widest = max(widest, node.dtype.bytes)
        if not root.node.pointer and root.node.kind not in ("literal",):
            widest = max(widest, root.node.dtype.bytes)
        if root.pointer is not None:
            widest = max(widest, root.pointer.dtype.bytes)
    return frame.target.lanes(widest)
