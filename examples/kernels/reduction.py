"""The sum of a vector: programs that share one place, programs that share it seldom, and programs that do not.

Floats added atomically arrive in any order: last digits differ from run to run. The last step always gives the same.
"""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

climb = Climb(
    "reduction",
    inputs=lambda n: (tg.rand(n),),
    expected=lambda x: x.sum(),
    size={"n": 1 << 22},
    large={"n": 1 << 28},
    tiny=[{"n": 1}, {"n": 192}, {"n": 1000}],
    bytes=lambda n: 4 * n,
    operations=lambda n: n,
    tolerance=1e-3,
)


@tg.kernel
def element(x, out):
    tl.atomic_add(out, tl.load(x + tl.program_id(0)))


@tg.kernel
def block(x, out, n, BLOCK: tl.constexpr):
    """Elements past the end count as 0. (Halving a block that is no power of two would drop elements.)"""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


@tg.kernel
def stretch(x, out, n, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    """Goes on through TURNS blocks with a sum for each lane; what it found is stored in its own place."""
    first = tl.program_id(0) * TURNS * BLOCK
    totals = tl.zeros([BLOCK], tl.float32)
    for turn in range(TURNS):
        i = first + turn * BLOCK + tl.arange(0, BLOCK)
        totals += tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(totals))


@climb.step(on="cpu")
def elements(x: tg.Tensor) -> tg.Tensor:
    """an atomic addition for each element"""
    out = tg.zeros((), device=x.device)
    element[(x.numel(),)](x, out)
    return out


@climb.step
def blocks(x: tg.Tensor) -> tg.Tensor:
    """an atomic addition for each 1,024"""
    out = tg.zeros((), device=x.device)
    block[(tg.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


@climb.step
def two_levels(x: tg.Tensor) -> tg.Tensor:
    """sums of 16 blocks of 4,096 each, then the sum of these: no atomics"""
    n, turns, wide = x.numel(), 16, 4096
    programs = tg.cdiv(n, turns * wide)
    parts, out = tg.empty(programs, device=x.device), tg.empty((), device=x.device)
    stretch[(programs,)](x, parts, n, TURNS=turns, BLOCK=wide)
    stretch[(1,)](parts, out, programs, TURNS=tg.cdiv(programs, 512), BLOCK=512)
    return out


if __name__ == "__main__":
    climb.main()
