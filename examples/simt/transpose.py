"""A transpose, three ways: stores far apart, a tile with bank conflicts, and one without."""

import tilegrad as tg
from tilegrad import simt
from tilegrad.simt import blockIdx, shared, syncthreads, threadIdx

TILE, ROWS = 32, 8


@simt.kernel
def transpose_naive(x, out, height, width):
    """A warp reads a row and writes a column: each of its stores is a transaction of its own."""
    column = blockIdx.x * TILE + threadIdx.x
    for row in range(blockIdx.y * TILE + threadIdx.y, min(blockIdx.y * TILE + TILE, height), ROWS):
        if column < width:
            out[column * height + row] = x[row * width + column]


@simt.kernel
def transpose_tiled(x, out, height, width, PAD: simt.constexpr):
    """Through shared memory rows are read and rows are written. A column of a tile that is 32 wide is in one bank; in
    one that is 33 wide it is in 32.
    """
    tile = shared(x.dtype, (TILE, TILE + PAD))
    column = blockIdx.x * TILE + threadIdx.x
    for j in range(threadIdx.y, TILE, ROWS):
        if column < width and blockIdx.y * TILE + j < height:
            tile[j, threadIdx.x] = x[(blockIdx.y * TILE + j) * width + column]
    syncthreads()
    row = blockIdx.y * TILE + threadIdx.x
    for j in range(threadIdx.y, TILE, ROWS):
        if row < height and blockIdx.x * TILE + j < width:
            out[(blockIdx.x * TILE + j) * height + row] = tile[threadIdx.x, j]


def grid(height: int, width: int) -> tuple[int, int]:
    return tg.cdiv(width, TILE), tg.cdiv(height, TILE)


def main() -> None:
    height, width = 128, 256
    x, out = tg.rand(height, width), tg.empty(width, height)
    transpose_naive[grid(height, width), (TILE, ROWS)](x, out, height, width)
    found = transpose_naive.counters
    print(f"naive:  {found.transactions:6,} transactions, {found.bank_conflicts:6,} bank conflicts")
    for pad in (0, 1):
        transpose_tiled[grid(height, width), (TILE, ROWS)](x, out, height, width, PAD=pad)
        found = transpose_tiled.counters
        print(f"pad {pad}:  {found.transactions:6,} transactions, {found.bank_conflicts:6,} bank conflicts")


if __name__ == "__main__":
    main()
