"""Transform tiles of elements for Winograd's algorithm, and compute directly where that is inaccurate."""

# mypy: ignore-errors
# (Parameters in capitals are constants.)

from __future__ import annotations

from ...tiles.read import core as tl
from ...tiles.read.scope import TileFunction
from ..op_kernel import OpKernel, flat_offset, sum_of, unravel, weighted_sum


@TileFunction
def transform_column(x, given, FIRST, STRIDE, MATRIX):
    column = [tl.load(x + (given + (i * STRIDE + FIRST))) for i in range(len(MATRIX[0]))]
    return [weighted_sum(row, column) for row in MATRIX]


@TileFunction
def transform(x, out, given, made, MATRIX, GIVEN, MADE):
    # Along columns as far as a row needs them, then along rows.
    t = [transform_column(x, given, j * GIVEN.column, GIVEN.row, MATRIX) for j in range(len(MATRIX[0]))]
    for a in tl.static_range(len(MATRIX)):
        for b in tl.static_range(len(MATRIX)):
            tl.store(
                out + (made + (a * MADE.row + b * MADE.column)), weighted_sum(MATRIX[b], [column[a] for column in t])
            )


@OpKernel
def transformed_tiles(x, out, MATRIX, SQUARES, GIVEN, MADE, BLOCK, LAST):
    lane = tl.minimum(tl.program_id(0) * BLOCK, LAST) + tl.arange(0, BLOCK)
    square = tl.program_id(1).to(tl.int64)
    given = flat_offset(unravel(square, SQUARES), GIVEN.squares, square * 0) + lane * GIVEN.lane
    made = flat_offset(unravel(square, SQUARES), MADE.squares, square * 0) + lane * MADE.lane
    transform(x, out, given, made, MATRIX, GIVEN, MADE)


@OpKernel
def irregular_tiles(sums, weight, out, SQUARES, GIVEN, SIDE, TAPS, BLOCK, LAST, LARGEST, SMALLEST, UNEVEN):
    square = tl.minimum(tl.program_id(0) * BLOCK, LAST) + tl.arange(0, BLOCK)
    given = sums + flat_offset(unravel(square, SQUARES), GIVEN.squares, square * 0)
    weights = tl.load(weight)
    usual = (weights <= LARGEST) & ((weights >= SMALLEST) | (weights == 0.0))
    # The sum of the magnitudes of a tile, and the smallest of its windows that is not zero.
    tile = [[tl.load(given + (i * GIVEN.row + j * GIVEN.column)) for j in range(SIDE)] for i in range(SIDE)]
    windows = [[sum_of(row[q : q + TAPS]) for q in range(SIDE - TAPS + 1)] for row in tile]
    total = sum_of([sum_of(row) for row in tile])
    least = total
    for p in tl.static_range(SIDE - TAPS + 1):
        for q in tl.static_range(SIDE - TAPS + 1):
            window = sum_of([row[q] for row in windows[p : p + TAPS]])
            least = tl.minimum(least, tl.where(window > 0.0, window, total))
    even = usual & (total <= LARGEST) & ((total >= SMALLEST) | (total == 0.0)) & (least * UNEVEN >= total)
    tl.store(out + square, tl.where(even, 0, 1))


@OpKernel
def repaired_tiles(x, odd, lying, w, out, MATRIX, SQUARES, GIVEN, MADE, BEGIN, BLOCK, LANES, TERMS, FILTERS, DTYPE):
    lane = tl.minimum(tl.program_id(0) * BLOCK, LANES - BLOCK) + tl.arange(0, BLOCK)
    square = tl.program_id(1).to(tl.int64)
    made = flat_offset(unravel(square, SQUARES), MADE.squares, square * 0) + lane * MADE.lane
    if tl.load(odd + square) == 0:
        given = flat_offset(unravel(square, SQUARES), GIVEN.squares, square * 0) + lane * GIVEN.lane
        transform(x, out, given, made, MATRIX, GIVEN, MADE)
    else:
        SIDE = len(MATRIX)
        TAPS, AREA = FILTERS.taps, FILTERS.taps * FILTERS.taps
        place = tl.arange(0, SIDE * SIDE)
        begin = (
            flat_offset(unravel(square, SQUARES), BEGIN.squares, square * 0)
            + (place // SIDE) * BEGIN.row
            + (place % SIDE) * BEGIN.column
        )
        filters = unravel(square, SQUARES)[0] * (LANES * TERMS) + lane * (AREA if FILTERS.across else TERMS)
        total = tl.zeros((SIDE * SIDE, BLOCK), DTYPE)
        for n in range(TERMS):
            at = (n % AREA) // TAPS * BEGIN.row + n % TAPS * BEGIN.column + n // AREA
            elements = tl.load(lying + (begin + at))
            weight = n
            if FILTERS.across or FILTERS.reverse:
                tap = AREA - 1 - n % AREA if FILTERS.reverse else n % AREA
                weight = n // AREA * (AREA * LANES if FILTERS.across else AREA) + tap
            total += elements[:, None] * tl.load(w + (filters + weight))[None, :]
        results = (place // SIDE) * MADE.row + (place % SIDE) * MADE.column
        tl.store(out + (results[:, None] + made[None, :]), total)
