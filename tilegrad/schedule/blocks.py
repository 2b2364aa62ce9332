"""How large the tiles of a matrix product are: by an estimate of the time that the last thread takes."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.size import Dim
from .instances import number_of

MOST_ROWS, MOST_COLUMNS, DEPTH = 256, 256, 256
"""The largest tile: its left operand, so deep, is half of a second cache."""
THREADS = 2
ROWS, LANES = 6, 8
"""What one innermost loop computes at a time, about: odd remainders cost as much."""
RATE = 16.0
"""Products that a core adds up in a cycle; packing an element of an operand takes about one cycle."""
START = 2000.0
"""Cycles that an instance takes besides."""


def blocks(m: Dim, n: Dim, k: Dim, others: int) -> tuple[int, int, int]:
    """Rows, columns and depth of the tiles of a product m x k by k x n, of which there are `others`.

    >>> blocks(1024, 1024, 1024, 1), blocks(128, 784, 512, 1), blocks(10, 128, 64, 1)
    ((256, 256, 256), (128, 208, 256), (10, 64, 64))
    """
    depth = _piece(k, -(-k // DEPTH), 4, DEPTH) if type(k) is int else DEPTH // 2
    if type(m) is not int or type(n) is not int:
        return _sole(m, MOST_ROWS // 2), _sole(n, MOST_COLUMNS // 4), depth
    choices = [(h, w) for h in _pieces(m, MOST_ROWS, ROWS) for w in _pieces(n, MOST_COLUMNS, 2 * LANES)]
    height, width = min(choices, key=lambda c: (_time(m, n, number_of(k), others, *c), -c[0] * c[1]))
    return height, width, depth


def _sole(extent: Dim, most: int) -> int:
    return min(extent, most) if type(extent) is int else most


def _pieces(extent: int, most: int, unit: int) -> Iterator[int]:
    """Lengths of equal pieces that cover an axis."""
    fewest = -(-extent // most)
    return iter(sorted({_piece(extent, pieces, unit, most) for pieces in range(fewest, 4 * fewest + 4)}))


def _piece(extent: int, pieces: int, unit: int, most: int) -> int:
    """The length of so many pieces: a multiple of a unit, where there are several and it fits."""
    if pieces == 1:
        return extent
    rounded = min(extent, -(-extent // (pieces * unit)) * unit)
    return rounded if rounded <= most else -(-extent // pieces)


def _time(m: int, n: int, k: int, others: int, height: int, width: int) -> float:
    """Cycles of the thread that has most to do."""
    instances = others * -(-m // height) * -(-n // width)
    most = -(-instances // THREADS)
    packing = width + height
    products = -(-height // ROWS) * ROWS * -(-width // LANES) * LANES / RATE
    spilled = 1.03 if width > MOST_COLUMNS / 2 else 1.0  # operands and result no longer share the second cache
    return most * (k * (products * spilled + packing) + height * width / 4 + START)
