"""Results of products on their way to memory: gathered in shared memory, so that whole lines are written.

A thread holds pairs of neighbours of many rows; written as they are, they fill half of each sector of memory at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....ir import tile as ir
from ....ir.dtype import bool_
from .elements import Axis, View
from .functions import MEMORY, Text
from .layout import Layout

if TYPE_CHECKING:
    from .lower import Lowering

PIECE = 16
"""Bytes that a thread writes at a time, and by which lines in shared memory are longer than they need be."""
MOST = 96 * 1024


class Staged(NamedTuple):
    """A tile in shared memory that is to be stored: an array and the length of its rows."""

    name: str
    pitch: int

    def at(self, view: View) -> str:
        return f"{self.name} + {view[0].at.within(10)} * {self.pitch} + {view[1].at}"


def staged(low: Lowering, store: ir.Store, layout: Layout) -> Staged | None:
    """A place for what a store writes, if that has the layout of a product's pairs and goes to lines of memory."""
    t, definitions = low.types.of(store.pointer), low.products.definitions
    bytes = t.dtype.bytes
    low.patterns.width = layout.width
    if layout.width == 1 or layout.width * bytes >= PIECE or low.patterns.of(store.pointer, 1).step != 1:
        return None
    target = definitions.parameter(store.pointer)
    if target is None or low.guard.is_shared(target):
        return None  # what is read there must be read before any of it is written
    if not low.products.is_pairs(layout) or not low.is_positional(store.pointer):
        return None
    rows, columns = layout.shape
    pitch = columns + PIECE // bytes
    line = definitions.step(store.pointer, -2)
    room = max(MOST - (low.memory.held if low.memory.apart else 0), low.memory.large)
    if definitions.step(store.pointer, -1) != 1 or line is None or rows * pitch * bytes > room:
        return None
    if any(n * bytes % PIECE for n in (columns, line, definitions.divisor(store.pointer))):
        return None
    if store.mask is not None:
        low.patterns.width = PIECE // bytes
        if not low.is_positional(store.mask) or low.patterns.of(store.mask, 1).step != 0:
            return None  # it would cut pieces
    name, type = low.names.fresh("staged"), MEMORY[t.dtype.name]
    place = low.take(rows * pitch * bytes)
    low.out.add(f"{type}* {name} = reinterpret_cast<{type}*>({place});")
    return Staged(name, pitch)


def write_staged(low: Lowering, store: ir.Store, stage: Staged) -> None:
    """Writes the tile to memory, in pieces of 16 bytes."""
    t = low.types.of(store.pointer)
    rows, columns = t.shape
    each = PIECE // t.dtype.bytes
    view = (Axis(Text("row"), None), Axis(Text("column"), None))
    pack = f"Pack<{MEMORY[t.dtype.name]}, {each}>"
    low.meet()
    with low.out.block(f"for (int n = thread; n < {rows * columns // each}; n += {low.threads})"):
        low.out.add(f"const int row = n / {columns // each}, column = n % {columns // each} * {each};")
        pointer = low.elements.of(store.pointer, view, t.dtype)
        guard = ""
        if store.mask is not None:
            guard = f"if ({low.elements.part(store.mask, view, t.shape, bool_)}) "
        low.out.add(
            f"{guard}*reinterpret_cast<{pack}*>({pointer}) = "
            f"*reinterpret_cast<const {pack}*>({stage.name} + row * {stage.pitch} + column);"
        )
