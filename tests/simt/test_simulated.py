"""Kernels in the simulator: right results in lockstep and in random orders, and counts that can be checked by hand."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from examples.simt import grey, histogram, launches, matmul, reduction, saxpy, transpose, vector_add, window_sum
from tests.checklist import checklist
from tests.simt import small
from tilegrad import simt

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("example", [grey, histogram, launches, matmul, reduction, transpose, vector_add, window_sum])
def test_examples_run(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each says that it is right, or prints what was counted."""
    example.main()
    printed = capsys.readouterr().out
    assert printed
    assert "False" not in printed


def windows(A: np.ndarray, n: int) -> Any:
    return sum(A[k : k + n] for k in range(7))


@checklist(162)
@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 1000])
def test_vector_add(n: int) -> None:
    x = RNG.standard_normal(n).astype(np.float32)
    assert np.array_equal(vector_add.vector_add(x, x), x + x)


@checklist(21)
def test_saxpy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saxpy, "max_error", lambda n, error=saxpy.max_error: error(min(n, 1024)))
    saxpy.main()
    assert capsys.readouterr().out == "Max error: 0.000000\n"
    assert saxpy.max_error(1000) == 0
    x, y = tg.tensor(np.ones(1000, np.float32)), tg.tensor(np.ones(1000, np.float32))
    saxpy.saxpy_any_grid.simulate()[3, 64](1000, 2.0, x, y)
    assert (y.numpy() == 3).all()


@checklist(163, 164)
def test_naive_window_sum_is_exact() -> None:
    """A is padded: B[0] is the sum of A[0] to A[6]."""
    n = 2**20
    A = np.pad(np.arange(n, dtype=np.float64), 3)
    B = tg.empty(n, dtype=tg.float64)
    window_sum.window_sum_naive[tg.cdiv(n, 512), 512](tg.tensor(A), B, n)
    assert B[0].item() == A[:7].sum() == 0 + 0 + 0 + 0 + 1 + 2 + 3
    assert np.array_equal(B.numpy(), windows(A, n))
    assert window_sum.window_sum_naive.counters.loads == {"A": 7 * n}


