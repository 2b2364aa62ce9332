"""Small right kernels."""

from tilegrad import simt
from tilegrad.simt import (
    ALL_LANES,
    atomicCAS,
    atomicExch,
    ballot_sync,
    blockDim,
    blockIdx,
    popc,
    shfl_sync,
    shfl_up_sync,
    shfl_xor_sync,
    threadIdx,
)


@simt.kernel
def counted_by_a_lock(lock, total):
    """One thread at a time."""
    while atomicCAS(lock[0], 0, 1) != 0:
        pass
    total[0] += 1
    atomicExch(lock[0], 0)


@simt.kernel
def odd_and_even(out):
    i = threadIdx.x
    if i % 2 == 0:
        out[i] = i
    else:
        out[i] = -i


@simt.kernel
def strided(x, out, stride):
    i = blockIdx.x * blockDim.x + threadIdx.x
    out[i] = x[i * stride]


@simt.kernel
def rotated(x, out):
    t = threadIdx.x
    out[t] = shfl_sync(ALL_LANES, x[t], t + 1)


@simt.kernel
def scanned(x, out):
    """Sums of all lanes before, and of the lane itself."""
    t = threadIdx.x
    total = x[t]
    step = 1
    while step < 32:
        before = shfl_up_sync(ALL_LANES, total, step)
        if t % 32 >= step:
            total += before
        step *= 2
    out[t] = total


@simt.kernel
def mirrored(x, out):
    out[threadIdx.x] = shfl_xor_sync(ALL_LANES, x[threadIdx.x], 7, width=8)


@simt.kernel
def counted(x, out):
    out[threadIdx.x] = popc(ballot_sync(ALL_LANES, x[threadIdx.x] % 2 == 1))


@simt.kernel
def divided(x, y, out):
    t = threadIdx.x
    out[t] = x[t] // y[t]
    out[t + 4] = x[t] % y[t]


@simt.kernel
def averaged(x, out):
    t = threadIdx.x
    out[t] = (x[t] + x[0]) // 2


@simt.kernel
def halves_twice(x, out, n):
    """Twice the sum of two neighbours, by way of shared memory of 16 bits."""
    part = simt.shared(simt.float16, 64)
    own = simt.local(simt.bfloat16, 2)
    i = simt.blockIdx.x * simt.blockDim.x + simt.threadIdx.x
    part[simt.threadIdx.x] = x[i] if i < n else 0.0
    simt.syncthreads()
    own[0] = part[simt.threadIdx.x]
    own[1] = part[simt.threadIdx.x ^ 1]
    if i < n:
        out[i] = own[0]
        out[i] += own[1] + simt.float16(1.0009)
        out[i] *= 2
