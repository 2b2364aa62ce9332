"""CUDA kernels from texts that are tried with a GPU and without one."""

from typing import Any

import tilegrad as tg

SQUARE = """
int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
if (i < out.size()) out[i] = x[i] * x[i];
"""
SIGNATURE = "square(x: float[*s]) -> float[*s]"
GRID_2D = """
__global__ void square(const float *x, float *out, int height, int width) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < height && column < width) out[row * width + column] = x[row * width + column] * x[row * width + column];
}
"""
PRODUCT = """
__device__ T at(const T *x, int row, int column, int rows, int columns, int turned) {
    if (row >= rows || column >= columns) return T(0);
    return turned ? x[column * rows + row] : x[row * columns + column];
}
__global__ void matmul(const T *x, const T *y, T *out, int m, int k, int n, int trans_a, int trans_b) {
    __shared__ T a[16][16], b[16][17];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    T sum = 0;
    for (int start = 0; start < k; start += 16) {
        a[threadIdx.y][threadIdx.x] = at(x, row, start + threadIdx.x, m, k, trans_a);
        b[threadIdx.y][threadIdx.x] = at(y, start + threadIdx.y, column, k, n, trans_b);
        __syncthreads();
        for (int j = 0; j < 16; ++j) sum += a[threadIdx.y][j] * b[j][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) out[row * n + column] = sum;
}
"""


def square_2d() -> Any:
    """Squares, by blocks of 16 rows and 16 columns."""
    return tg.cuda.inline(
        GRID_2D,
        "square(x: float[height, width]) -> float[height, width]",
        block=(16, 16),
        grid=lambda width, height: (tg.cdiv(width, 16), tg.cdiv(height, 16)),
    )


def product_of_the_lab() -> Any:
    """A product of matrices with flags for transposition, bounds guarded, in both types."""
    return tg.cuda.inline(
        PRODUCT,
        "matmul(x: T[p, q], y: T[r, s], m: int, k: int, n: int, trans_a: int, trans_b: int) -> T[m, n]",
        block=(16, 16),
        grid=lambda m, n: (tg.cdiv(n, 16), tg.cdiv(m, 16)),
    )
