"""Examples of ops that convolutions become: packed rows (implicit GEMM) and Winograd tiles."""

from __future__ import annotations

import itertools

import numpy as np

from tests.ops.registry import example, floats
from tilegrad.ops.odd_tiles import FilterLayout, IrregularTiles, RepairedTiles
from tilegrad.ops.packed_rows import Materialised, PackedConvolve, PackedConvolveWeight, PackedRows
from tilegrad.ops.winograd_tiles import TileStrides, TransformedTiles

example(PackedRows, PackedRows, floats(2, 3, 4), numpy=lambda x: x.reshape(2, 12))

example(Materialised, Materialised, floats(2, 3, 4), numpy=lambda x: x)

GRID, CHANNELS, COUNTS, TAPS, APART = (5, 7), 3, (3, 4), (2, 2), (2, 3)


def windows(x: np.ndarray) -> np.ndarray:
    """The windows of two images in rows: (groups, images, *windows, *taps, channels)."""
    lines = x.reshape(x.shape[0], -1, CHANNELS)
    seen = np.zeros((x.shape[0], 2, *COUNTS, *TAPS, CHANNELS))
    for n, i, j, s, t in itertools.product(range(2), *map(range, (*COUNTS, *TAPS))):
        line = n * GRID[0] * GRID[1] + (i + s * APART[0]) * GRID[1] + j + t * APART[1]
        seen[:, n, i, j, s, t] = lines[:, line]
    return seen


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.einsum("gnijstc,gostc->ngoij", windows(x), w.reshape(2, 4, *TAPS, CHANNELS))


rows = floats(2, 3 * GRID[0] * GRID[1] * CHANNELS)
example(
    PackedConvolve,
    lambda x, w: PackedConvolve(x, w, 2, GRID, CHANNELS, 4, TAPS, CHANNELS, COUNTS, APART),
    rows,
    floats(2, 4 * 2 * 2 * CHANNELS, seed=1),
    numpy=product,
    gradient=False,
)


def weight(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    count = 2 * GRID[0] * GRID[1]
    x, y = x.reshape(2, -1, CHANNELS), y.reshape(2, -1, 5)[:, 4 : 4 + count]
    shifts = [[s * APART[0] * GRID[1] + t * APART[1] for t in range(2)] for s in range(2)]
    return np.stack(
        [np.stack([np.einsum("glo,glc->goc", y, x[:, n : n + count]) for n in row], 2) for row in shifts], 2
    )


example(
    PackedConvolveWeight,
    lambda x, y: PackedConvolveWeight(x, y, 2 * GRID[0] * GRID[1], GRID, (CHANNELS, 5), 4, 4, TAPS, CHANNELS, APART),
    rows,
    floats(2, 3 * GRID[0] * GRID[1] * 5, seed=2),
    numpy=lambda x, y: weight(x, y)[:, :4],
    gradient=False,
)

lines = 3 * GRID[0] * GRID[1]
example(
    PackedConvolveWeight,
    lambda x, y: PackedConvolveWeight(
        x, y, 2 * GRID[0] * GRID[1], GRID, (CHANNELS, 1), 4, 4, TAPS, CHANNELS, APART, "highest", lines
    ),
    rows,
    floats(2, 5 * lines, seed=2),
    numpy=lambda x, y: weight(x, y.reshape(2, 5, lines).transpose(0, 2, 1))[:, :4],
    gradient=False,
    name="a row of lines for each output",
)


def squares(x: np.ndarray) -> np.ndarray:
    """Squares of 3 x 3, 2 apart, to 2 x 2 by a matrix along both sides."""
    matrix = np.array(MATRIX)
    found = np.zeros((2, 2, 2, 3, 5))
    for i, j in itertools.product(range(2), range(3)):
        found[:, :, i, j] = np.einsum("ai,bj,ijl->abl", matrix, matrix, x[2 * i : 2 * i + 3, 2 * j : 2 * j + 3])
    return found


MATRIX = ((1.0, 0.5, 0.0), (-2.0, 1.0, 0.25))
example(
    TransformedTiles,
    lambda x: TransformedTiles(
        x, MATRIX, (2, 3), 5, TileStrides((70, 10), 35, 5, 1), TileStrides((15, 5), 60, 30, 1), (2, 2, 2, 3, 5)
    ),
    floats(5, 7, 5),
    numpy=squares,
    gradient=False,
)


def odd(sums: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Squares of 3 x 3, 2 apart, with windows of 2 x 2."""
    found = np.zeros((1, 2, 2, 3), np.int32)
    for n, i, j in itertools.product(range(2), range(2), range(3)):
        tile = sums[0, n, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
        windows = [tile[p : p + 2, q : q + 2].sum() for p, q in itertools.product(range(2), repeat=2)]
        least = min([w for w in windows if w > 0] or [0])
        found[0, n, i, j] = not (least * 128 >= tile.sum() and tile.sum() < 2.0**50 and weight < 2.0**50)
    return found


SUMS = floats(1, 2, 5, 7, low=0.5)
SUMS[0, 0, 4, 6] = 1e7
SUMS[0, 1, :3, :3] = 0
SUMS[0, 1, 0, 6] = np.inf
for name, most in {"weights": 1.0, "weights that are too large": 1e30}.items():
    example(
        IrregularTiles,
        lambda sums, weight: IrregularTiles(sums, weight, (1, 2, 2, 3), TileStrides((70, 35, 14, 2), 7, 1, 1), 3, 2),
        SUMS,
        np.array(most),
        numpy=odd,
        gradient=False,
        name=name,
    )


def restored(x: np.ndarray, odd: np.ndarray, lying: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Squares of 3 x 3 to 2 x 2 by a matrix; or, where they are odd, windows of 2 x 2 elements times weights."""
    matrix, found = np.array(MATRIX), np.zeros((1, 1, 2, 6, 5))
    for j in range(3):
        tile = lying[0, 0, :, 2 * j : 2 * j + 3]
        direct = [np.einsum("ijc,ocij->o", tile[p : p + 2, q : q + 2], w[0]) for p in range(2) for q in range(2)]
        by_matrix = np.einsum("ai,bj,ijl->abl", matrix, matrix, x[:, :, 0, 0, 0, j])
        found[0, 0, :, 2 * j : 2 * j + 2] = np.reshape(direct, (2, 2, 5)) if odd[0, 0, 0, j] else by_matrix
    return found


def restored_back(x: np.ndarray, odd: np.ndarray, lying: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The same of weights (1, channels, outputs, 2, 2), taps in reverse order."""
    return restored(x, odd, lying, w.swapaxes(1, 2)[..., ::-1, ::-1])


for filters, weights, meaning in (
    (FilterLayout(2), (1, 5, 4, 2, 2), restored),
    (FilterLayout(2, across=True, reverse=True), (1, 4, 5, 2, 2), restored_back),
):
    example(
        RepairedTiles,
        lambda x, odd, lying, w, filters=filters: RepairedTiles(
            *(x, odd, lying, w, MATRIX, (1, 1, 1, 3), 5, TileStrides((15, 15, 15, 5), 45, 15, 1)),
            *(
                TileStrides((60, 60, 60, 10), 30, 5, 1),
                TileStrides((84, 84, 84, 8), 28, 4, 1),
                (1, 1, 2, 6, 5),
                filters,
            ),
        ),
        floats(3, 3, 1, 1, 1, 3, 5),
        np.array([[[[0, 1, 0]]]], np.int32),
        floats(1, 1, 3, 7, 4, seed=1),
        floats(*weights, seed=2),
        numpy=meaning,
        gradient=False,
        name="the way back" if filters.across else "",
    )
