"""Analyse how the reads and stores of a group move through memory along its indices."""

from __future__ import annotations

import math

from ..ir.position import linear
from ..ir.scalar import Expr, Index, Read, facts, walk
from .flatten import FlatGroup
from .instances import number_of

MAX_WINDOW_ELEMENTS, MAX_WINDOW_STRIDE, MIN_WINDOWS = 16, 4, 8
"""Innermost extent and stride of sliding windows, and windows in a row, for windows to be reduced side by side."""
MIN_CROSSING_STRIDE, MIN_CROSSING_EXTENT = 9, 8
"""Stride from which on neighbours share few cache lines, and extent from which on a transposing tile pays."""
UNKNOWN_STRIDE = 1 << 40
"""Stride of an index whose product with another occurs in an offset: larger than any known one."""


def stride(offset: Expr, index: Index) -> int | None:
    """Return by how much an offset grows with an index; None if it does not grow evenly."""
    total = linear(offset)
    if any(index in walk(f) and f is not index for product in total for f in product):
        return None
    return sum(c if product == (index,) else UNKNOWN_STRIDE for product, c in total.items() if index in product)


def offsets(flat: FlatGroup) -> list[Expr]:
    """Return the offsets of all reads and stores."""
    return [e.position[0] for e in flat.expressions if isinstance(e, Read)] + [s.offset for s in flat.stores]


def dominant_offsets(flat: FlatGroup) -> list[Expr]:
    """Return the offsets that run over the most elements: their memory traffic decides."""
    found = offsets(flat)
    counts = [_elements(o) for o in found]
    return [o for o, n in zip(found, counts, strict=True) if n == max(counts)]


def _elements(offset: Expr) -> int:
    return math.prod(number_of(i.extent) for i in facts(offset).indices)


def is_contiguous_along(flat: FlatGroup, column: Index) -> bool:
    """Whether most dominant accesses are contiguous along the column."""
    strides = [stride(o, column) for o in dominant_offsets(flat)]
    along = sum(s in (1, -1) for s in strides)
    across = sum(s is not None and abs(s) > 1 for s in strides)
    return (along > 0 and along >= across) or across == 0


def contiguous_row(flat: FlatGroup) -> Index | None:
    """Return the row index along which most dominant accesses are contiguous, or the last one of windows."""
    found = dominant_offsets(flat)
    best = max(flat.rows, key=lambda r: sum(stride(o, r) == 1 for o in found), default=None)
    if best is not None and any(stride(o, best) == 1 for o in found):
        return best
    return flat.rows[-1] if reads_windows(flat) else None


def reads_windows(flat: FlatGroup) -> bool:
    """Whether rows reduce small sliding windows whose neighbours are close in memory."""
    inner = flat.columns[-1]
    if not flat.rows or len(flat.columns) < 2 or type(inner.extent) is not int or inner.extent > MAX_WINDOW_ELEMENTS:
        return False
    row = flat.rows[-1]
    near = [stride(o, row) for o in dominant_offsets(flat)]
    return number_of(row.extent) >= MIN_WINDOWS and all(s is not None and 0 < s <= MAX_WINDOW_STRIDE for s in near)


def transposed_row(flat: FlatGroup, tiled_gathers: bool) -> Index | None:
    """Return the row index along which the largest strided access is contiguous, where the last row index jumps."""
    inner = flat.rows[-1]
    for offset in sorted(offsets(flat), key=_elements, reverse=True):
        step = stride(offset, inner)
        if step >= MIN_CROSSING_STRIDE if step is not None else tiled_gathers and _is_gathered(offset, inner):
            for row in flat.rows:
                wide = number_of(row.extent) >= MIN_CROSSING_EXTENT
                if row is not inner and stride(offset, row) == 1 and wide:
                    return row
    return None


def _is_gathered(offset: Expr, index: Index) -> bool:
    """Whether the offset itself is read from memory, for each value of the index."""
    return any(isinstance(e, Read) and index in facts(e).indices for e in walk(offset))
