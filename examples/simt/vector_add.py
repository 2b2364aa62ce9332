"""The first kernel: a thread for each element, and the code of the host around it."""

import numpy as np

import tilegrad as tg
from tilegrad import simt
from tilegrad.simt import blockDim, blockIdx, threadIdx

THREADS = 256


@simt.kernel
def add(x, y, out, n):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:  # the last block has more threads than there are elements left
        out[i] = x[i] + y[i]


def vector_add(x: np.ndarray, y: np.ndarray, device: str = "cpu") -> np.ndarray:
    """Run the host's part: allocate device memory, copy there, launch, copy back."""
    n = len(x)
    device_x, device_y = tg.tensor(x, device=device), tg.tensor(y, device=device)
    out = tg.empty(n, dtype=device_x.dtype, device=device)
    if n:  # a grid of no blocks cannot be launched
        add[tg.cdiv(n, THREADS), THREADS](device_x, device_y, out, n)
    return out.cpu().numpy()


def main() -> None:
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    print("right:", np.array_equal(vector_add(x, y), x + y))
    print(add.source("cuda"))
    print(add.report())


if __name__ == "__main__":
    main()
