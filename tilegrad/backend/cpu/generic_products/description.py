"""Words that describe one product to the generated code, and the sizes of its blocks.

    rows x columns x depth, for each position of the batch: out[r, c] = sum of left[r, k] * right[k, c]

Each of the four is a number of axes, so that offsets come from several strides. A *task* is a block of rows by a block
of columns for one position of the batch and one part of the depth (split-K); threads take tasks by a counter.
"""

from __future__ import annotations

from typing import NamedTuple

from ..target import Target
from .element_format import ElementFormat

WORDS = (
    *("counter", "tasks", "instances", "method", "splits", "row_blocks", "column_blocks"),
    *("rows", "columns", "depth", "block_rows", "block_columns", "split_depth", "cached_rows"),
    *("left_first", "right_first", "out_first", "dense_columns", "panel_elements"),
    *("batch_count", "batch_axes", "batch_rank", "row_axes", "row_rank"),
    *("column_axes", "column_rank", "sum_axes", "sum_rank"),
    *("instance_start", "instance_bytes", "partials", "tile_bytes"),
    *("left_padding", "right_padding", "left_padded", "right_padded", "left_padded_rows", "right_padded_rows"),
    *("left_rows", "right_columns", "out_rows", "out_columns", "left_depth", "right_depth"),
    *("keys", "column_runs", "left_runs", "right_runs", "runs", "left_panels", "right_panels", "tile"),
)
"""Names of the words of a description, in order; `..._axes` and `..._padding` are positions of further words, and the
last two rows are places in the memory of a thread, in bytes.
"""
PACKED, DOTS, ROWS = range(3)
"""Methods: of packed panels; of contiguous rows of both operands; of few rows by contiguous columns."""
METHODS = ("packed", "dots", "rows")
"""Names of the methods, and of the functions that run a task by them."""
ROW_BLOCKS = ((1, 2), (1, 4), (1, 8), (2, 8), (4, 4))
"""Rows and vectors of blocks whose right operand is not packed."""
MAX_DOT_COLUMNS = 8
"""Columns of a block of dot products of one row: as many sums as hide the latency of a multiply-add."""
MAX_DEPTH = 256
"""Depth of packed panels: one of the right operand stays in the first cache."""


class BlockShape(NamedTuple):
    """Sizes of the blocks that code is generated for."""

    rows: int
    """Rows of a block whose sums are in registers."""
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def left_row(self) -> int:
        """Elements from a row of a packed left panel to the next, which are not all in one set of the cache."""
        return MAX_DEPTH + self.lanes

    @property
    def row_variants(self) -> tuple[int, ...]:
        """Numbers of rows that have code of their own."""
        return tuple(sorted({n for n in (2, 4, 8) if n < self.rows} | {self.rows}))


def block_shape(target: Target, format: ElementFormat) -> BlockShape:
    """Choose a block of sums that leaves registers for one row of the right operand and a broadcast element."""
    vectors = 2
    return BlockShape((target.registers - vectors - 1) // vectors, vectors, format.lanes)
