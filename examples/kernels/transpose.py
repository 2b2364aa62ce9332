"""Transpose: rows are read and columns written, so either loads or stores are strided, unless a tile is transposed
between.
"""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

climb = Climb(
    "transpose",
    inputs=lambda rows, columns: (tg.randn(rows, columns),),
    expected=lambda x: x.t().contiguous(),
    size={"rows": 2048, "columns": 2048},
    large={"rows": 8192, "columns": 8192},
    tiny=[{"rows": 3, "columns": 5}, {"rows": 70, "columns": 33}],
    bytes=lambda rows, columns: 8 * rows * columns,
    tolerance=0.0,
)


@tg.kernel
def element(x, out, rows, columns):
    i, j = tl.program_id(1), tl.program_id(0)
    tl.store(out + j * rows + i, tl.load(x + i * columns + j))


@tg.kernel
def tile(x, out, rows, columns, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    i = tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)
    j = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    v = tl.load(x + i[:, None] * columns + j[None, :], mask=(i[:, None] < rows) & (j[None, :] < columns))
    turned = (j[:, None] < columns) & (i[None, :] < rows)
    tl.store(out + j[:, None] * rows + i[None, :], tl.trans(v), mask=turned)


def by_tiles(x: tg.Tensor, height: int, width: int) -> tg.Tensor:
    rows, columns = x.shape
    out = tg.empty(columns, rows, device=x.device)
    tile[(tg.cdiv(rows, height), tg.cdiv(columns, width))](x, out, rows, columns, HEIGHT=height, WIDTH=width)
    return out


@climb.step(on="cpu")
def elements(x: tg.Tensor) -> tg.Tensor:
    """a program for each element"""
    rows, columns = x.shape
    out = tg.empty(columns, rows, device=x.device)
    element[(columns, rows)](x, out, rows, columns)
    return out


@climb.step
def strips(x: tg.Tensor) -> tg.Tensor:
    """strips of a row: reads lie together, writes do not"""
    return by_tiles(x, 1, 256)


@climb.step
def tiles(x: tg.Tensor) -> tg.Tensor:
    """tiles of 32 by 32: both lie together"""
    return by_tiles(x, 32, 32)


@climb.step
def wide_tiles(x: tg.Tensor) -> tg.Tensor:
    """tiles of 64 by 64"""
    return by_tiles(x, 64, 64)


if __name__ == "__main__":
    climb.main()