@pytest.mark.defect(2)
@checklist(165)
def test_loads_of_the_window_sum() -> None:
    """7 for each output; through shared memory 4 + 2 * 3 = 10 for each block of 4 (a note has 9)."""
    n = 1024
    A, B = tg.tensor(np.pad(np.arange(n, dtype=np.float32), 3)), tg.empty(n)
    window_sum.window_sum_naive[n // 4, 4](A, B, n)
    assert window_sum.window_sum_naive.counters.global_loads == 7 * n
    window_sum.window_sum[n // 4, 4](A, B, n, THREADS=4)
    found = window_sum.window_sum.counters
    assert found.global_loads == 10 * found.blocks
    assert found.shared_stores == 10 * found.blocks
    assert found.shared_loads == 7 * n
    assert found.global_stores == n
    assert "load A, 2,560 by" in str(window_sum.window_sum.report())


@pytest.mark.defect(1)
@checklist(166)
@pytest.mark.parametrize("threads", [4, 32, 512])
def test_window_sum_is_right_for_every_n(threads: int) -> None:
    sizes = [*range(1, 21), 1000, 1024, 1025] + [2**20 + 1] * (threads == 512)
    for n in sizes:
        A = np.pad(np.arange(n, dtype=np.float64), 3)
        B = tg.empty(n, dtype=tg.float64)
        window_sum.window_sum[tg.cdiv(n, threads), threads](tg.tensor(A), B, n, THREADS=threads)
        assert np.array_equal(B.numpy(), windows(A, n)), n


@checklist(121)
def test_random_orders_agree_with_lockstep() -> None:
    """At least 20 orders each; a difference, or a race, would raise."""
    n = 41
    x = tg.tensor(RNG.standard_normal(n).astype(np.float32))
    vector_add.add.simulate(seed=1)[3, 16](x, x, tg.empty(n), n)
    A = tg.tensor(np.pad(x.numpy(), 3))
    window_sum.window_sum.simulate(seed=2)[11, 4](A, tg.empty(n), n, THREADS=4)
    reduction.sums.simulate(seed=3)[2, 24](x, tg.empty(2), n, THREADS=24)
    reduction.sum_by_warps.simulate(seed=4)[1, 64](x, tg.zeros(1), n)
    counts, values = tg.zeros(4, dtype=tg.int32), tg.tensor(RNG.integers(0, 4, n).astype(np.int32))
    histogram.histogram_shared.simulate(seed=5)[3, 32](values, counts, n, BINS=4)
    assert counts.numpy().tolist() == np.bincount(values.numpy(), minlength=4).tolist()
    small.counted_by_a_lock.simulate(seed=6)[3, 5](tg.zeros(1, dtype=tg.int32), tg.zeros(1, dtype=tg.int32))


@checklist(119)
@pytest.mark.parametrize(("height", "width"), [(16, 16), (17, 31), (1, 50), (33, 5)])
def test_pictures_of_any_size(height: int, width: int) -> None:
    picture = RNG.random((3, height, width)).astype(np.float32)
    wanted = np.float32(0.21) * picture[0] + np.float32(0.72) * picture[1] + np.float32(0.07) * picture[2]
    assert np.array_equal(grey.to_grey(tg.tensor(picture)).numpy(), wanted)


@checklist(15, 103, 126, 171)
@pytest.mark.parametrize("step", matmul.STEPS)
@pytest.mark.parametrize(("TA", "TB"), [(False, False), (False, True), (True, False), (True, True)])
def test_products(step: str, TA: bool, TB: bool) -> None:
    sizes = [(1, 1, 1), (31, 33, 32), (40, 21, 19)] if step != "in_registers" else [(1, 1, 1), (21, 17, 9)]
    for m, n, k in sizes:
        for dtype in (np.float32, np.float64):
            A, B = (RNG.standard_normal(s).astype(dtype) for s in ((k, m) if TA else (m, k), (n, k) if TB else (k, n)))
            wanted = (A.T if TA else A).astype(np.float64) @ (B.T if TB else B).astype(np.float64)
            sides = {"X": 4, "Y": 4, "S": 4, "R": 4} if step == "in_registers" else {"X": 8, "Y": 4, "S": 6}
            C = matmul.product(step, tg.tensor(A), tg.tensor(B), TA, TB, **sides)
            scale = np.abs(A).max() * np.abs(B).max() * k**0.5
            np.testing.assert_allclose(C.numpy(), wanted, rtol=1e-5, atol=1e-5 * scale)


@checklist(126, 127)
@pytest.mark.parametrize("width", [8, 16, 32])
def test_tiles_of_a_dynamic_width(width: int) -> None:
    A, B = RNG.standard_normal((33, 20)).astype(np.float32), RNG.standard_normal((20, 17)).astype(np.float32)
    C = tg.empty(33, 17)
    grid = (tg.cdiv(17, width), tg.cdiv(33, width))
    matmul.tiled_dynamic[grid, (width, width), 2 * width * width * 4](tg.tensor(A), tg.tensor(B), C, 33, 17, 20, width)
    np.testing.assert_allclose(C.numpy(), A @ B, rtol=1e-4, atol=1e-5)


@checklist(126)
def test_loads_of_products() -> None:
    """n x n matrices take 2 n^3 loads; n^3 / T for each operand with tiles of T x T."""
    n = 32
    A, B = (tg.tensor(RNG.standard_normal((n, n)).astype(np.float32)) for _ in range(2))
    matmul.product("naive", A, B, X=8, Y=8)
    assert matmul.naive.counters.global_loads == 2 * n**3
    for step in ("tiled", "double_buffered"):
        matmul.product(step, A, B, X=8, Y=8, S=8)
        assert matmul.STEPS[step][0].counters.global_loads == 2 * n**3 // 8
    matmul.product("in_registers", A, B, X=4, Y=4, S=4, R=4)
    assert matmul.in_registers.counters.global_loads == 2 * n**3 // 16


def test_transposes_and_bank_conflicts() -> None:
    """A column of 32 floats is in one bank: 31 more turns for each warp. A row more, and there is none."""
    x, out = tg.tensor(RNG.random((64, 96)).astype(np.float32)), tg.empty(96, 64)
    transpose.transpose_naive[transpose.grid(64, 96), (32, 8)](x, out, 64, 96)
    assert np.array_equal(out.numpy(), x.numpy().T)
    warps = 64 * 96 // 32
    found = transpose.transpose_naive.counters
    assert found.transactions == warps * (4 + 32)
    for pad, conflicts in ((0, 31 * warps), (1, 0)):
        out = tg.empty(96, 64)
        transpose.transpose_tiled[transpose.grid(64, 96), (32, 8)](x, out, 64, 96, PAD=pad)
        assert np.array_equal(out.numpy(), x.numpy().T)
        found = transpose.transpose_tiled.counters
        assert found.bank_conflicts == conflicts
        assert found.transactions == warps * 8
        assert found.efficiency == 1


@pytest.mark.defect(5)
@pytest.mark.parametrize(("n", "threads"), [(192, 64), (320, 192), (200, 100), (1, 33), (1000, 1000)])
def test_reductions_of_any_size(n: int, threads: int) -> None:
    assert reduction.total(tg.tensor(np.ones(n, np.float32)), 3, threads).item() == n
    assert reduction.mean(tg.tensor(np.ones(n, np.float32))) == 1
    x = RNG.integers(-9, 9, n).astype(np.int64)
    assert reduction.total(tg.tensor(x), 2, threads).item() == x.sum()


@checklist(71)
def test_launches_by_threads() -> None:
    lengths = [3, 0, 1000, 70]
    starts = tg.tensor(np.cumsum([0, *lengths]).astype(np.int32))
    for simulated in (launches.row_sums, launches.row_sums.simulate(orders=5)):
        out = tg.empty(4)
        simulated[1, 32](tg.tensor(np.ones(sum(lengths), np.float32)), starts, out, 4)
        assert out.numpy().tolist() == lengths
    assert launches.row_sums.counters.launches == 3


def test_divergence_and_coalescing() -> None:
    """Each of 8 warps has lanes on both sides; a stride of 2 doubles the transactions."""
    out = tg.empty(256, dtype=tg.int32)
    small.odd_and_even[1, 256](out)
    assert out.numpy()[:4].tolist() == [0, -1, 2, -3]
    assert (small.odd_and_even.counters.branches, small.odd_and_even.counters.divergent) == (8, 8)
    x = tg.tensor(np.ones(2048, np.float32))
    for stride, sectors in ((1, 4), (2, 8), (8, 32)):
        small.strided[1, 256](x, tg.empty(256), stride)
        line = next(line for line in small.strided.counters.lines.values() if line.array == "x")
        assert line.per_request == sectors


def test_warps() -> None:
    x = tg.tensor(np.arange(64, dtype=np.int32))
    out = tg.empty(64, dtype=tg.int32)
    for kernel, wanted in (
        (small.rotated, np.roll(np.arange(64).reshape(2, 32), -1, 1).ravel()),
        (small.scanned, np.arange(64).reshape(2, 32).cumsum(1).ravel()),
        (small.mirrored, np.arange(64) ^ 7),
        (small.counted, np.full(64, 16)),
    ):
        kernel.simulate(orders=3)[1, 64](x, out)
        assert np.array_equal(out.numpy(), wanted), kernel


def test_c_and_its_numbers() -> None:
    """Quotients round to zero, small whole numbers are ints as soon as they are computed with."""
    x, y = np.array([-7, 7, -7, 7], np.int32), np.array([2, 2, -2, -2], np.int32)
    out = tg.empty(8, dtype=tg.int32)
    small.divided[1, 4](tg.tensor(x), tg.tensor(y), out)
    assert out.numpy().tolist() == [-3, 3, 3, -3, -1, 1, -1, 1]
    bytes, result = tg.tensor(np.array([200, 100], np.uint8)), tg.empty(2, dtype=tg.int32)
    small.averaged[1, 2](bytes, result)
    assert result.numpy().tolist() == [200, 150]


def test_a_kernel_reads_views_and_writes_in_place() -> None:
    whole = tg.tensor(np.arange(12, dtype=np.float32))
    vector_add.add[1, 32](whole[:4], whole[4:8], whole[8:], 4)
    assert whole.numpy()[8:].tolist() == [4, 6, 8, 10]
    vector_add.add[1, 32](whole, whole, whole, 12)
    assert whole.numpy()[:3].tolist() == [0, 2, 4]


def test_occupancy_of_a_launch() -> None:
    x = tg.tensor(np.ones(64, np.float32))
    vector_add.add.simulate(gpu="T4")[1, 64](x, x, tg.empty(64), 64)
    assert "on T4: 16 blocks (32 of 32 warps, 100%)" in str(vector_add.add.report())
    assert simt.occupancy("A100", 1024, registers=64).limit == "registers"


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16])
def test_arrays_of_16_bits(dtype: tg.DType) -> None:
    """Arithmetic is in float32, and results are rounded when they are stored."""
    x = tg.tensor(RNG.standard_normal(100).astype(np.float32)).to(dtype)
    out = tg.zeros(100, dtype=tg.bfloat16)
    small.halves_twice[2, 64](x, out, 100)

    def to(y: tg.Tensor, kind: tg.DType) -> tg.Tensor:
        return y.to(kind).float()

    own = to(to(x.float(), tg.float16), tg.bfloat16)
    other = own.reshape(50, 2).flip(1).reshape(100)
    wanted = to(2 * to(own + (other + to(tg.tensor(1.0009), tg.float16)), tg.bfloat16), tg.bfloat16)
    assert (out.float() == wanted).all().item()
