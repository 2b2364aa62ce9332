"""Products with weights of 8 bits: a quarter of the memory, and where they become numbers again.

A column of the weights has one scale. It may be multiplied in after the sum, so a tile need only convert.
"""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb


def quantised(w: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor]:
    """Whole numbers from -127 to 127 and the scale of each column."""
    scale = w.abs().max(0).values / 127
    return (w / scale).round().to(tg.int8), scale


def operands(m: int, n: int, k: int) -> tuple[tg.Tensor, ...]:
    return tg.randn(m, k), *quantised(tg.randn(k, n))


climb = Climb(
    "quantised matmul",
    inputs=operands,
    expected=lambda x, w, scale: x @ (w.float() * scale),
    size={"m": 16, "n": 2048, "k": 2048},
    large={"m": 16, "n": 16384, "k": 8192},
    tiny=[{"m": 1, "n": 4, "k": 3}, {"m": 7, "n": 70, "k": 90}],
    bytes=lambda m, n, k: 4 * m * (k + n) + k * n,
    operations=lambda m, n, k: 2 * m * n * k,
    tolerance=2e-2,  # of the step that rounds x to 8 bits too
)


@tg.kernel
def numbers(w, scale, out, k, n, BLOCK: tl.constexpr):
    row, j = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(w + row * n + j, mask=j < n, other=0).to(tl.float32) * tl.load(scale + j, mask=j < n)
    tl.store(out + row * n + j, v, mask=j < n)


@tg.kernel
def product(x, w, scale, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SCALED: tl.constexpr):
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        l = first + tl.arange(0, BK)
        left = tl.load(x + rows[:, None] * k + l[None, :], mask=(rows[:, None] < m) & (l[None, :] < k), other=0.0)
        known = (l[:, None] < k) & (columns[None, :] < n)
        right = tl.load(w + l[:, None] * n + columns[None, :], mask=known, other=0).to(tl.float32)
        total = tl.dot(left, right, total)
    if SCALED:
        total = total * tl.load(scale + columns, mask=columns < n)[None, :]
    to = out + rows[:, None] * n + columns[None, :]
    tl.store(to, total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@tg.kernel
def rounded_rows(x, whole, scales, k, BLOCK: tl.constexpr):
    """Rows as whole numbers of 8 bits, each with its scale."""
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * k + i, mask=i < k, other=0.0)
    scale = tl.max(tl.abs(v), 0) / 127
    tl.store(scales + row, scale)
    tl.store(whole + row * k + i, tl.floor(v / scale + 0.5).to(tl.int8), mask=i < k)


@tg.kernel
def whole_product(x, scales, w, scale, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """8 bits times 8 bits, added up in 32."""
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.int32)
    for first in range(0, k, BK):
        l = first + tl.arange(0, BK)
        left = tl.load(x + rows[:, None] * k + l[None, :], mask=(rows[:, None] < m) & (l[None, :] < k), other=0)
        right = tl.load(w + l[:, None] * n + columns[None, :], mask=(l[:, None] < k) & (columns[None, :] < n), other=0)
        total = tl.dot(left, right, total)
    known = (rows[:, None] < m) & (columns[None, :] < n)
    v = total.to(tl.float32) * tl.load(scales + rows, mask=rows < m)[:, None]
    v = v * tl.load(scale + columns, mask=columns < n)[None, :]
    tl.store(out + rows[:, None] * n + columns[None, :], v, mask=known)


BM, BN, BK = 16, 128, 128


def multiplied(x: tg.Tensor, w: tg.Tensor, scale: tg.Tensor, scaled: bool) -> tg.Tensor:
    (m, k), n = x.shape, w.shape[1]
    out = tg.empty(m, n, device=x.device)
    grid = (tg.cdiv(n, BN), tg.cdiv(m, BM))
    product[grid](x, w, scale, out, m, n, k, BM=BM, BN=BN, BK=BK, SCALED=scaled)
    return out


@climb.step
def numbers_first(x: tg.Tensor, w: tg.Tensor, scale: tg.Tensor) -> tg.Tensor:
    """the weights become numbers in memory, then a product"""
    k, n = w.shape
    whole = tg.empty(k, n, device=x.device)
    numbers[(tg.cdiv(n, 1024), k)](w, scale, whole, k, n, BLOCK=1024)
    return multiplied(x, whole, scale, False)


@climb.step
def numbers_in_tiles(x: tg.Tensor, w: tg.Tensor, scale: tg.Tensor) -> tg.Tensor:
    """tiles convert what they load, and scale their sums"""
    return multiplied(x, w, scale, True)


@climb.step
def whole_numbers(x: tg.Tensor, w: tg.Tensor, scale: tg.Tensor) -> tg.Tensor:
    """x in 8 bits too: whole numbers are multiplied"""
    (m, k), n = x.shape, w.shape[1]
    whole, scales = tg.empty(m, k, dtype=tg.int8, device=x.device), tg.empty(m, device=x.device)
    rounded_rows[(m,)](x, whole, scales, k, BLOCK=tg.next_power_of_2(k))
    out = tg.empty(m, n, device=x.device)
    grid = (tg.cdiv(n, BN), tg.cdiv(m, BM))
    whole_product[grid](whole, scales, w, scale, out, m, n, k, BM=BM, BN=BN, BK=BK)
    return out


if __name__ == "__main__":
    climb.main()
