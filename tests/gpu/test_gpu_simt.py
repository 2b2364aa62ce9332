"""SIMT kernels on a GPU: results equal to the simulator's, limits, occupancy, and the gain of each optimisation."""

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from examples.simt import grey, histogram, matmul, reduction, saxpy, transpose, vector_add, window_sum
from tests.checklist import checklist
from tilegrad import simt
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.errors import LaunchError
from tilegrad.simt.gpu_launch import compile_for

RNG = np.random.default_rng(0)


def there(array: Any, dtype: Any = np.float32) -> tg.Tensor:
    return tg.tensor(np.asarray(array, dtype)).to("cuda")


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@checklist(162)
def test_small_kernels(gpu: CudaDevice) -> None:
    for n in (0, 1, 255, 1000):
        x = RNG.standard_normal(n).astype(np.float32)
        assert np.array_equal(vector_add.vector_add(x, x, "cuda"), x + x)
    assert saxpy.max_error(1 << 20, "cuda") == 0
    picture = drawn(3, 37, 75)
    wanted = np.float32(0.21) * picture[0] + np.float32(0.72) * picture[1] + np.float32(0.07) * picture[2]
    assert np.array_equal(grey.to_grey(there(picture)).cpu().numpy(), wanted)
    for n, threads in ((192, 64), (320, 192), (200, 100), (100_000, 1000)):
        assert reduction.total(there(np.ones(n)), 8, threads).cpu().numpy() == n
    x = RNG.integers(0, 16, 10_000)
    counted = np.bincount(x, minlength=16)
    for launch in (
        lambda x, counts: histogram.histogram_global[79, 128](x, counts, 10_000),
        lambda x, counts: histogram.histogram_shared[8, 128](x, counts, 10_000, BINS=16),
    ):
        counts = there(np.zeros(16), np.int32)
        launch(there(x, np.int32), counts)
        assert np.array_equal(counts.cpu().numpy(), counted)


@checklist(163, 166)
def test_window_sums(gpu: CudaDevice) -> None:
    for n in (*range(1, 21), 1000, 1024, 1025, 2**20 + 1):
        A = np.pad(np.arange(n, dtype=np.float64), 3)
        wanted = sum(A[k : k + n] for k in range(7))
        for threads in (4, 32, 512):
            B = tg.empty(n, dtype=tg.float64, device="cuda")
            window_sum.window_sum[tg.cdiv(n, threads), threads](there(A, np.float64), B, n, THREADS=threads)
            assert np.array_equal(B.cpu().numpy(), wanted), (n, threads)


def test_transposes(gpu: CudaDevice) -> None:
    x = drawn(100, 77)
    for pad in (0, 1):
        out = tg.empty(77, 100, device="cuda")
        transpose.transpose_tiled[transpose.grid(100, 77), (32, 8)](there(x), out, 100, 77, PAD=pad)
        assert np.array_equal(out.cpu().numpy(), x.T)


