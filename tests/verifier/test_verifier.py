"""The verifier finds what is wrong, and proves what is right."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.verifier import net
from tests.verifier.kernels import Verdict, covers, verdict
from tests.verifier.ranges import conjuncts, in_range, unproved
from tilegrad.errors import CompileError
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType
from tilegrad.ir.program import Launch
from tilegrad.ir.scalar import Expr, Index, Read, const, reduce, size, where
from tilegrad.ir.size import Size
from tilegrad.ir.tile_parser import parse
from tilegrad.ops.exponential import exp
from tilegrad.ops.movement import pad
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse

KERNEL = """
def rows(x: "*f32", y: "*f32", n: "i32"):
    i = tl.minimum(tl.program_id(0) * 4, 6) + tl.arange(0, 4)
    total = tl.zeros([4], tl.float32)
    for k in range(0, 7, 4):
        at = k + tl.arange(0, 4)
        seen = tl.load(x + ((i * 7)[:, None] + at[None, :]), mask=(at < 7)[None, :])
        total += tl.sum(tl.where((at < 7)[None, :], seen, 0.0), axis=1)
        tl.store(y + (10 + (i * 7)[:, None] + at[None, :]), seen, mask=(at < n)[None, :])
    tl.store(y + i, total)
"""
FAULTS = [
    ("mask=(at < 7)[None, :])", "mask=(at < 8)[None, :])"),
    (", mask=(at < 7)[None, :])", ")"),
    (", mask=(at < n)[None, :])", ")"),
    ("mask=(at < n)", "mask=(at < n - 1)"),
    ("mask=(at < n)", "mask=(at <= n)"),
    ("tl.program_id(0) * 4, 6)", "tl.program_id(0) * 4, 7)"),
    ("tl.program_id(0) * 4, 6)", "tl.program_id(0) * 4, 5)"),
    ("tl.program_id(0) * 4, 6)", "tl.program_id(1) * 4, 6)"),
    ("range(0, 7, 4)", "range(0, 4, 4)"),
    ("range(0, 7, 4)", "range(4, 7, 4)"),
    ("y + (10 + ", "y + (11 + "),
    ("y + (10 + (i * 7)", "y + (10 + (i * 6)"),
    ("tl.store(y + i, total)", "tl.store(y + i * 2, total)"),
    ("y + (10 + (i * 7)[:, None] + at[None, :])", "y + (10 + (at * 7)[:, None] + i[None, :])"),
]


def found(text: str) -> Verdict:
    return verdict(parse(text), {"n": 7}, {"x": 70, "y": 80}, (3,))


def test_a_right_kernel_is_proved() -> None:
    assert found(KERNEL) == ((), ())


@pytest.mark.parametrize(("right", "wrong"), FAULTS)
def test_a_fault_in_a_kernel_is_found(right: str, wrong: str) -> None:
    assert right in KERNEL
    assert found(KERNEL.replace(right, wrong)).wrong


def test_lanes_of_rows_and_of_columns_are_told_apart() -> None:
    """One `arange`, read along both axes of a square."""
    text = """
def square(y: "*f32"):
    i = tl.arange(0, 8)
    tl.store(y + ((i * 8)[:, None] + i[None, :]), 1.0)
"""
    assert verdict(parse(text), {}, {"y": 64}, (1,)) == ((), ())
    assert verdict(parse(text.replace("i[None, :]", "i[:, None]")), {}, {"y": 64}, (1,)).wrong


def test_what_data_decides_stays_open() -> None:
    text = """
def rows(x: "*f32", at: "*i32", y: "*f32"):
    i = tl.arange(0, 8)
    place = tl.load(at + i)
    tl.store(y + i, tl.load(x + place, mask=(place >= 0) & (place < 8), other=0.0))
"""
    counts = {"x": 8, "at": 8, "y": 8}
    assert verdict(parse(text), {}, counts, (1,)) == ((), ())
    assert verdict(parse(text.replace("(place >= 0) & ", "")), {}, counts, (1,)).open
    assert verdict(parse(text.replace("y + i", "y + place")), {}, counts, (1,)).open


def test_covering_is_what_trying_says() -> None:
    """Proofs of covering for sums of two indices agree with enumeration, for any strides and bounds."""
    rng, said = random.Random(0), 0
    p, i = Index("p", 4), Index("i", 5)
    for _ in range(400):
        a, b, bound, count = rng.randrange(1, 8), rng.choice((1, 1, 2)), rng.randrange(1, 40), rng.randrange(1, 25)
        offset = p * a + i * b
        if covers(offset, conjuncts(offset < bound), count):
            said += 1
            reached = {x * a + y * b for x in range(4) for y in range(5)}
            assert set(range(count)) <= {place for place in reached if place < bound}
    assert said > 20


@pytest.mark.parametrize("seed", range(3))
def test_ranges_are_what_trying_says(seed: int) -> None:
    """Proofs for large indices hold where enumeration is possible."""
    rng = random.Random(seed)
    i, j = Index("i", 700), Index("j", 900)
    grid = np.indices((700, 900), sparse=True)
    proved = 0
    for _ in range(60):
        a, b, c, high = rng.randrange(-2, 3), rng.randrange(-2, 3), rng.randrange(-9, 9), rng.randrange(2000)
        at: Expr = i * a + j * b + c
        holds = frozenset({at >= 0, at < high})
        extent = high + rng.randrange(-1, 2)
        if in_range(at, extent, holds):
            proved += 1
            places = grid[0] * a + grid[1] * b + c
            assert (places[(places >= 0) & (places < high)] < extent).all()
    assert proved > 20


def test_reads_are_proved_with_the_conditions_around_them() -> None:
    n = Size.named("n")
    x = Input(TensorType(float32, (n,)), "x")
    i, k, zero = Index("i", n), Index("k", 3), const(0.0, float32)
    at = i + k - 1
    read = Read(x, (at,), float32)
    inside = (at >= 0) & (at < size(n))
    assert not unproved(reduce("add", k, where(inside, read, zero)))
    assert unproved(reduce("add", k, where(at >= 0, read, zero)))
    assert unproved(reduce("add", k, where(inside, zero, read)))
    assert not unproved(where(i >= 1, Read(x, (i - 1,), float32), zero))
    assert not unproved(where(i < 1, zero, Read(x, (i - 1,), float32)))
    assert unproved(where(i < 1, Read(x, (i - 1,), float32), zero))


def test_the_net_refuses_what_fusion_and_lowering_would_do_wrong() -> None:
    x = Input(TensorType(float32, (5, 7)), "x")
    schedule = fuse(Graph((x,), (exp(pad(x, [(1, 1), (2, 0)])),)))
    net.look_at_reads(schedule)
    (group,) = schedule.groups
    (member,) = group.members
    i, j = group.rows
    moved = member.replaced(expr=Read(x, (i - 1, j), float32))
    with pytest.raises(CompileError, match="out of range"):
        net.look_at_reads(schedule.replaced(groups=(group.replaced(members=(moved,)),)))
    program = assemble(schedule)
    (launch,) = [s for s in program.steps if isinstance(s, Launch)]
    short = launch.replaced(grid=tuple([t.replaced(extent=1, tile=1) for t in launch.grid]), kernel=parse(SHORT))
    with pytest.raises(CompileError, match="not written whole"):
        net.look_at_kernels(program.replaced(steps=(short,)))


SHORT = """
def short(x: "*f32", y: "*f32"):
    i = tl.arange(0, 32)
    tl.store(y + i, tl.load(x + i))
"""
