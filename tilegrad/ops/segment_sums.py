"""Segment sums over sorted indices: the gradient of an embedding table.

    SortedKeys       the entries of an index sorted by destination row (`sorting.py`)
    SegmentStarts    the first sorted entry of each row of the table
    SegmentSums      for each row of the table the sum of its entries

Each row is written once, by one instance, which visits only its own entries. `transform/embedding_gradient.py` makes
them from scatters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..ir.graph import TensorType, Value
from .opaque import Opaque

if TYPE_CHECKING:
    from .tile_code import TileCode

STARTS_PER_INSTANCE = 256
"""Rows of a table whose first entries an instance searches."""
MAX_BLOCK_COLUMNS = 1024
"""Largest number of columns that an instance sums."""
ENTRIES_PER_STEP = 4
"""Entries added at a time: most rows have few, and some have thousands."""


@final
class SegmentStarts(Opaque):
    """For each row of a table, and one behind the last, the number of entries of earlier rows.

    `order` is that of `SortedKeys`.

    >>> from ..ir.dtype import int64
    >>> from ..ir.graph import Input
    >>> SegmentStarts(Input(TensorType(int64, (2, 3))), 4).reference(np.array([[1, 0, 2], [0, 2, 2]]))
    array([0, 1, 1, 3, 3])
    """

    differentiable = False
    order: Value
    rows: int

    def infer(self) -> TensorType:
        return self.order.type.with_shape((self.rows + 1,))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)

    def reference(self, order: Any) -> Any:
        return np.searchsorted(order[1], np.arange(self.rows + 1)).astype(np.int64)

    def kernel(self) -> TileCode:
        from .kernels.searching import segment_starts
        from .tile_code import Tiles

        entries = self.order.shape[1]
        assert isinstance(entries, int)
        inputs, grid = {"order": self.order.type}, (Tiles(self.rows + 1, STARTS_PER_INSTANCE),)
        steps = entries.bit_length()
        sizes = {"ENTRIES": entries, "ENDS": self.rows + 1, "STEPS": steps, "FIRST_STEP": 1 << steps >> 1}
        return segment_starts.code(inputs, self.type, grid, BLOCK=STARTS_PER_INSTANCE, **sizes)


@final
class SegmentSums(Opaque):
    """For each row of a table the sum of its rows of the source, in the order of the entries."""

    differentiable = False
    order: Value
    starts: Value
    source: Value
    columns: int
    """Elements of a row of the source, which may have more axes."""

    def infer(self) -> TensorType:
        rows = self.starts.shape[0]
        assert isinstance(rows, int)
        return self.source.type.with_shape((rows - 1, self.columns))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return None, None, None

    def reference(self, order: Any, starts: Any, source: Any) -> Any:
        result = np.zeros((len(starts) - 1, self.columns), source.dtype)
        np.add.at(result, order[1], source.reshape(-1, self.columns)[order[0]])
        return result

    def kernel(self) -> TileCode:
        from .kernels.sums import segment_sums
        from .tile_code import Tiles

        block = min(MAX_BLOCK_COLUMNS, 1 << (self.columns - 1).bit_length())
        inputs = {"order": self.order.type, "starts": self.starts.type, "source": self.source.type}
        grid = (Tiles(self.type.shape[0], 1), Tiles(self.columns, block))
        sizes = {"BLOCK": block, "COLUMNS": self.columns, "ENTRIES_PER_STEP": ENTRIES_PER_STEP}
        return segment_sums.code(inputs, self.type, grid, **sizes)
