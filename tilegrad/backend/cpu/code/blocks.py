"""Choose the register blocking of a matrix product, and pad its memory to whole blocks."""

from __future__ import annotations

from typing import NamedTuple

from ....ir.dtype import DType
from ..costs import (
    ALIASING_STRIDE_BYTES,
    BLOCK_OVERHEAD_ROWS,
    MAX_ADDRESS_ROWS,
    NEGLIGIBLE_TAIL_VECTORS,
    PADDING_BYTES,
    UNPACKED_VECTORS,
    UNPACKED_VECTORS_ANY_ROWS,
)
from ..target import Target

TILE_SIDE = 16
"""Rows and columns of a tile of the matrix unit."""


class RegisterBlock(NamedTuple):
    """A register block: rows by vectors, and the vectors of the last block of a row."""

    rows: int
    wide: int
    tail: int = 0


class AxisRange(NamedTuple):
    """A range of rows or columns of a result, in blocks of one size."""

    hint: str
    start: int
    end: int
    size: int


def register_block(target: Target, dtype: DType, shape: tuple[int, ...]) -> RegisterBlock:
    """Choose the register block of a result.

    >>> target = Target("x86", 32, 16)
    >>> from ....ir.dtype import float32
    >>> [tuple(register_block(target, float32, shape)) for shape in ((256, 256), (8, 24), (100, 40), (3, 7))]
    [(6, 2, 0), (4, 3, 0), (5, 2, 1), (3, 1, 0)]
    >>> target = Target("x86", 64, 32)
    >>> [tuple(register_block(target, float32, shape)) for shape in ((350, 128), (64, 64), (64, 256), (250, 128))]
    [(14, 2, 0), (8, 2, 0), (13, 2, 0), (10, 2, 0)]
    """
    lanes = target.lanes(dtype.bytes)
    vectors = -(-shape[1] // lanes)
    wide = 1 if vectors == 1 else 3 if vectors % 2 and vectors % 3 == 0 else 2
    max_rows = max(1, (target.registers - 4) // wide)
    return RegisterBlock(
        _rows(shape[0], max_rows, vectors), wide, vectors % wide if vectors < NEGLIGIBLE_TAIL_VECTORS else 0
    )


def _rows(m: int, max_rows: int, vectors: int) -> int:
    """Choose the rows of a block so that few are wasted.

    Blocks of a narrow result read the left operand unpacked: rows that divide the result share one address register.
    """
    if m <= max_rows:
        return m
    if vectors <= UNPACKED_VECTORS and max_rows > MAX_ADDRESS_ROWS:
        whole = next((rows for rows in range(max_rows, max_rows // 2, -1) if m % rows == 0), 0)
        if whole or vectors <= UNPACKED_VECTORS_ANY_ROWS:
            return whole or -(-m // -(-m // MAX_ADDRESS_ROWS))
    return min(range(max_rows, max_rows * 3 // 4, -1), key=lambda rows: -(-m // rows) * (rows + BLOCK_OVERHEAD_ROWS))


def padded_shape(target: Target, dtype: DType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Pad the shape of a result to whole blocks, and rows so that they do not alias in the cache."""
    if 0 in shape:
        return shape
    lanes = target.lanes(dtype.bytes)
    rows, wide, tail = register_block(target, dtype, shape)
    vectors = -(-shape[1] // lanes)
    width = (vectors if tail else -(-vectors // wide) * wide) * lanes
    height = -(-shape[0] // rows) * rows
    if target.matrix_unit or target.pairs:  # tiles two by two, or two by one
        height = max(height, -(-shape[0] // (2 * TILE_SIDE)) * 2 * TILE_SIDE)
        width = max(width, -(-shape[1] // TILE_SIDE) * TILE_SIDE)
    padding = PADDING_BYTES // dtype.bytes if width * dtype.bytes % ALIASING_STRIDE_BYTES == 0 else 0
    return height, width + padding


def axis_ranges(hint: str, extent: int, size: int) -> list[AxisRange]:
    """Split an axis into whole blocks and a remainder.

    >>> [tuple(piece) for piece in axis_ranges("m", 20, 6)]
    [('m', 0, 18, 6), ('m', 18, 20, 2)]
    """
    whole = extent // size * size
    found = [AxisRange(hint, 0, whole, size), AxisRange(hint, whole, extent, extent - whole)]
    return [piece for piece in found if piece.start < piece.end]
