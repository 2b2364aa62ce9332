"""Sums over windows of radius 3. The input is padded: output i is the sum of inputs i to i + 6.

Seven loads for each output, or BLOCK + 6 for a block of them: 10 for a block of 4.
"""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

RADIUS = 3


def summed(x: tg.Tensor) -> tg.Tensor:
    n = x.numel() - 2 * RADIUS
    return sum((x[k : k + n] for k in range(1, 2 * RADIUS + 1)), x[:n])


climb = Climb(
    "window sum",
    inputs=lambda n: (tg.arange(n + 2 * RADIUS).float(),),
    expected=summed,
    size={"n": 1 << 20},
    large={"n": 1 << 26},
    tiny=[{"n": 1}, {"n": 17}, {"n": 18}, {"n": 1025}],
    bytes=lambda n: 8 * n,
    operations=lambda n: 6 * n,
    tolerance=1e-6,
)


@tg.kernel
def naive(x, out, n, RADIUS: tl.constexpr):
    i = tl.program_id(0)
    total = tl.load(x + i)
    for k in range(1, 2 * RADIUS + 1):
        total += tl.load(x + i + k)
    tl.store(out + i, total)


@tg.kernel
def shifted(x, out, n, RADIUS: tl.constexpr, BLOCK: tl.constexpr):
    """Each element is loaded seven times, six of them from the first cache."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + i, mask=i < n)
    for k in tl.static_range(1, 2 * RADIUS + 1):
        total += tl.load(x + i + k, mask=i < n)
    tl.store(out + i, total, mask=i < n)


@tg.kernel
def once(x, out, n, RADIUS: tl.constexpr, BLOCK: tl.constexpr):
    """A block with its margins is loaded once; windows are picked from it."""
    first = tl.program_id(0) * BLOCK
    i = tl.arange(0, BLOCK)
    wide = tl.arange(0, BLOCK + 2 * RADIUS)
    tile = tl.load(x + first + wide, mask=first + wide < n + 2 * RADIUS, other=0.0)
    total = tl.gather(tile, i, 0)
    for k in tl.static_range(1, 2 * RADIUS + 1):
        total += tl.gather(tile, i + k, 0)
    tl.store(out + first + i, total, mask=first + i < n)


def outputs(x: tg.Tensor) -> tg.Tensor:
    return tg.empty(x.numel() - 2 * RADIUS, device=x.device)


@climb.step(on="cpu")
def one_each(x: tg.Tensor) -> tg.Tensor:
    """a program for each output: 7 loads"""
    out = outputs(x)
    naive[(out.numel(),)](x, out, out.numel(), RADIUS=RADIUS)
    return out


@climb.step
def gathered(x: tg.Tensor) -> tg.Tensor:
    """a block loads its window once: 1 + 6/BLOCK loads"""
    out = outputs(x)
    once[(tg.cdiv(out.numel(), 1024),)](x, out, out.numel(), RADIUS=RADIUS, BLOCK=1024)
    return out


@climb.step
def shifts(x: tg.Tensor) -> tg.Tensor:
    """seven shifted loads of vectors: the cache keeps the window"""
    out = outputs(x)
    shifted[(tg.cdiv(out.numel(), 1024),)](x, out, out.numel(), RADIUS=RADIUS, BLOCK=1024)
    return out


if __name__ == "__main__":
    climb.main()
