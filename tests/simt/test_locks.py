"""Threads that share data by atomic operations: right kernels raise no alarm, each fault is found."""

import pytest

import tilegrad as tg
from tests.locking import THREADS, drawn
from tests.simt.making import made
from tilegrad import simt
from tilegrad.backend.cuda.nvrtc import compile
from tilegrad.errors import KernelFault

BEGIN = "p = blockIdx.x * blockDim.x + threadIdx.x\nprograms = gridDim.x * blockDim.x\n"


@pytest.mark.parametrize("seed", range(80))
def test_order_by_atomics(seed: int) -> None:
    one = drawn(seed, THREADS)
    k = made(BEGIN + one.body, "lock, data, out")
    grid, block = [(2, 3), (5, 1), (1, 6)][seed // 4 % 3]
    lock, data, out = tg.zeros(16, dtype=tg.int32), tg.zeros(16), tg.zeros(16)
    run = k.simulate(seed=seed, orders=4)[grid, block]
    if one.fault:
        with pytest.raises(KernelFault, match="race: |deadlock"):
            run(lock, data, out)
    else:
        run(lock, data, out)
        assert (data.sum() + out.sum()).item() == one.total(grid * block)


LAST = """
part, last = shared(float32, 64), shared(int32, 1)
t, n = threadIdx.x, blockDim.x
part[t] = x[blockIdx.x * n + t]
syncthreads()
s = n // 2
while s > 0:
    if t < s:
        part[t] += part[t + s]
    syncthreads()
    s //= 2
if t == 0:
    sums[blockIdx.x] = part[0]
    threadfence()
    last[0] = 1 if atomicInc(count[0], gridDim.x - 1) == gridDim.x - 1 else 0
syncthreads()
if last[0] == 1:
    if t < gridDim.x:
        part[t] = sums[t]
    syncthreads()
    if t == 0:
        total = 0.0
        for k in range(gridDim.x):
            total += part[k]
        out[0] = total
"""


@pytest.mark.parametrize("wrong", ["", "threads do not wait", "counted first"])
def test_the_last_block_adds_up(wrong: str) -> None:
    """After a barrier a block knows what one of its threads learned of other blocks by an atomic operation."""
    text = LAST.replace("part, last = ", "part = ").replace(
        "shared(float32, 64), shared(int32, 1)", "shared(float32, 64)"
    )
    text = text.replace("part = shared(float32, 64)", "part = shared(float32, 64)\nlast = shared(int32, 1)")
    text = text.replace("t, n = threadIdx.x, blockDim.x", "t = threadIdx.x\nn = blockDim.x")
    if wrong == "threads do not wait":
        text = text.replace("syncthreads()\nif last[0]", "if last[0]")
    if wrong == "counted first":
        kept = "    sums[blockIdx.x] = part[0]\n"
        text = text.replace(kept, "").replace("syncthreads()\nif last[0]", f"{kept[4:]}syncthreads()\nif last[0]")
    k = made(text.strip(), "x, sums, out, count")
    x, sums, out = tg.arange(512).float(), tg.zeros(8), tg.zeros(1)
    launch = k.simulate(orders=3)[8, 64]
    count = tg.zeros(1, dtype=tg.uint32)
    if wrong:
        with pytest.raises(KernelFault, match="race: |which no thread has written"):
            launch(x, sums, out, count)
    else:
        launch(x, sums, out, count)
        assert out.item() == 512 * 511 / 2
        assert count.item() == 0


@simt.device
def take(lock):
    while simt.atomicCAS(lock[0], 0, 1) != 0:
        pass


@simt.device
def give(lock):
    lock[0] = 0


@simt.kernel
def counted(lock, total):
    take(lock)
    total[0] += 1
    give(lock)


@simt.kernel
def histogram(x, out):
    part = simt.shared(simt.int32, 8)
    if simt.threadIdx.x < 8:
        part[simt.threadIdx.x] = 0
    simt.syncthreads()
    simt.atomicAdd(part[x[simt.threadIdx.x]], 1)
    simt.syncthreads()
    if simt.threadIdx.x < 8:
        out[simt.threadIdx.x] = part[simt.threadIdx.x]


def test_fences_where_atomics_order_other_accesses() -> None:
    """A GPU's atomic operations order no other accesses; kernels that only count by them get no fence."""
    lock, total = tg.zeros(1, dtype=tg.int32), tg.zeros(1, dtype=tg.int32)
    counted[2, 3](lock, total)
    assert total.item() == 6
    text = counted.source()
    assert "ordering((__threadfence(), atomicCAS(&lock[0], 0, 1)))" in text
    assert "__threadfence();\n    lock[0] = 0;" in text
    assert compile(text, "sm_90a")[0]
    histogram[1, 32](tg.randint(0, 8, (32,), dtype=tg.int32), tg.zeros(8, dtype=tg.int32))
    assert "fence" not in histogram.source()
