"""The memory of a GPU: size classes, statistics, copies, streams that share it, and out-of-memory errors."""

import gc
import threading

import numpy as np
import pytest

import tilegrad as tg
from tests.backend.cuda.conftest import Maker
from tests.checklist import checklist
from tilegrad import cuda
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.cuda.memory import class_bytes
from tilegrad.backend.cuda.staging import STAGING_BYTES, PinnedBuffer
from tilegrad.errors import OutOfMemoryError, ShapeError
from tilegrad.ir.dtype import float32, uint8


def test_size_classes_waste_at_most_an_eighth() -> None:
    for bytes in (1, 511, 513, 4097, 70_000, 3 << 20, (1 << 25) + 1, (1 << 33) + 1):
        size = class_bytes(bytes)
        assert bytes <= size <= max(512, bytes * 9 // 8 + 512) or size - bytes < 1 << 21
        assert size % 512 == 0
        assert class_bytes(size) == size


def test_freed_blocks_are_reused(gpu: CudaDevice) -> None:
    first = gpu.allocate(1000)
    address = first.address
    del first
    second = gpu.allocate(900)
    assert second.address == address
    assert gpu.driver.counts["allocate"] == 1  # type: ignore[attr-defined]
    statistics = gpu.statistics
    assert (statistics.live, statistics.held, statistics.allocations) == (1024, 1024, 1)


def test_statistics_and_trimming(gpu: CudaDevice) -> None:
    buffers = [gpu.allocate(1 << 20) for _ in range(4)]
    assert gpu.statistics.live == gpu.statistics.peak == 4 << 20
    del buffers[1:]
    assert gpu.statistics[:3] == (1 << 20, 4 << 20, 4 << 20)
    gpu.trim()
    assert gpu.statistics[:3] == (1 << 20, 4 << 20, 1 << 20)
    cuda.reset_peak_memory_stats(gpu)
    assert cuda.max_memory_allocated(gpu) == 1 << 20
    assert cuda.memory_reserved(gpu.name) == 1 << 20
    assert cuda.mem_get_info(gpu) == ((1 << 30) - (1 << 20), 1 << 30)


@checklist(197)
@pytest.mark.parametrize("count", [0, 1, 1000, STAGING_BYTES // 4 + 3, 3 * STAGING_BYTES // 4 + 1])
def test_copies_of_all_sizes(gpu: CudaDevice, count: int) -> None:
    array = np.arange(count, dtype=np.float32)
    buffer = gpu.from_host(array)
    array[:] = -1  # the copy was taken
    found = gpu.to_host(gpu.copy(buffer), float32, (count,))
    np.testing.assert_array_equal(found, np.arange(count, dtype=np.float32))


@checklist(197)
def test_copies_into_existing_tensors(make_gpus: Maker) -> None:
    """Copies from and to each device; a wrong size is an error and changes nothing."""
    places = ["cpu", *(gpu.name for gpu in make_gpus(2))]
    for here in places:
        for there in places:
            x = tg.zeros(3, 5, device=here)
            x.copy_(tg.arange(15).float().reshape(3, 5).to(there), non_blocking=True)
            assert (x.device.name, x.cpu().sum().item()) == (here, 105)
            with pytest.raises(ShapeError):
                x.copy_(tg.ones(4, 5, device=there))
            assert x.cpu().sum().item() == 105


@checklist(197)
def test_between_devices(make_gpus: Maker) -> None:
    one, other = make_gpus(2)
    x = tg.arange(1000).to(one.name)
    y = (x * 2).to(other.name)
    z = (y + 1).to(one.name) + x
    assert z.cpu().tolist() == [3 * n + 1 for n in range(1000)]
    assert one.driver.counts["copy_between"] == 2  # type: ignore[attr-defined]


@checklist(197)
def test_pinned_memory(gpu: CudaDevice) -> None:
    x = tg.rand(300, 1000)
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert not x.is_pinned()
    assert isinstance(pinned.value.buffer, PinnedBuffer)
    moved = pinned.to(gpu.name, non_blocking=True)
    address = pinned.value.buffer.address
    del pinned
    gc.collect()
    again = x.pin_memory()  # the first block is still being copied
    assert again.value.buffer.address != address
    assert (moved.cpu() == x).all()
    assert x.pin_memory().value.buffer.address == address


def test_pinned_memory_is_for_all_devices(make_gpus: Maker) -> None:
    one, other = make_gpus(2)
    pinned = tg.arange(10).pin_memory()
    assert (pinned.to(other.name) + pinned.to(other.name)).cpu().tolist() == list(range(0, 20, 2))
    assert pinned.to(one.name).cpu().tolist() == list(range(10))
    address = pinned.value.buffer.address
    del pinned
    one.synchronize()
    other.synchronize()
    assert tg.arange(10).pin_memory().value.buffer.address == address


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_pin_their_batches(gpu: CudaDevice, workers: int) -> None:
    data = tg.data.TensorDataset(np.arange(40.0), np.arange(40))
    for pin in (True, False):
        loader = tg.data.DataLoader(data, batch_size=8, pin_memory=pin, num_workers=workers)
        batches = list(loader)
        assert [x.is_pinned() for batch in batches for x in batch] == [pin] * 10
        moved = [x.to(gpu.name, non_blocking=True) for x, _ in batches]
        assert tg.cat(moved).cpu().tolist() == list(range(40))


def test_host_scalars_are_cached(gpu: CudaDevice) -> None:
    x = tg.ones(4).to(gpu.name)
    rate = tg.tensor(0.5)
    (x * rate).realize()
    before = gpu.driver.counts["to_device"]  # type: ignore[attr-defined]
    for _ in range(3):
        (x * rate).realize()
    (x * tg.tensor(0.5)).realize()
    assert gpu.driver.counts["to_device"] == before  # type: ignore[attr-defined]
    assert (x * tg.tensor(0.25)).cpu().tolist() == [0.25] * 4
    assert gpu.driver.counts["await_event"] == 1  # type: ignore[attr-defined]


def test_a_moved_number_is_its_own(gpu: CudaDevice) -> None:
    rate, x = tg.tensor(0.5), tg.ones(2).to(gpu.name)
    assert (x * rate).cpu().tolist() == [0.5, 0.5]
    moved = rate.to(gpu.name)
    moved += 1
    moved.realize()
    assert (x * rate).cpu().tolist() == [0.5, 0.5]
    assert moved.item() == 1.5


def test_out_of_memory_message(make_gpus: Maker) -> None:
    (gpu,) = make_gpus(capacity=16 << 20)
    kept = tg.zeros(12, 1 << 18).to(gpu.name)
    free = tg.zeros(2, 1 << 18).to(gpu.name)
    del free
    other = (kept[:3] + 1).realize()  # fits after what is kept free went back
    with pytest.raises(OutOfMemoryError, match="smaller batch") as caught:
        (kept + 1).realize()
    text = str(caught.value)
    assert "Simulated) has no 12.00 MiB left: 1.00 MiB of 16.00 MiB are free, 15.00 MiB" in text
    assert "test_cuda_memory.py" in text
    assert "float32[12, 262144]" in text
    del other
    assert kept.sum().item() == 0


def test_threads_share_a_device(gpu: CudaDevice) -> None:
    x = tg.arange(100, dtype=float32).to(gpu.name)
    found: list[object] = []

    def work(n: int) -> None:
        for k in range(5):
            y = x * n + k
            found.append(y.cpu().tolist() == [m * n + k for m in range(100)])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 20


def test_all_memory_buffer(gpu: CudaDevice) -> None:
    """A buffer has the requested size, whatever block it is in."""
    buffer = gpu.allocate(10)
    assert buffer.bytes == 10
    assert gpu.to_host(buffer, uint8, (10,)).shape == (10,)
