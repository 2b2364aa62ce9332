"""ReLU: a branch for each element, a choice for a tile of them, a maximum."""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

climb = Climb(
    "ReLU",
    inputs=lambda n: (tg.randn(n),),
    expected=lambda x: tg.relu(x),
    size={"n": 1 << 22},
    large={"n": 1 << 27},
    tiny=[{"n": 1}, {"n": 1001}],
    bytes=lambda n: 8 * n,
    tolerance=0.0,
)


@tg.kernel
def branch(x, out):
    """A number is not a tile: programs may go different ways."""
    i = tl.program_id(0)
    v = tl.load(x + i)
    if v > 0:
        tl.store(out + i, v)
    else:
        tl.store(out + i, 0.0)


@tg.kernel
def choice(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, tl.where(v > 0, v, 0.0), mask=i < n)


@tg.kernel
def greatest(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)


@climb.step(on="cpu")
def branches(x: tg.Tensor) -> tg.Tensor:
    """a program and a branch for each element"""
    out = tg.empty_like(x)
    branch[(x.numel(),)](x, out)
    return out


@climb.step
def choices(x: tg.Tensor) -> tg.Tensor:
    """tiles of 1,024, `tl.where`"""
    out = tg.empty_like(x)
    choice[(tg.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


@climb.step
def maxima(x: tg.Tensor) -> tg.Tensor:
    """tiles of 8,192, `tl.maximum`"""
    out = tg.empty_like(x)
    greatest[(tg.cdiv(x.numel(), 8192),)](x, out, x.numel(), BLOCK=8192)
    return out


if __name__ == "__main__":
    climb.main()