@checklist(15, 103, 126)
@pytest.mark.parametrize("step", matmul.STEPS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products(gpu: CudaDevice, step: str, dtype: Any) -> None:
    for n in (1, 31, 32, 33, 1000):
        for TA in (False, True):
            for TB in (False, True):
                m, k = n, n + 2
                A, B = (
                    RNG.standard_normal(s).astype(dtype) for s in ((k, m) if TA else (m, k), (n, k) if TB else (k, n))
                )
                wanted = (A.T if TA else A).astype(np.float64) @ (B.T if TB else B).astype(np.float64)
                sides: dict[str, int] = {"X": 16, "Y": 8, "S": 8, "R": 4}
                C = matmul.product(step, tg.tensor(A).to("cuda"), tg.tensor(B).to("cuda"), TA, TB, **sides)
                scale = np.abs(A).max() * np.abs(B).max() * k**0.5
                np.testing.assert_allclose(C.cpu().numpy(), wanted, rtol=1e-5, atol=1e-5 * scale)


def milliseconds(run: Callable[[], Any], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        tg.cuda.synchronize()
        start = time.perf_counter()
        run()
        tg.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)  # others may use the GPU too


@checklist(126)
def test_shared_memory(gpu: CudaDevice, record_property: Callable[[str, object], None]) -> None:
    """Equal order of sums, from strips that a block reads once. (Times are only recorded; tests/simt counts reads.)"""
    A, B = there(drawn(5120, 256)), there(drawn(256, 5120))
    run = {step: lambda step=step: matmul.product(step, A, B, X=16, Y=16, S=16) for step in ("naive", "tiled")}
    assert np.array_equal(run["naive"]().cpu().numpy(), run["tiled"]().cpu().numpy())
    sides = {"TA": False, "TB": False, "X": 16, "Y": 16}
    assert matmul.naive.compiled(A, A, A, 8, 8, 8, **sides).static_shared == 0
    assert matmul.tiled.compiled(A, A, A, 8, 8, 8, **sides, S=16).static_shared == 2 * 16 * 16 * 4
    record_property("simt matmul 5120x256x5120, ms", {step: milliseconds(each) for step, each in run.items()})


@checklist(167, 171)
def test_registers(gpu: CudaDevice, record_property: Callable[[str, object], None]) -> None:
    """All accumulators of a thread are registers."""
    n = 4096
    A, B = there(drawn(n, n)), there(drawn(n, n))
    wanted = A.cpu().numpy()[:8].astype(np.float64) @ B.cpu().numpy().astype(np.float64)
    found: dict[str, float] = {}
    for step in matmul.STEPS:
        sides = {"X": 16, "Y": 16, "S": 8, "R": 8} if step == "in_registers" else {"X": 16, "Y": 16, "S": 16}
        C = matmul.product(step, A, B, **sides)
        np.testing.assert_allclose(C.cpu().numpy()[:8], wanted, atol=1e-3)
        found[step] = milliseconds(lambda step=step, sides=sides: matmul.product(step, A, B, **sides), 5)
    record_property(f"simt matmul {n}, ms", found)
    kernel = matmul.in_registers.compiled(A, A, A, 8, 8, 8, TA=False, TB=False, X=16, Y=16, S=8, R=8)
    made = compile_for(kernel, gpu.properties.architecture)
    assert made.spills == 0
    assert made.registers > 8 * 8 + 8 + 8
    assert simt.occupancy(None, 256, made.registers, kernel.static_shared).blocks >= 1


@checklist(160)
def test_the_table_says_what_the_driver_says(gpu: CudaDevice) -> None:
    found = simt.gpu()
    assert found.multiprocessors == gpu.properties.multi_processor_count
    if "H200" in found.name:
        listed = simt.GPUS["H200"]
        same = [f for f in simt.Gpu._fields if f not in ("name", "bandwidth", "l2")]
        assert [getattr(found, f) for f in same] == [getattr(listed, f) for f in same]
        assert abs(found.bandwidth / listed.bandwidth - 1) < 0.05
        assert found.l2 == listed.l2


@checklist(122)
def test_occupancy_matches_the_driver(gpu: CudaDevice) -> None:
    """Five kernels at several block sizes, compared with `cuOccupancyMaxActiveBlocksPerMultiprocessor`."""
    x, y = there(np.ones(64)), there(np.zeros(64), np.int32)
    sides = {"TA": False, "TB": False, "X": 16, "Y": 16, "S": 8}
    kernels = [
        saxpy.saxpy.compiled(64, 2.0, x, x),
        reduction.sums.compiled(x, x, 64, THREADS=1024),
        transpose.transpose_tiled.compiled(x, x, 8, 8, PAD=1),
        histogram.histogram_shared.compiled(y, y, 64, BINS=4096),
        matmul.in_registers.compiled(x, x, x, 8, 8, 8, **sides, R=8),
        matmul.tiled_dynamic.compiled(x, x, x, 8, 8, 8, 8),
    ]
    library = gpu.driver.library  # type: ignore[attr-defined]
    for kernel in kernels:
        made = compile_for(kernel, gpu.properties.architecture)
        with gpu.entered():
            function = gpu.driver.function(gpu.driver.load(made.image), kernel.routine.text)
            for threads in (32, 96, 256, 512, 640):
                for dynamic in (0, 1000, 30_000):
                    blocks = ctypes.c_int()
                    code = library.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                        ctypes.byref(blocks), ctypes.c_void_p(function), threads, ctypes.c_size_t(dynamic)
                    )
                    assert code == 0
                    shared = kernel.static_shared + dynamic
                    ours = simt.occupancy(None, threads, made.registers, shared)
                    assert ours.blocks == blocks.value, (kernel.routine.name, threads, dynamic, made.registers, ours)


def test_invalid_launches(gpu: CudaDevice) -> None:
    x = there(np.ones(64))
    for grid, block, shared in ((1, 1025, 0), (1, (1, 1, 65), 0), (0, 32, 0), (1, 0, 0), (1, 32, 300_000)):
        with pytest.raises(LaunchError):
            vector_add.add[grid, block, shared](x, x, x, 64)
