"""Products of matrices, in five steps. `A` is M x K and `B` is K x N, or their transposes (TA, TB); sizes are any."""

import tilegrad as tg
from tilegrad import simt
from tilegrad.simt import blockIdx, constexpr, dynamic_shared, local, shared, syncthreads, threadIdx


@simt.device
def at(X, row, column, rows, columns, T: constexpr):
    """An element of X, which is stored transposed if T; 0 outside."""
    if row < rows and column < columns:
        return X[column * rows + row] if T else X[row * columns + column]
    return 0.0


@simt.kernel(fma=True)
def naive(A, B, C, M, N, K, TA: constexpr, TB: constexpr, X: constexpr, Y: constexpr):
    """A thread for each element of C, in blocks of X x Y: 2 K loads each."""
    column = blockIdx.x * X + threadIdx.x
    row = blockIdx.y * Y + threadIdx.y
    if row < M and column < N:
        total = 0.0
        for k in range(K):
            total += at(A, row, k, M, K, TA) * at(B, k, column, K, N, TB)
        C[row * N + column] = total


@simt.kernel(fma=True)
def tiled(A, B, C, M, N, K, TA: constexpr, TB: constexpr, X: constexpr, Y: constexpr, S: constexpr):
    """A block computes Y x X elements from strips of S columns of A and S rows of B in shared memory."""
    left = shared(A.dtype, (Y, S))
    right = shared(B.dtype, (S, X))
    t = threadIdx.y * X + threadIdx.x
    column = blockIdx.x * X + threadIdx.x
    row = blockIdx.y * Y + threadIdx.y
    total = 0.0
    for start in range(0, K, S):
        for i in range(t, Y * S, X * Y):
            left[i // S, i % S] = at(A, blockIdx.y * Y + i // S, start + i % S, M, K, TA)
        for i in range(t, S * X, X * Y):
            right[i // X, i % X] = at(B, start + i // X, blockIdx.x * X + i % X, K, N, TB)
        syncthreads()  # the strips are complete
        for k in range(S):
            total += left[threadIdx.y, k] * right[k, threadIdx.x]
        syncthreads()  # nobody reads them any more
    if row < M and column < N:
        C[row * N + column] = total


@simt.kernel(fma=True)
def tiled_dynamic(A, B, C, M, N, K, width):
    """Square tiles whose width the launch says, with as much shared memory: 2 width^2 elements."""
    strips = dynamic_shared(A.dtype)
    x, y = threadIdx.x, threadIdx.y
    column = blockIdx.x * width + x
    row = blockIdx.y * width + y
    total = 0.0
    for start in range(0, K, width):
        strips[y * width + x] = at(A, row, start + x, M, K, False)
        strips[(width + y) * width + x] = at(B, start + y, column, K, N, False)
        syncthreads()
        for k in range(width):
            total += strips[y * width + k] * strips[(width + k) * width + x]
        syncthreads()
    if row < M and column < N:
        C[row * N + column] = total


@simt.kernel(fma=True)
def double_buffered(A, B, C, M, N, K, TA: constexpr, TB: constexpr, X: constexpr, Y: constexpr, S: constexpr):
    """Two strips of each: while one is used the next one is fetched, and one barrier a strip is enough."""
    left = shared(A.dtype, (2, Y, S))
    right = shared(B.dtype, (2, S, X))
    t = threadIdx.y * X + threadIdx.x
    total = 0.0
    turn = 0
    for start in range(0, K + S, S):
        if start < K:
            for i in range(t, Y * S, X * Y):
                left[turn, i // S, i % S] = at(A, blockIdx.y * Y + i // S, start + i % S, M, K, TA)
            for i in range(t, S * X, X * Y):
                right[turn, i // X, i % X] = at(B, start + i // X, blockIdx.x * X + i % X, K, N, TB)
        if start > 0:
            for k in range(S):
                total += left[1 - turn, threadIdx.y, k] * right[1 - turn, k, threadIdx.x]
        turn = 1 - turn
        syncthreads()
    column = blockIdx.x * X + threadIdx.x
    row = blockIdx.y * Y + threadIdx.y
    if row < M and column < N:
        C[row * N + column] = total


@simt.kernel(fma=True)
def in_registers(  # noqa: C901 - a kernel is one function
    A, B, C, M, N, K, TA: constexpr, TB: constexpr, X: constexpr, Y: constexpr, S: constexpr, R: constexpr
):
    """X x Y threads compute R X x R Y elements, R x R each in registers: 2 R loads from shared memory serve R^2
    products. The next strips are on their way, in registers, while these are multiplied. That of A is kept transposed,
    in rows of 4 more, so that eight threads that store a column of it meet eight banks.
    """
    left = shared(A.dtype, (2, S, R * Y + 4))
    right = shared(B.dtype, (2, S, R * X))
    next_a = local(A.dtype, R * S // X)
    next_b = local(B.dtype, R * S // Y)
    totals = local(C.dtype, (R, R))
    a = local(A.dtype, R)
    b = local(B.dtype, R)
    t = threadIdx.y * X + threadIdx.x
    first_row, first_column = blockIdx.y * R * Y, blockIdx.x * R * X
    for i in range(R):
        for j in range(R):
            totals[i, j] = 0.0
    turn = 0
    for start in range(0, K + S, S):
        for e in range(R * S // X):
            place = t + e * X * Y
            next_a[e] = at(A, first_row + place // S, start + place % S, M, K, TA)
        for e in range(R * S // Y):
            place = t + e * X * Y
            next_b[e] = at(B, start + place // (R * X), first_column + place % (R * X), K, N, TB)
        if start > 0:
            for k in range(S):
                for i in range(R):  # four neighbours, then four of the next group: one access of 16 bytes each
                    a[i] = left[1 - turn, k, i // 4 * 4 * Y + threadIdx.y * 4 + i % 4]
                    b[i] = right[1 - turn, k, i // 4 * 4 * X + threadIdx.x * 4 + i % 4]
                for i in range(R):
                    for j in range(R):
                        totals[i, j] += a[i] * b[j]
        for e in range(R * S // X):
            place = t + e * X * Y
            left[turn, place % S, place // S] = next_a[e]
        for e in range(R * S // Y):
            place = t + e * X * Y
            right[turn, place // (R * X), place % (R * X)] = next_b[e]
        turn = 1 - turn
        syncthreads()
    for i in range(R):
        for j in range(R):
            row = first_row + i // 4 * 4 * Y + threadIdx.y * 4 + i % 4
            column = first_column + j // 4 * 4 * X + threadIdx.x * 4 + j % 4
            if row < M and column < N:
                C[row * N + column] = totals[i, j]


STEPS = {"naive": (naive, ()), "tiled": (tiled, ("S",)), "double_buffered": (double_buffered, ("S",)),
         "in_registers": (in_registers, ("S", "R"))}  # fmt: skip


def product(
    step: str,
    A: tg.Tensor,
    B: tg.Tensor,
    TA: bool = False,
    TB: bool = False,
    X: int = 16,
    Y: int = 16,
    S: int = 16,
    R: int = 1,
) -> tg.Tensor:
    """A B by one of the steps."""
    kernel, needed = STEPS[step]
    (K, M) = A.shape if TA else reversed(A.shape)
    N = B.shape[0] if TB else B.shape[1]
    r = R if "R" in needed else 1
    assert r == 1 or (r % 4 == 0 and r * S % X == 0 and r * S % Y == 0), "strips that the threads share equally"
    C = tg.empty(M, N, dtype=A.dtype, device=A.device)
    more = {n: x for n, x in (("S", S), ("R", R)) if n in needed}
    grid = (tg.cdiv(N, X * r), tg.cdiv(M, Y * r))
    kernel[grid, (X, Y)](A, B, C, M, N, K, TA=TA, TB=TB, X=X, Y=Y, **more)
    return C


def main() -> None:
    A, B = tg.randn(64, 96), tg.randn(96, 64)
    for step in STEPS:
        C = product(step, A, B, R=4, X=8, Y=8, S=8)
        kernel = STEPS[step][0]
        print(f"{step:16} right: {tg.allclose(C, A @ B, atol=1e-4)}, global loads {kernel.counters.global_loads:,}")


if __name__ == "__main__":
    main()
