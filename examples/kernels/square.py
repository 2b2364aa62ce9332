"""Squares of a matrix, a row a program as in the lecture, and by blocks that do not care for rows.

x * x, x ** 2 and tg.square are one kernel here (a test compares them).
"""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

climb = Climb(
    "square",
    inputs=lambda rows, columns: (tg.randn(rows, columns),),
    expected=lambda x: tg.square(x),
    size={"rows": 4096, "columns": 1823},
    large={"rows": 10000, "columns": 10000},
    tiny=[{"rows": 3, "columns": 5}, {"rows": 7, "columns": 129}],
    bytes=lambda rows, columns: 8 * rows * columns,
    operations=lambda rows, columns: rows * columns,
    tolerance=0.0,
)


@tg.kernel
def of_row(x, out, stride, columns, BLOCK: tl.constexpr):
    """The block must cover the row: with 1,024 places for 1,823 columns it would be fast, and wrong."""
    tl.static_assert(BLOCK >= 1)
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * stride + i
    v = tl.load(x + at, mask=i < columns)
    tl.store(out + at, v * v, mask=i < columns)


@tg.kernel
def of_block(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, v * v, mask=i < n)


@climb.step
def padded_rows(x: tg.Tensor) -> tg.Tensor:
    """a row a program, its tile the next power of two"""
    out = tg.empty_like(x)
    rows, columns = x.shape
    of_row[(rows,)](x, out, x.stride(0), columns, BLOCK=tg.next_power_of_2(columns))
    return out


@climb.step(on="cpu")
def rows(x: tg.Tensor) -> tg.Tensor:
    """a row a program, its tile as long as the row"""
    out = tg.empty_like(x)
    of_row[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=x.shape[1])
    return out


@climb.step
def blocks(x: tg.Tensor) -> tg.Tensor:
    """blocks of 4,096 elements"""
    out = tg.empty_like(x)
    of_block[(tg.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096)
    return out


if __name__ == "__main__":
    climb.main()
