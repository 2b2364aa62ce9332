"""Kernels that launch kernels: rows of very different lengths, each summed by as many blocks as it needs."""

import tilegrad as tg
from tilegrad import simt
from tilegrad.simt import atomicAdd, blockDim, blockIdx, threadIdx

THREADS = 64


@simt.kernel
def row_sum(values, out, row, start, stop):
    i = start + blockIdx.x * blockDim.x + threadIdx.x
    if i < stop:
        atomicAdd(out[row], values[i])


@simt.kernel
def row_sums(values, starts, out, rows):
    """A thread for each row launches the blocks for its elements; an empty row needs none."""
    row = blockIdx.x * blockDim.x + threadIdx.x
    if row < rows:
        out[row] = 0
        length = starts[row + 1] - starts[row]
        if length > 0:
            row_sum[(length + THREADS - 1) // THREADS, THREADS](values, out, row, starts[row], starts[row + 1])


def main() -> None:
    lengths = [3, 0, 1000, 70]
    starts = tg.tensor([0, *[sum(lengths[: n + 1]) for n in range(4)]], dtype=tg.int32)
    out = tg.empty(4)
    row_sums[1, 32](tg.ones(sum(lengths)), starts, out, 4)
    print(out.tolist(), f"by {row_sums.counters.launches} launches")


if __name__ == "__main__":
    main()
