"""Dropout: with the mask in memory, or recomputed from a seed and the index of the element."""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

RATE, SEED = 0.25, 123


def kept(x: tg.Tensor) -> tg.Tensor:
    """The elements that the kernels keep, drawn by the same generator in a kernel of its own."""
    mask = mask_of(x)
    return tg.where(mask, x / (1 - RATE), 0.0)


climb = Climb(
    "dropout",
    inputs=lambda n: (tg.randn(n),),
    expected=kept,
    size={"n": 1 << 22},
    large={"n": 1 << 27},
    tiny=[{"n": 1}, {"n": 1000}],
    bytes=lambda n: 8 * n,
    tolerance=1e-6,
    built_in=lambda x: tg.nn.functional.dropout(x, RATE),
)


@tg.kernel
def draw(mask, n, rate, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(mask + i, tl.rand(seed, i) > rate, mask=i < n)


@tg.kernel
def masked(x, mask, out, n, rate, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, tl.where(tl.load(mask + i, mask=i < n), v / (1 - rate), 0.0), mask=i < n)


@tg.kernel
def seeded(x, out, n, rate, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, tl.where(tl.rand(seed, i) > rate, v / (1 - rate), 0.0), mask=i < n)


def mask_of(x: tg.Tensor) -> tg.Tensor:
    mask = tg.empty(x.numel(), dtype=tg.bool, device=x.device)
    draw[(tg.cdiv(x.numel(), 1024),)](mask, x.numel(), RATE, SEED, BLOCK=1024)
    return mask


@climb.step
def from_memory(x: tg.Tensor) -> tg.Tensor:
    """a kernel that draws the mask, and one that reads it"""
    n, mask, out = x.numel(), mask_of(x), tg.empty_like(x)
    masked[(tg.cdiv(n, 1024),)](x, mask, out, n, RATE, BLOCK=1024)
    return out


@climb.step
def from_a_seed(x: tg.Tensor) -> tg.Tensor:
    """one kernel: the mask is a function of seed and place"""
    n, out = x.numel(), tg.empty_like(x)
    seeded[(tg.cdiv(n, 1024),)](x, out, n, RATE, SEED, BLOCK=1024)
    return out


@climb.step
def large_blocks(x: tg.Tensor) -> tg.Tensor:
    """blocks of 8,192: the same elements, whatever the blocks"""
    n, out = x.numel(), tg.empty_like(x)
    seeded[(tg.cdiv(n, 8192),)](x, out, n, RATE, SEED, BLOCK=8192)
    return out


if __name__ == "__main__":
    climb.main()
