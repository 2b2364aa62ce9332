"""The sum of a window around each element: the same input is read seven times, or, through shared memory, once.

`A` has RADIUS zeros before its first element and after its last one: B[0] is the sum of A[0] to A[6].
"""

import numpy as np

import tilegrad as tg
from tilegrad import simt
from tilegrad.simt import blockDim, blockIdx, shared, syncthreads, threadIdx

RADIUS = 3


@simt.kernel
def window_sum_naive(A, B, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        total = 0.0
        for k in range(2 * RADIUS + 1):
            total += A[i + k]
        B[i] = total


@simt.kernel
def window_sum(A, B, n, THREADS: simt.constexpr):
    """Each block fetches its part of A, and RADIUS elements on both sides, once: THREADS + 2 RADIUS loads."""
    part = shared(A.dtype, THREADS + 2 * RADIUS)
    first = blockIdx.x * THREADS
    i = first + threadIdx.x
    for k in range(threadIdx.x, THREADS + 2 * RADIUS, THREADS):
        if first + k < n + 2 * RADIUS:
            part[k] = A[first + k]
    syncthreads()  # all threads come here, those behind the end of B too
    if i < n:
        total = 0.0
        for k in range(2 * RADIUS + 1):
            total += part[threadIdx.x + k]
        B[i] = total


def padded(x: np.ndarray) -> tg.Tensor:
    return tg.tensor(np.pad(x, RADIUS))


def main() -> None:
    n = 1 << 10
    A, B = padded(np.arange(n, dtype=np.float64)), tg.empty(n, dtype=tg.float64)
    window_sum_naive[tg.cdiv(n, 4), 4](A, B, n)
    print(f"naive:  {window_sum_naive.counters.loads['A'] / n:g} loads for each output")
    window_sum[tg.cdiv(n, 4), 4](A, B, n, THREADS=4)
    print(f"shared: {window_sum.counters.loads['A'] / (n // 4):g} loads for each block of 4")


if __name__ == "__main__":
    main()
