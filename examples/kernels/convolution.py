"""Convolution, 3 by 3: sums over a window, and the matrix product that they are."""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

SIDE = 3


def operands(batch: int, channels: int, side: int, filters: int) -> tuple[tg.Tensor, tg.Tensor]:
    return tg.randn(batch, channels, side, side), tg.randn(filters, channels, SIDE, SIDE) / channels


climb = Climb(
    "convolution",
    inputs=operands,
    expected=lambda x, w: tg.nn.functional.conv2d(x, w),
    size={"batch": 4, "channels": 64, "side": 34, "filters": 128},
    large={"batch": 64, "channels": 128, "side": 58, "filters": 256},
    tiny=[{"batch": 1, "channels": 1, "side": 3, "filters": 1}, {"batch": 2, "channels": 3, "side": 7, "filters": 5}],
    bytes=lambda batch, channels, side, filters: 4 * batch * (channels * side**2 + filters * (side - 2) ** 2),
    operations=lambda batch, channels, side, filters: 18 * batch * filters * channels * (side - 2) ** 2,
    tolerance=1e-5,
)


@tg.kernel
def element(x, w, out, channels, side, filters, SIDE: tl.constexpr):
    end = side - SIDE + 1
    at, f, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row, column = at // end, at % end
    total = 0.0
    for c in range(channels):
        for k in range(SIDE):
            for l in range(SIDE):
                v = tl.load(x + ((b * channels + c) * side + row + k) * side + column + l)
                total += v * tl.load(w + ((f * channels + c) * SIDE + k) * SIDE + l)
    tl.store(out + (b * filters + f) * end * end + at, total)


@tg.kernel
def row_of_outputs(x, w, out, channels, side, filters, SIDE: tl.constexpr, BLOCK: tl.constexpr):
    """A program has a row of outputs of one filter: a weight for all of them, inputs beside each other."""
    end = side - SIDE + 1
    row, f, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    column = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for c in range(channels):
        for k in tl.static_range(SIDE):
            for l in tl.static_range(SIDE):
                at = ((b * channels + c) * side + row + k) * side + l
                v = tl.load(x + at + column, mask=column < end, other=0.0)
                total += v * tl.load(w + ((f * channels + c) * SIDE + k) * SIDE + l)
    tl.store(out + ((b * filters + f) * end + row) * end + column, total, mask=column < end)


@tg.kernel
def product(
    x, w, out, channels, side, filters, SIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """filters x (channels x window) times (channels x window) x places; the second is gathered from the image."""
    end = side - SIDE + 1
    depth = channels * SIDE * SIDE
    b = tl.program_id(2)
    f = tl.program_id(1) * BM + tl.arange(0, BM)
    at = tl.program_id(0) * BN + tl.arange(0, BN)
    place = at // end * side + at % end
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, depth, BK):
        k = start + tl.arange(0, BK)
        window = k // (SIDE * SIDE) * side * side + k % (SIDE * SIDE) // SIDE * side + k % SIDE
        inside = k < depth
        left = tl.load(w + f[:, None] * depth + k[None, :], mask=(f[:, None] < filters) & inside[None, :], other=0.0)
        seen = inside[:, None] & (at[None, :] < end * end)
        right = tl.load(x + b * channels * side * side + window[:, None] + place[None, :], mask=seen, other=0.0)
        total = tl.dot(left, right, total)
    to = (b * filters + f[:, None]) * end * end + at[None, :]
    tl.store(out + to, total, mask=(f[:, None] < filters) & (at[None, :] < end * end))


def shape_of(x: tg.Tensor, w: tg.Tensor) -> tuple[int, int, int, int, int]:
    batch, channels, side, _ = x.shape
    return batch, channels, side, w.shape[0], side - SIDE + 1


def by_product(x: tg.Tensor, w: tg.Tensor, bm: int, bn: int, bk: int) -> tg.Tensor:
    batch, channels, side, filters, end = shape_of(x, w)
    out = tg.empty(batch, filters, end, end, device=x.device)
    grid = (tg.cdiv(end * end, bn), tg.cdiv(filters, bm), batch)
    product[grid](x, w, out, channels, side, filters, SIDE=SIDE, BM=bm, BN=bn, BK=bk)
    return out


@climb.step(on="cpu")
def elements(x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
    """a program for each output"""
    batch, channels, side, filters, end = shape_of(x, w)
    out = tg.empty(batch, filters, end, end, device=x.device)
    element[(end * end, filters, batch)](x, w, out, channels, side, filters, SIDE=SIDE)
    return out


@climb.step
def rows(x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
    """a row of outputs a program: vectors"""
    batch, channels, side, filters, end = shape_of(x, w)
    out = tg.empty(batch, filters, end, end, device=x.device)
    row_of_outputs[(end, filters, batch)](x, w, out, channels, side, filters, SIDE=SIDE, BLOCK=tg.next_power_of_2(end))
    return out


@climb.step
def products(x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
    """a matrix product whose right operand is read from the image, 32 x 64"""
    return by_product(x, w, 32, 64, 32)


@climb.step
def large_products(x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
    """the same with tiles of 128 x 128, 64 deep"""
    return by_product(x, w, 128, 128, 64)


if __name__ == "__main__":
    climb.main()
