"""Kernels that are wrong, as people have published them; the simulator must say how. (Right ones: examples/simt.)"""

from tilegrad import simt
from tilegrad.simt import atomicAdd, atomicCAS, atomicExch, blockDim, blockIdx, gridDim, shared, syncthreads, threadIdx

RADIUS = 3


@simt.kernel
def window_sum_of_a_course(A, B, n, THREADS: simt.constexpr):
    """The halo is stored behind THREADS, also where the last block is partial; the barrier is inside a branch."""
    part = shared(A.dtype, THREADS + 2 * RADIUS)
    i = threadIdx.x + blockIdx.x * THREADS
    local_index = threadIdx.x + RADIUS
    if i < n:
        part[local_index] = A[i + RADIUS]
        if threadIdx.x < RADIUS:
            part[local_index - RADIUS] = A[i]
            part[local_index + THREADS] = A[i + RADIUS + THREADS]
        syncthreads()
        total = 0.0
        for k in range(2 * RADIUS + 1):
            total += part[threadIdx.x + k]
        B[i] = total


@simt.kernel
def window_sum_mended_once(A, B, n, THREADS: simt.constexpr):
    """The course's own mend: the halo behind the threads that there are. Wrong where fewer than RADIUS are left."""
    part = shared(A.dtype, THREADS + 2 * RADIUS)
    i = threadIdx.x + blockIdx.x * THREADS
    local_index = threadIdx.x + RADIUS
    number = min(THREADS, n - blockIdx.x * THREADS)
    if i < n:
        part[local_index] = A[i + RADIUS]
        if threadIdx.x < RADIUS:
            part[local_index - RADIUS] = A[i]
            part[local_index + number] = A[i + RADIUS + number]
    syncthreads()
    if i < n:
        total = 0.0
        for k in range(2 * RADIUS + 1):
            total += part[threadIdx.x + k]
        B[i] = total


@simt.kernel
def reduce_by_halves(x, out, n, THREADS: simt.constexpr):
    """Unguarded reads, and a halving that drops elements if THREADS is no power of two."""
    part = shared(x.dtype, THREADS)
    t = threadIdx.x
    part[t] = x[blockIdx.x * THREADS + t]
    syncthreads()
    s = THREADS // 2
    while s > 0:
        if t < s:
            part[t] += part[t + s]
        syncthreads()
        s //= 2
    if t == 0:
        out[blockIdx.x] = part[0]


@simt.kernel
def matmul_guarded_by_or(X, W, Y, m, n, k):
    """`or` for `and`; the result is added to memory that nobody has written."""
    column = blockIdx.x * blockDim.x + threadIdx.x
    row = blockIdx.y * blockDim.y + threadIdx.y
    if row < m or column < n:
        for i in range(k):
            Y[row * n + column] += X[row * k + i] * W[i * n + column]


@simt.kernel
def matmul_with_a_wrong_transpose(X, W, Y, m, n, k):
    """X is stored k x m, and read as X[row + i * k], for X[row + i * m]."""
    column = blockIdx.x * blockDim.x + threadIdx.x
    row = blockIdx.y * blockDim.y + threadIdx.y
    if row < m and column < n:
        total = 0.0
        for i in range(k):
            total += X[row + i * k] * W[i * n + column]
        Y[row * n + column] = total


@simt.kernel
def no_guard(x, y):
    i = blockIdx.x * blockDim.x + threadIdx.x
    y[i] = x[i]


@simt.kernel
def no_barrier(x, y):
    part = shared(x.dtype, 64)
    part[threadIdx.x] = x[threadIdx.x]
    y[threadIdx.x] = part[63 - threadIdx.x]


@simt.kernel
def barrier_for_some(x, y):
    if threadIdx.x < 20:
        syncthreads()
    y[threadIdx.x] = x[threadIdx.x]


@simt.kernel
def one_barrier_for_each_branch(x, y):
    if threadIdx.x % 2 == 0:
        syncthreads()
    else:
        syncthreads()
    y[threadIdx.x] = x[threadIdx.x]


@simt.kernel
def sum_without_atomics(x, out):
    out[0] += x[blockIdx.x * blockDim.x + threadIdx.x]


@simt.kernel
def neighbours_in_place(x, n):
    """Each thread reads what its neighbour writes; at the border of blocks no barrier helps."""
    i = blockIdx.x * blockDim.x + threadIdx.x
    value = x[i + 1] if i + 1 < n else 0.0
    syncthreads()
    if i < n:
        x[i] = value


@simt.kernel
def warps_without_a_barrier(x, out):
    """Written for old GPUs, whose warps ran in lockstep."""
    part = shared(x.dtype, 32)
    t = threadIdx.x
    part[t] = x[t]
    s = 16
    while s > 0:
        if t < s:
            part[t] += part[t + s]
        s //= 2
    if t == 0:
        out[0] = part[0]


@simt.kernel
def tickets(order, counter):
    """The block that comes first gets the first place."""
    if threadIdx.x == 0:
        order[atomicAdd(counter[0], 1)] = blockIdx.x


@simt.kernel
def last_one_wins(x):
    atomicExch(x[0], blockIdx.x)


@simt.kernel
def lock_never_opened(lock):
    while atomicCAS(lock[0], 0, 1) != 0:
        pass


@simt.kernel
def wait_for_a_later_block(flags):
    """Block 0 waits for the last one, which may start only when others have ended."""
    if blockIdx.x == 0:
        while atomicAdd(flags[0], 0) == 0:
            pass
    if blockIdx.x == gridDim.x - 1:
        atomicExch(flags[0], 1)


@simt.kernel
def wait_for_each_other(flags):
    """Each block waits before it tells the other one that it is there."""
    while atomicAdd(flags[1 - blockIdx.x], 0) == 0:
        pass
    atomicExch(flags[blockIdx.x], 1)
