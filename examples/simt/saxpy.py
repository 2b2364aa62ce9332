"""a x + y, the first program of NVIDIA's introduction: it prints the largest error."""

import tilegrad as tg
from tilegrad import simt
from tilegrad.simt import blockDim, blockIdx, gridDim, threadIdx


@simt.kernel
def saxpy(n, a, x, y):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        y[i] = a * x[i] + y[i]


@simt.kernel
def saxpy_any_grid(n, a, x, y):
    """The same for any number of blocks: a thread goes on by as many elements as there are threads."""
    for i in range(blockIdx.x * blockDim.x + threadIdx.x, n, blockDim.x * gridDim.x):
        y[i] = a * x[i] + y[i]


def max_error(n: int, device: str = "cpu") -> float:
    x, y = tg.ones(n, device=device), tg.full((n,), 2.0, device=device)
    saxpy[tg.cdiv(n, 256), 256](n, 2.0, x, y)
    return (y - 4.0).abs().max().item()


def main() -> None:
    print(f"Max error: {max_error(1 << 20):f}")


if __name__ == "__main__":
    main()
