"""Batched and grouped products: many matrices in one launch, and the order in which tiles are taken.

Programs that run at about the same time should share operands. Row after row, 4 programs in a row of 5 x 4 tiles need
1 strip of x and 4 of y; in groups of 3 rows, 6 programs share 3 and 2:

     0  1  2  3          0  3  6  9
     4  5  6  7          1  4  7 10
     8  9 10 11    ->    2  5  8 11
    12 13 14 15         12 14 16 18
    16 17 18 19         13 15 17 19
"""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

climb = Climb(
    "batched matmul",
    inputs=lambda batch, m, n, k: (tg.randn(batch, m, k), tg.randn(batch, k, n)),
    expected=lambda x, y: x @ y,
    size={"batch": 8, "m": 320, "n": 256, "k": 256},
    large={"batch": 32, "m": 1280, "n": 1024, "k": 1024},
    tiny=[{"batch": 1, "m": 1, "n": 1, "k": 1}, {"batch": 3, "m": 70, "n": 33, "k": 40}],
    bytes=lambda batch, m, n, k: 4 * batch * (m * k + k * n + m * n),
    operations=lambda batch, m, n, k: 2 * batch * m * n * k,
)


@tg.kernel
def element(x, y, out, m, n, k):
    j, i, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    total = 0.0
    for l in range(k):
        total += tl.load(x + (b * m + i) * k + l) * tl.load(y + (b * k + l) * n + j)
    tl.store(out + (b * m + i) * n + j, total)


@tg.kernel
def tile_of_product(x, y, out, i, j, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Tile (i, j) of a product m x k by k x n."""
    rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        l = first + tl.arange(0, BK)
        left = tl.load(x + rows[:, None] * k + l[None, :], mask=(rows[:, None] < m) & (l[None, :] < k), other=0.0)
        right = tl.load(
            y + l[:, None] * n + columns[None, :], mask=(l[:, None] < k) & (columns[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total)
    to = out + rows[:, None] * n + columns[None, :]
    tl.store(to, total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@tg.kernel
def batched(
    x, y, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """Axes of the grid: columns, rows, matrices. GROUP rows of tiles are taken together."""
    b = tl.program_id(2)
    i, j = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), GROUP)
    tile_of_product(x + b * m * k, y + b * k * n, out + b * m * n, i, j, m, n, k, BM, BN, BK)


@tg.kernel
def grouped(x, y, out, table, problems, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Products of any shapes, one behind the other. `table` has for each its m, n, k, and where its first tile,
    its operands and its result begin: a program looks up whose tile it has.
    """
    number = tl.program_id(0)
    p = 0
    for other in range(1, problems):
        if tl.load(table + other * 7 + 3) <= number:
            p = other
    row = table + p * 7
    m, n, k = tl.load(row), tl.load(row + 1), tl.load(row + 2)
    number -= tl.load(row + 3)
    across = tl.cdiv(n, BN)
    x += tl.load(row + 4)
    y += tl.load(row + 5)
    out += tl.load(row + 6)
    tile_of_product(x, y, out, number // across, number % across, m, n, k, BM, BN, BK)


def grouped_products(
    shapes: list[tuple[int, int, int]], x: tg.Tensor, y: tg.Tensor, bm: int = 64, bn: int = 64, bk: int = 64
) -> tg.Tensor:
    """The products m x k by k x n of all shapes, in one launch; operands and results are flat, one behind the other."""
    rows, tiles, places = [], 0, [0, 0, 0]
    for m, n, k in shapes:
        rows.append([m, n, k, tiles, *places])
        tiles += tg.cdiv(m, bm) * tg.cdiv(n, bn)
        places = [at + count for at, count in zip(places, (m * k, k * n, m * n), strict=True)]
    out = tg.empty(places[2], device=x.device)
    table = tg.tensor(rows, dtype=tg.int32).to(x.device)
    grouped[(tiles,)](x, y, out, table, len(rows), BM=bm, BN=bn, BK=bk)
    return out


def in_batch(x: tg.Tensor, y: tg.Tensor, group: int, bm: int = 64, bn: int = 64, bk: int = 64) -> tg.Tensor:
    (b, m, k), n = x.shape, y.shape[2]
    out = tg.empty(b, m, n, device=x.device)
    grid = (tg.cdiv(n, bn), tg.cdiv(m, bm), b)
    batched[grid](x, y, out, m, n, k, BM=bm, BN=bn, BK=bk, GROUP=group)
    return out


@climb.step(on="cpu")
def elements(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """a program for each element"""
    (b, m, k), n = x.shape, y.shape[2]
    out = tg.empty(b, m, n, device=x.device)
    element[(n, m, b)](x, y, out, m, n, k)
    return out


@climb.step
def row_by_row(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """tiles of 64 x 64, row after row"""
    return in_batch(x, y, 1)


@climb.step
def in_groups(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """the same tiles in groups of 3 rows"""
    return in_batch(x, y, 3)


@climb.step
def by_table(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """products of any shapes from a table"""
    (b, m, k), n = x.shape, y.shape[2]
    return grouped_products([(m, n, k)] * b, x.reshape(-1), y.reshape(-1)).reshape(b, m, n)


@climb.step(on="cpu")
def large_tiles(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """tiles of 160 x 256, all of k"""
    return in_batch(x, y, 1, 160, 256, 256)


if __name__ == "__main__":
    climb.main()
