"""Prefix sums: every output needs all inputs before it, and yet programs can work at the same time."""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

climb = Climb(
    "prefix sum",
    inputs=lambda n: (tg.rand(n),),
    expected=lambda x: x.cumsum(0),
    size={"n": 1 << 22},
    large={"n": 1 << 26},
    tiny=[{"n": 1}, {"n": 100}, {"n": 3000}],
    bytes=lambda n: 8 * n,
    operations=lambda n: n,
    tolerance=1e-4,
)


@tg.kernel
def serial(x, out, n):
    total = 0.0
    for i in range(n):
        total += tl.load(x + i)
        tl.store(out + i, total)


@tg.kernel
def carried(x, out, n, BLOCK: tl.constexpr):
    """One program: prefix sums of a block, and what it carries into the next."""
    carry = 0.0
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        v = tl.load(x + i, mask=i < n, other=0.0)
        tl.store(out + i, carry + tl.cumsum(v, 0), mask=i < n)
        carry += tl.sum(v)


@tg.kernel
def sums(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


@tg.kernel
def from_sums(x, before, out, n, BLOCK: tl.constexpr):
    """The prefix sums of a block, from the sum of all blocks before it."""
    block = tl.program_id(0)
    i = block * BLOCK + tl.arange(0, BLOCK)
    start = 0.0
    if block > 0:
        start = tl.load(before + block - 1)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out + i, start + tl.cumsum(v, 0), mask=i < n)


@climb.step(on="cpu")
def one_by_one(x: tg.Tensor) -> tg.Tensor:
    """one program, one element after the other"""
    out = tg.empty_like(x)
    serial[(1,)](x, out, x.numel())
    return out


@climb.step
def block_by_block(x: tg.Tensor) -> tg.Tensor:
    """one program, blocks of 1,024 and a carry"""
    out = tg.empty_like(x)
    carried[(1,)](x, out, x.numel(), BLOCK=1024)
    return out


@climb.step
def three_kernels(x: tg.Tensor) -> tg.Tensor:
    """sums of blocks, their prefix sums, then all blocks at once"""
    n, block = x.numel(), 2048
    programs = tg.cdiv(n, block)
    totals, before, out = (tg.empty(count, device=x.device) for count in (programs, programs, n))
    sums[(programs,)](x, totals, n, BLOCK=block)
    carried[(1,)](totals, before, programs, BLOCK=1024)
    from_sums[(programs,)](x, before, out, n, BLOCK=block)
    return out


if __name__ == "__main__":
    climb.main()
