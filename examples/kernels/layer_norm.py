"""Layer norm of rows: mean, variance, and the row once more."""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

climb = Climb(
    "layer norm",
    inputs=lambda rows, columns: (tg.randn(rows, columns), 1 + 0.1 * tg.randn(columns), 0.1 * tg.randn(columns)),
    expected=lambda x, weight, bias: tg.nn.functional.layer_norm(x, weight.shape, weight, bias),
    size={"rows": 4096, "columns": 1024},
    large={"rows": 65536, "columns": 2048},
    tiny=[{"rows": 3, "columns": 5}, {"rows": 4, "columns": 300}],
    bytes=lambda rows, columns: 8 * rows * columns,
    operations=lambda rows, columns: 8 * rows * columns,
)

EPS = 1e-5


@tg.kernel
def in_pieces(x, weight, bias, out, n, eps, BLOCK: tl.constexpr):
    """As in Triton's tutorial: three loops over a row of any length."""
    row = tl.program_id(0) * n
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x + row + i, mask=i < n, other=0.0)
    mean = tl.sum(total, 0) / n
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        d = tl.where(i < n, tl.load(x + row + i, mask=i < n, other=0.0) - mean, 0.0)
        squares += d * d
    scale = tl.rsqrt(tl.sum(squares, 0) / n + eps)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = (tl.load(x + row + i, mask=i < n, other=0.0) - mean) * scale
        y = v * tl.load(weight + i, mask=i < n) + tl.load(bias + i, mask=i < n)
        tl.store(out + row + i, y, mask=i < n)


@tg.kernel
def whole_row(x, weight, bias, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0) * n
    i = tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x + row + i, mask=inside, other=0.0)
    d = tl.where(inside, v - tl.sum(v, 0) / n, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, 0) / n + eps)
    y = d * scale * tl.load(weight + i, mask=inside) + tl.load(bias + i, mask=inside)
    tl.store(out + row + i, y, mask=inside)


def launched(kernel, x: tg.Tensor, weight: tg.Tensor, bias: tg.Tensor, block: int) -> tg.Tensor:
    out = tg.empty_like(x)
    kernel[(x.shape[0],)](x, weight, bias, out, x.shape[1], EPS, BLOCK=block)
    return out


@climb.step
def small_pieces(x: tg.Tensor, weight: tg.Tensor, bias: tg.Tensor) -> tg.Tensor:
    """three loops, pieces of 64"""
    return launched(in_pieces, x, weight, bias, 64)


@climb.step
def pieces(x: tg.Tensor, weight: tg.Tensor, bias: tg.Tensor) -> tg.Tensor:
    """three loops, pieces of 512"""
    return launched(in_pieces, x, weight, bias, 512)


@climb.step
def one_tile(x: tg.Tensor, weight: tg.Tensor, bias: tg.Tensor) -> tg.Tensor:
    """a row a tile: no loop, read once"""
    return launched(whole_row, x, weight, bias, tg.next_power_of_2(x.shape[1]))


if __name__ == "__main__":
    climb.main()
