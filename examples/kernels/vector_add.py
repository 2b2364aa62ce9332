"""Vector add: the first kernel of every course. Memory decides; a program must have enough to do."""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

climb = Climb(
    "vector add",
    inputs=lambda n: (tg.randn(n), tg.randn(n)),
    expected=lambda x, y: x + y,
    size={"n": 1 << 22},
    large={"n": 1 << 27},
    tiny=[{"n": 0}, {"n": 1}, {"n": 1000}],
    bytes=lambda n: 12 * n,
)


@tg.kernel
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


def added(x: tg.Tensor, y: tg.Tensor, block: int) -> tg.Tensor:
    out = tg.empty_like(x)
    add[(tg.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block)
    return out


@climb.step(on="cpu")
def one_each(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """a program for each element"""
    return added(x, y, 1)


@climb.step
def small_blocks(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """128 elements a program: vectors"""
    return added(x, y, 128)


@climb.step
def blocks(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """1,024 elements a program"""
    return added(x, y, 1024)


@climb.step
def large_blocks(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """8,192 elements a program: fewer beginnings and ends"""
    return added(x, y, 8192)


if __name__ == "__main__":
    climb.main()
