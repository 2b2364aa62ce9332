"""Softmax of rows: how often a row is read, and where it is meanwhile."""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

climb = Climb(
    "softmax",
    inputs=lambda rows, columns: (tg.randn(rows, columns),),
    expected=lambda x: tg.softmax(x, -1),
    size={"rows": 4096, "columns": 1024},
    large={"rows": 65536, "columns": 2048},
    tiny=[{"rows": 3, "columns": 5}, {"rows": 4, "columns": 300}],
    bytes=lambda rows, columns: 8 * rows * columns,
    operations=lambda rows, columns: 4 * rows * columns,
)


@tg.kernel
def exponentials(x, out, n, BLOCK: tl.constexpr):
    """exp(x - greatest): without the subtraction, exp(100) would be infinite."""
    row = tl.program_id(0) * n
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row + i, mask=i < n, other=-float("inf"))
    tl.store(out + row + i, tl.exp(v - tl.max(v, 0)), mask=i < n)


@tg.kernel
def divided(x, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * n
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row + i, mask=i < n, other=0.0)
    tl.store(x + row + i, v / tl.sum(v, 0), mask=i < n)


@tg.kernel
def in_pieces(x, out, n, BLOCK: tl.constexpr):
    """For rows too long for a tile: the sum is corrected whenever a greater element comes along."""
    row = tl.program_id(0) * n
    greatest = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row + i, mask=i < n, other=-float("inf"))
        new = tl.maximum(greatest, v)
        known = new > -float("inf")
        total = total * tl.where(known, tl.exp(greatest - new), 0.0) + tl.where(known, tl.exp(v - new), 0.0)
        greatest = new
    highest = tl.max(greatest, 0)
    total = tl.sum(total * tl.exp(greatest - highest), 0)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row + i, mask=i < n)
        tl.store(out + row + i, tl.exp(v - highest) / total, mask=i < n)


@tg.kernel
def whole_row(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * n
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row + i, e * (1 / tl.sum(e, 0)), mask=i < n)


@climb.step
def two_kernels(x: tg.Tensor) -> tg.Tensor:
    """two kernels: the exponentials go through memory"""
    out = tg.empty_like(x)
    rows, n = x.shape
    exponentials[(rows,)](x, out, n, BLOCK=tg.next_power_of_2(n))
    divided[(rows,)](out, n, BLOCK=tg.next_power_of_2(n))
    return out


@climb.step
def pieces(x: tg.Tensor) -> tg.Tensor:
    """pieces of 256: a row is read twice, of any length"""
    out = tg.empty_like(x)
    in_pieces[(x.shape[0],)](x, out, x.shape[1], BLOCK=256)
    return out


@climb.step
def one_tile(x: tg.Tensor) -> tg.Tensor:
    """a row a tile: read once, one division"""
    out = tg.empty_like(x)
    rows, n = x.shape
    whole_row[(rows,)](x, out, n, BLOCK=tg.next_power_of_2(n))
    return out


if __name__ == "__main__":
    climb.main()
