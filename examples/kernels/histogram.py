"""Count each of 64 numbers with atomic additions, which take turns at the same place."""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb

BINS = 64

climb = Climb(
    "histogram",
    inputs=lambda n: (tg.randint(0, BINS, (n,)).to(tg.int32),),
    expected=lambda x: (x[None, :] == tg.arange(BINS, device=x.device)[:, None]).sum(1).to(tg.int32),
    size={"n": 1 << 20},
    large={"n": 1 << 26},
    tiny=[{"n": 1}, {"n": 1000}],
    bytes=lambda n: 4 * n,
    operations=lambda n: 0,
    tolerance=0.0,
)


@tg.kernel
def shared(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@tg.kernel
def own(x, parts, n, BINS: tl.constexpr, TURNS: tl.constexpr):
    """A program counts in a row of its own: nobody waits for anybody. One element after the other."""
    first = tl.program_id(0) * TURNS
    for i in range(first, min(first + TURNS, n)):
        place = parts + tl.program_id(0) * BINS + tl.load(x + i)
        tl.store(place, tl.load(place) + 1)


@tg.kernel
def compared(x, out, n, BINS: tl.constexpr, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    """Each bin is compared with all elements of a tile: more work, and all of it in vectors."""
    counts = tl.zeros([BINS], tl.int32)
    for turn in range(TURNS):
        i = (tl.program_id(0) * TURNS + turn) * BLOCK + tl.arange(0, BLOCK)
        counts += tl.histogram(tl.load(x + i, mask=i < n, other=0), BINS, mask=i < n)
    tl.atomic_add(out + tl.arange(0, BINS), counts)


@tg.kernel
def added(parts, out, programs, BINS: tl.constexpr):
    bins = tl.arange(0, BINS)
    total = tl.zeros([BINS], tl.int32)
    for p in range(programs):
        total += tl.load(parts + p * BINS + bins)
    tl.store(out + bins, total)


def counters(x: tg.Tensor, *shape: int) -> tg.Tensor:
    return tg.zeros(*shape, dtype=tg.int32, device=x.device)


@climb.step
def atomics(x: tg.Tensor) -> tg.Tensor:
    """an atomic addition for each element"""
    out = counters(x, BINS)
    shared[(tg.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


@climb.step
def comparisons(x: tg.Tensor) -> tg.Tensor:
    """`tl.histogram` of tiles, an atomic addition for each bin in the end"""
    out = counters(x, BINS)
    compared[(tg.cdiv(x.numel(), 8 * 1024),)](x, out, x.numel(), BINS=BINS, TURNS=8, BLOCK=1024)
    return out


@climb.step
def counts_of_its_own(x: tg.Tensor) -> tg.Tensor:
    """a row of counters for each program, added up by a second kernel"""
    turns = 1 << 14
    programs = tg.cdiv(x.numel(), turns)
    parts, out = counters(x, programs, BINS), counters(x, BINS)
    own[(programs,)](x, parts, x.numel(), BINS=BINS, TURNS=turns)
    added[(1,)](parts, out, programs, BINS=BINS)
    return out


if __name__ == "__main__":
    climb.main()
