"""saxpy, a x + y: what two operations cost that go through memory, and what one costs."""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

climb = Climb(
    "saxpy",
    inputs=lambda n: (2.5, tg.randn(n), tg.randn(n)),
    expected=lambda a, x, y: a * x + y,
    size={"n": 1 << 22},
    large={"n": 1 << 27},
    tiny=[{"n": 1}, {"n": 777}],
    bytes=lambda n: 12 * n,
    operations=lambda n: 2 * n,
)


@tg.kernel
def scale(a, x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, a * tl.load(x + i, mask=i < n), mask=i < n)


@tg.kernel
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@tg.kernel
def saxpy(a, x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, a * tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


def fused(a: float, x: tg.Tensor, y: tg.Tensor, block: int) -> tg.Tensor:
    out = tg.empty_like(x)
    saxpy[(tg.cdiv(x.numel(), block),)](a, x, y, out, x.numel(), BLOCK=block)
    return out


@climb.step
def two_kernels(a: float, x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """two kernels: a x goes through memory"""
    n, block = x.numel(), 1024
    scaled, out = tg.empty_like(x), tg.empty_like(x)
    scale[(tg.cdiv(n, block),)](a, x, scaled, n, BLOCK=block)
    add[(tg.cdiv(n, block),)](scaled, y, out, n, BLOCK=block)
    return out


@climb.step
def one_kernel(a: float, x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """one kernel: a x stays in registers"""
    return fused(a, x, y, 1024)


@climb.step
def large_blocks(a: float, x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """8,192 elements a program"""
    return fused(a, x, y, 8192)


if __name__ == "__main__":
    climb.main()
