"""The simulator's reports of wrong kernels: the defect at its line, with block, thread, index and array."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.simt import defects
from tilegrad.errors import KernelFault


def ones(n: int) -> tg.Tensor:
    return tg.tensor(np.ones(n, np.float32))


def zeros(n: int) -> tg.Tensor:
    return tg.tensor(np.zeros(n, np.int32))


def padded(n: int, more: int = 0) -> tg.Tensor:
    return tg.tensor(np.pad(np.arange(n, dtype=np.float32), (3, 3 + more)))


DEFECTS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a halo behind a partial block": (
        lambda: defects.window_sum_of_a_course[2, 512](padded(1000), ones(1000), 1000, THREADS=512),
        ["index 1027 is outside of A, which has 1006 elements", "block (1, 0, 0), thread (0, 0, 0)", "defects.py:19"],
    ),
    "a barrier inside `if i < n`": (
        lambda: defects.window_sum_of_a_course[2, 512](padded(1000, 100), ones(1000), 1000, THREADS=512),
        ["syncthreads() in divergent code: 488 of the 512 threads", "thread (488, 0, 0) has ended"],
    ),
    "a halo that is shorter than the radius": (
        lambda: defects.window_sum_mended_once[5, 4](padded(18), ones(18), 18, THREADS=4),
        ["reads part[2], which no thread has written yet", "block (4, 0, 0)"],
    ),
    "an unguarded read": (
        lambda: defects.reduce_by_halves[2, 100](ones(150), ones(2), 150, THREADS=100),
        ["index 150 is outside of x, which has 150 elements", "block (1, 0, 0), thread (50, 0, 0)"],
    ),
    "or for and": (
        lambda: defects.matmul_guarded_by_or[(2, 2), (4, 4)](ones(25), ones(25), tg.empty(25), 5, 5, 5),
        ["index 25 is outside of Y, which has 25 elements"],
    ),
    "a sum that begins with anything": (
        lambda: defects.matmul_guarded_by_or[(1, 1), (5, 5)](ones(25), ones(25), tg.empty(25), 5, 5, 5),
        ["reads Y[0], which no thread has written yet: memory from `empty`"],
    ),
    "a wrong transpose": (
        lambda: defects.matmul_with_a_wrong_transpose[(1, 1), (8, 8)](ones(10), ones(35), ones(14), 2, 7, 5),
        ["index 10 is outside of X, which has 10 elements"],
    ),
    "no guard": (
        lambda: defects.no_guard[4, 32](ones(100), ones(100)),
        ["index 100 is outside of x, which has 100 elements of float32", "block (3, 0, 0), thread (4, 0, 0)", "^^^^"],
    ),
    "no barrier": (
        lambda: defects.no_barrier[1, 64](ones(64), ones(64)),
        ["race: reads part[63] (shared memory, 64 elements of float32), which thread (63, 0, 0) writes at defects.py"],
    ),
    "a barrier that some reach": (
        lambda: defects.barrier_for_some[3, 32](ones(32), ones(32)),
        ["20 of the 32 threads of this block wait here, and thread (20, 0, 0) has ended"],
    ),
    "two barriers for one": (
        lambda: defects.one_barrier_for_each_branch[1, 32](ones(32), ones(32)),
        ["16 of the 32 threads of this block wait here, and thread (1, 0, 0) waits at defects.py:111"],
    ),
    "a sum without atomics": (
        lambda: defects.sum_without_atomics[2, 32](ones(64), ones(1)),
        ["race: writes out[0]", "of block (1, 0, 0) reads at", "only atomics may change what another block uses"],
    ),
    "neighbours in place": (
        lambda: defects.neighbours_in_place[2, 32](tg.tensor(np.arange(64, dtype=np.float32)), 64),
        ["race: writes x[32] (global memory, 64 elements of float32), which thread (31, 0, 0) of block (0, 0, 0)"],
    ),
    "a warp without barriers": (
        lambda: defects.warps_without_a_barrier[1, 32](ones(32), ones(1)),
        ["no syncthreads() or syncwarp() is between them"],
    ),
    "a result that depends on the order": (
        lambda: defects.tickets.simulate(seed=0)[8, 32](zeros(8), zeros(1)),
        ["the result depends on the order of blocks and threads: order[", "in random order 0 of seed 0"],
    ),
    "the last one wins": (
        lambda: defects.last_one_wins.simulate(seed=3)[8, 1](zeros(1)),
        ["the result depends on the order of blocks and threads: x[0] is 7 in lockstep"],
    ),
    "a lock that is never opened": (
        lambda: defects.lock_never_opened[1, 32](zeros(1)),
        ["deadlock: this loop waits for a change that no thread makes; 31 threads are in such loops"],
    ),
    "blocks that wait for later ones": (
        lambda: defects.wait_for_a_later_block.simulate(gpu="T4")[5000, 32](zeros(1)),
        ["deadlock", "640 of 5000 blocks are resident at a time"],
    ),
    "blocks that wait for each other": (
        lambda: defects.wait_for_each_other[2, 32](zeros(2)), ["deadlock", "64 threads are in such loops"]
    ),
}  # fmt: skip


@pytest.mark.defect(1, 5, 6)
@checklist(121, 161)
@pytest.mark.parametrize("case", DEFECTS)
def test_defects_are_named(case: str) -> None:
    launch, told = DEFECTS[case]
    with pytest.raises(KernelFault) as raised:
        launch()
    for words in told:
        assert words in str(raised.value)


def test_what_is_right_by_luck_is_right() -> None:
    """The course's kernels at sizes at which they work."""
    out = ones(20)
    defects.window_sum_mended_once.simulate(orders=5)[5, 4](padded(20), out, 20, THREADS=4)
    A = padded(20).numpy()
    assert np.array_equal(out.numpy(), sum(A[k : k + 20] for k in range(7)))
    flags = zeros(1)
    defects.wait_for_a_later_block[50, 32](flags)
    assert flags.item() == 1


@pytest.mark.defect(5)
def test_halving_drops_elements() -> None:
    """192 threads: 128 is the published answer. (The right sum: `examples/simt/reduction.py`.)"""
    out = ones(1)
    defects.reduce_by_halves[1, 192](ones(192), out, 192, THREADS=192)
    assert out.item() != 192
