"""A histogram: atomics on global memory, and on a histogram of each block's own."""

import numpy as np

import tilegrad as tg
from tilegrad import simt
from tilegrad.simt import atomicAdd, blockDim, blockIdx, gridDim, shared, syncthreads, threadIdx


@simt.kernel
def histogram_global(x, counts, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        atomicAdd(counts[x[i]], 1)


@simt.kernel
def histogram_shared(x, counts, n, BINS: simt.constexpr):
    """Each block counts in shared memory, and adds what it has found at the end."""
    own = shared(counts.dtype, BINS)
    for bin in range(threadIdx.x, BINS, blockDim.x):
        own[bin] = 0
    syncthreads()
    for i in range(blockIdx.x * blockDim.x + threadIdx.x, n, gridDim.x * blockDim.x):
        atomicAdd(own[x[i]], 1)
    syncthreads()
    for bin in range(threadIdx.x, BINS, blockDim.x):
        if own[bin] > 0:
            atomicAdd(counts[bin], own[bin])


def main() -> None:
    n = 10_000
    x = tg.randint(0, 16, (n,), dtype=tg.int32)
    wanted = np.bincount(x.numpy(), minlength=16).tolist()
    counts = tg.zeros(16, dtype=tg.int32)
    histogram_global[tg.cdiv(n, 128), 128](x, counts, n)
    print(f"global: right {counts.tolist() == wanted}, {histogram_global.counters.global_atomics:,} global atomics")
    counts = tg.zeros(16, dtype=tg.int32)
    histogram_shared[8, 128](x, counts, n, BINS=16)
    print(f"shared: right {counts.tolist() == wanted}, {histogram_shared.counters.global_atomics:,} global atomics")


if __name__ == "__main__":
    main()
