"""How the result of a product is cut into blocks that registers hold, and how much room it takes for whole ones."""

from __future__ import annotations

from typing import NamedTuple

from ....ir.dtype import DType
from ..target import Target

BETWEEN = 0.15
"""What going from one block to the next takes, in rows of a block."""
STREAMS = 10
"""Rows that are read from where they lie at a time: each takes a register for its address."""
NARROW, NARROWER = 8, 2
"""Vectors of a row of the result up to which a left operand is read from where it lies, though a block has more rows
than that, if these divide the result: one address does for all then. Products with 128 columns took 0.9 to 0.96 of the
time that they take with it packed, on vectors of 64 bytes; with 256, where it is read twice as often, 1.05. With fewer
vectors it is so for any number of rows, if it lies along k."""
MANY = 16
"""Vectors of a row among which one that is computed in vain does not matter."""
SIDE = 16
"""Rows and columns of a tile of the matrix unit."""
ALIASED, LINE = 1024, 128
"""Bytes after which memory falls on the same places of a first cache again, or nearly; and what moves it on."""


class Block(NamedTuple):
    """What the innermost loop computes: some rows by some vectors; at the end of the columns by `tail` vectors."""

    rows: int
    wide: int
    tail: int = 0


class Piece(NamedTuple):
    """Some of the rows or columns of a result, in blocks of a size."""

    hint: str
    start: int
    end: int
    size: int


def block_of(target: Target, dtype: DType, shape: tuple[int, ...]) -> Block:
    """The blocks of a result.

    >>> target = Target("x86", 32, 16)
    >>> from ....ir.dtype import float32
    >>> [tuple(block_of(target, float32, shape)) for shape in ((256, 256), (8, 24), (100, 40), (3, 7))]
    [(6, 2, 0), (4, 3, 0), (5, 2, 1), (3, 1, 0)]
    >>> target = Target("x86", 64, 32)
    >>> [tuple(block_of(target, float32, shape)) for shape in ((350, 128), (64, 64), (64, 256), (250, 128))]
    [(14, 2, 0), (8, 2, 0), (13, 2, 0), (10, 2, 0)]
    """
    lanes = target.lanes(dtype.bytes)
    count = -(-shape[1] // lanes)
    wide = 1 if count == 1 else 3 if count % 2 and count % 3 == 0 else 2
    most = max(1, (target.registers - 4) // wide)
    return Block(_rows(shape[0], most, count), wide, count % wide if count < MANY else 0)


def _rows(m: int, most: int, count: int) -> int:
    """The rows of a block: few are computed in vain.

    Those of a narrow result read the left operand from where it lies. If they divide it, one address does for all.
    """
    if m <= most:
        return m
    if count <= NARROW and most > STREAMS:
        whole = next((rows for rows in range(most, most // 2, -1) if m % rows == 0), 0)
        if whole or count <= NARROWER:
            return whole or -(-m // -(-m // STREAMS))
    return min(range(most, most * 3 // 4, -1), key=lambda rows: -(-m // rows) * (rows + BETWEEN))


def room_for(target: Target, dtype: DType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the memory of a result: whole blocks; rows that would fall on each other in a cache are longer."""
    if 0 in shape:
        return shape
    lanes = target.lanes(dtype.bytes)
    rows, wide, tail = block_of(target, dtype, shape)
    count = -(-shape[1] // lanes)
    width = (count if tail else -(-count // wide) * wide) * lanes
    height = -(-shape[0] // rows) * rows
    if target.matrix_unit or target.pairs:  # tiles two by two, or two by one
        height = max(height, -(-shape[0] // (2 * SIDE)) * 2 * SIDE)
        width = max(width, -(-shape[1] // SIDE) * SIDE)
    spare = LINE // dtype.bytes if width * dtype.bytes % ALIASED == 0 else 0
    return height, width + spare


def pieces(hint: str, extent: int, size: int) -> list[Piece]:
    """All whole blocks of an axis, and what is left.

    >>> [tuple(piece) for piece in pieces("m", 20, 6)]
    [('m', 0, 18, 6), ('m', 18, 20, 2)]
    """
    whole = extent // size * size
    found = [Piece(hint, 0, whole, size), Piece(hint, whole, extent, extent - whole)]
    return [piece for piece in found if piece.start < piece.end]
