"""A sum, for any number of elements and of threads: through shared memory, and by shuffles within warps."""

import tilegrad as tg
from tilegrad import simt
from tilegrad.simt import (
    ALL_LANES,
    atomicAdd,
    blockDim,
    blockIdx,
    gridDim,
    shared,
    shfl_down_sync,
    syncthreads,
    threadIdx,
)


@simt.kernel
def sums(x, out, n, THREADS: simt.constexpr):
    """One sum for each block. The second half is added to the first one, rounded up: no element is lost if the number
    of threads is no power of two.
    """
    part = shared(x.dtype, THREADS)
    t = threadIdx.x
    total = x.dtype(0)
    for i in range(blockIdx.x * THREADS + t, n, gridDim.x * THREADS):
        total += x[i]
    part[t] = total
    syncthreads()
    left = THREADS
    while left > 1:
        half = (left + 1) // 2
        if t + half < left:
            part[t] += part[t + half]
        syncthreads()
        left = half
    if t == 0:
        out[blockIdx.x] = part[0]


@simt.kernel
def sum_by_warps(x, out, n):
    """Lanes give each other their sums without shared memory; one lane of each warp adds to the result."""
    assert blockDim.x % 32 == 0, "whole warps"
    total = x.dtype(0)
    for i in range(blockIdx.x * blockDim.x + threadIdx.x, n, gridDim.x * blockDim.x):
        total += x[i]
    offset = 16
    while offset > 0:
        total += shfl_down_sync(ALL_LANES, total, offset)
        offset //= 2
    if threadIdx.x % 32 == 0:
        atomicAdd(out[0], total)


def total(x: tg.Tensor, blocks: int = 8, threads: int = 192) -> tg.Tensor:
    part, out = (tg.empty(n, dtype=x.dtype, device=x.device) for n in (blocks, 1))
    n = x.numel()
    sums[blocks, threads](x, part, n, THREADS=threads)
    sums[1, threads](part, out, blocks, THREADS=threads)
    return out


def mean(x: tg.Tensor) -> float:
    """Sum the elements that exist; threads past the end contribute nothing."""
    return total(x).item() / x.numel()


def main() -> None:
    for n in (192, 200, 320, 100_000):
        x, out = tg.ones(n), tg.zeros(1)
        sum_by_warps[4, 256](x, out, n)
        print(f"{n}: {total(x).item():g} and {out.item():g}, mean {mean(x):g}")


if __name__ == "__main__":
    main()
