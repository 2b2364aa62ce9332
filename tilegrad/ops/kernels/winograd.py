"""Transform tiles of elements for Winograd's algorithm, and compute directly where that is inaccurate."""

# mypy: ignore-errors
# (In kernels a constexpr is a number.)

from __future__ import annotations

from ...tiles.read import core as tl
from ...tiles.read.scope import TileFunction
from ..op_kernel import OpKernel, flat_offset, sum_of, unravel, weighted_sum


@TileFunction
def transform_column(x, given, FIRST: tl.constexpr, STRIDE: tl.constexpr, MATRIX: tl.constexpr):
    column = [tl.load(x + (given + (i * STRIDE + FIRST))) for i in range(len(MATRIX[0]))]
    return [weighted_sum(row, column) for row in MATRIX]


@TileFunction
def transform(x, out, given, made, MATRIX: tl.constexpr, READ: tl.constexpr, STORED: tl.constexpr):
    # Along columns as far as a row needs them, then along rows. READ and STORED are strides of rows and columns.
    t = [transform_column(x, given, j * READ[1], READ[0], MATRIX) for j in range(len(MATRIX[0]))]
    for a in tl.static_range(len(MATRIX)):
        for b in tl.static_range(len(MATRIX)):
            tl.store(
                out + (made + (a * STORED[0] + b * STORED[1])), weighted_sum(MATRIX[b], [column[a] for column in t])
            )


@OpKernel
def transformed_tiles(
    x,
    out,
    MATRIX: tl.constexpr,
    SQUARES: tl.constexpr,
    GIVEN: tl.constexpr,
    MADE: tl.constexpr,
    READ: tl.constexpr,
    STORED: tl.constexpr,
    BLOCK: tl.constexpr,
    LAST: tl.constexpr,
):
    lane = tl.minimum(tl.program_id(0) * BLOCK, LAST) + tl.arange(0, BLOCK)
    square = tl.program_id(1).to(tl.int64)
    given = flat_offset(unravel(square, SQUARES), GIVEN, square * 0) + lane * READ[2]
    made = flat_offset(unravel(square, SQUARES), MADE, square * 0) + lane * STORED[2]
    transform(x, out, given, made, MATRIX, READ, STORED)


@OpKernel
def irregular_tiles(
    sums,
    weight,
    out,
    SQUARES: tl.constexpr,
    GIVEN: tl.constexpr,
    READ: tl.constexpr,
    SIDE: tl.constexpr,
    TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
    LAST: tl.constexpr,
    LARGE: tl.constexpr,
    SMALL: tl.constexpr,
    UNEVEN: tl.constexpr,
):
    square = tl.minimum(tl.program_id(0) * BLOCK, LAST) + tl.arange(0, BLOCK)
    given = sums + flat_offset(unravel(square, SQUARES), GIVEN, square * 0)
    weights = tl.load(weight)
    usual = (weights <= LARGE) & ((weights >= SMALL) | (weights == 0.0))
    # The sum of the magnitudes of a tile, and the smallest of its windows that is not zero.
    tile = [[tl.load(given + (i * READ[0] + j * READ[1])) for j in range(SIDE)] for i in range(SIDE)]
    windows = [[sum_of(row[q : q + TAPS]) for q in range(SIDE - TAPS + 1)] for row in tile]
    total = sum_of([sum_of(row) for row in tile])
    least = total
    for p in tl.static_range(SIDE - TAPS + 1):
        for q in tl.static_range(SIDE - TAPS + 1):
            window = sum_of([row[q] for row in windows[p : p + TAPS]])
            least = tl.minimum(least, tl.where(window > 0.0, window, total))
    even = usual & (total <= LARGE) & ((total >= SMALL) | (total == 0.0)) & (least * UNEVEN >= total)
    tl.store(out + square, tl.where(even, 0, 1))


@OpKernel
def repaired_tiles(
    x,
    odd,
    lying,
    w,
    out,
    MATRIX: tl.constexpr,
    SQUARES: tl.constexpr,
    GIVEN: tl.constexpr,
    MADE: tl.constexpr,
    BEGIN: tl.constexpr,
    READ: tl.constexpr,
    STORED: tl.constexpr,
    WINDOW: tl.constexpr,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
    TERMS: tl.constexpr,
    TAPS: tl.constexpr,
    ACROSS: tl.constexpr,
    REVERSE: tl.constexpr,
    DTYPE: tl.constexpr,
):
    lane = tl.minimum(tl.program_id(0) * BLOCK, LANES - BLOCK) + tl.arange(0, BLOCK)
    square = tl.program_id(1).to(tl.int64)
    made = flat_offset(unravel(square, SQUARES), MADE, square * 0) + lane * STORED[2]
    if tl.load(odd + square) == 0:
        given = flat_offset(unravel(square, SQUARES), GIVEN, square * 0) + lane * READ[2]
        transform(x, out, given, made, MATRIX, READ, STORED)
    else:
        SIDE = len(MATRIX)
        AREA = TAPS * TAPS
        place = tl.arange(0, SIDE * SIDE)
        begin = (
            flat_offset(unravel(square, SQUARES), BEGIN, square * 0)
            + (place // SIDE) * WINDOW[0]
            + (place % SIDE) * WINDOW[1]
        )
        filters = unravel(square, SQUARES)[0] * (LANES * TERMS) + lane * (AREA if ACROSS else TERMS)
        total = tl.zeros((SIDE * SIDE, BLOCK), DTYPE)
        for n in range(TERMS):
            at = (n % AREA) // TAPS * WINDOW[0] + n % TAPS * WINDOW[1] + n // AREA
            elements = tl.load(lying + (begin + at))
            weight = n
            if ACROSS or REVERSE:
                tap = AREA - 1 - n % AREA if REVERSE else n % AREA
                weight = n // AREA * (AREA * LANES if ACROSS else AREA) + tap
            total += elements[:, None] * tl.load(w + (filters + weight))[None, :]
        results = (place // SIDE) * STORED[0] + (place % SIDE) * STORED[1]
        tl.store(out + (results[:, None] + made[None, :]), total)
