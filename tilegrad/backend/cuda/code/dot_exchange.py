"""Store accumulators from registers in pieces of 16 bytes after lanes exchange them (sm_90a).

Four neighbouring lanes hold a row in pairs: two of every eight elements each. They exchange what they hold of four such
pieces; then each lane has one whole piece, and the four pieces are adjacent in memory: 64 bytes of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.dtype import bfloat16, float16
from . import dot_helpers as helpers
from .dot_store import can_be_delayed, guard, stores_in_pieces
from .elements import AxisPosition, View
from .functions import Text
from .layout import RegisterLayout

if TYPE_CHECKING:
    from .lower import CudaLowering

EXCHANGED_COLUMNS = 32
"""Columns of four pieces of 16 bytes."""


def exchanges_lanes(low: CudaLowering, store: ir.Store, layout: RegisterLayout) -> bool:
    """Return whether lanes exchange a store's values: a tile of 16-bit sums with contiguous rows."""
    t = low.types.of(store.pointer)
    plan = low.products.warpgroup
    if plan is None or plan.tiling.swapped or plan.tiling.layout != layout or t.dtype not in (bfloat16, float16):
        return False
    return (
        t.shape[1] % EXCHANGED_COLUMNS == 0
        and can_be_delayed(low, store)
        and stores_in_pieces(low, store, t.shape[1], t.dtype.bytes)
    )


def declare_exchange(low: CudaLowering, store: ir.Store) -> str:
    """Declare the registers for the pairs of four pieces, before the loop over registers."""
    low.products.use(helpers.rounding_pairs(low.types.of(store.pointer).dtype.name), helpers.EXCHANGE)
    name = low.names.fresh("words")
    low.out.add(f"uint32 {name}[2][4];")
    return name


def exchange_lines(
    low: CudaLowering, store: ir.Store, layout: RegisterLayout, words: str, values: str, view: View
) -> list[str]:
    """Write the exchange inside the loop: `values` are a pair, and the last pair of four pieces stores them."""
    row, column = low.variable(layout, 0, 1), low.variable(layout, 1, 2)
    elements = low.elements
    piece_view = (view[0], AxisPosition(Text("column"), None))
    with elements.naming(None):
        pointer = elements.of(store.pointer, piece_view, low.types.of(store.pointer).dtype)
        condition = guard(low, store, piece_view)
    return [
        f"{words}[{row}][{column} % 4] = packed_pair({values}[0], {values}[1]);",
        f"if ({column} % 4 == 3) {{",
        f"    exchange_lanes({words}[{row}]);",
        f"    const int column = {column} / 4 * {EXCHANGED_COLUMNS} + thread % 4 * 8;",
        f"    {condition}write_words({pointer}, {words}[{row}]);",
        "}",
    ]


def without_rounding(value: Text) -> str:
    """Strip the rounding of a value that is rounded when it is packed anyway.

    >>> without_rounding(Text("as_half(x + 1.0f)")), without_rounding(Text("as_half(x) + as_half(y)"))
    ('x + 1.0f', 'as_half(x) + as_half(y)')
    """
    text = str(value)
    for head in ("as_bfloat16(", "as_half("):
        if text.startswith(head) and text.endswith(")"):
            inner, depth = text[len(head) : -1], 0
            for c in inner:
                depth += (c == "(") - (c == ")")
                if depth < 0:
                    return text
            return inner
    return text
