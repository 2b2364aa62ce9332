"""The gallery of kernels at tiny sizes: every step is right, checked or not; the tables have the steps as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels import __main__ as page
from examples.kernels import batched_matmul, linear, square, window_sum
from examples.kernels.frame import Climb, Row, gains, gallery
from tests.checklist import checklist
from tests.source import ROOT
from tilegrad import config

CLIMBS = gallery()


@checklist(70)
@pytest.mark.parametrize("how", ["", "kernels"])
@pytest.mark.parametrize("name", CLIMBS)
def test_every_step(name: str, how: str) -> None:
    climb = CLIMBS[name]
    sizes = climb.tiny if not how else climb.tiny[-1:]
    with config.changed(check=how):
        for size in sizes:
            climb.check("cpu", size)


def test_matmul_steps_are_exact_but_those_in_bfloat16() -> None:
    assert max(CLIMBS["matmul"].check("cpu", {"n": 33}).values()) < 1e-5
    assert len(CLIMBS["matmul"].steps_on("cpu")) == 6


@checklist(162)
@pytest.mark.parametrize("n", [0, 1, 127, 1000])
def test_vector_add_of_any_length(n: int) -> None:
    CLIMBS["vector_add"].check("cpu", {"n": n})


@checklist(163, 164, 166)
@pytest.mark.parametrize("n", [*range(1, 21), 1000, 1024, 1025])
def test_window_sums_are_exact_for_every_length(n: int) -> None:
    """Section 3, number 1. Output i is the sum of the padded inputs i to i + 6."""
    x = tg.arange(n + 6).float()
    expected = np.convolve(np.arange(n + 6), np.ones(7), "valid")
    for step in CLIMBS["window_sum"].steps_on("cpu").values():
        np.testing.assert_array_equal(step(x).numpy(), expected)


@checklist(165)
def test_loads_of_the_window_sum() -> None:
    """Section 3, number 2: a block of 4 loads 10 inputs, not 9; a naive program 7."""
    x, out = tg.arange(4 + 6).float(), tg.empty(4)
    window_sum.naive[(4,)](x, out, 4, RADIUS=3)
    assert window_sum.naive.report().loaded == 4 * 7 * 4
    window_sum.once[(1,)](x, out, 4, RADIUS=3, BLOCK=4)
    assert window_sum.once.report().loaded == 4 * 10


@checklist(116)
def test_three_ways_to_square_are_one() -> None:
    x = tg.randn(33, 65)
    (step, *_) = CLIMBS["square"].steps_on("cpu").values()
    for other in (x * x, x**2, tg.square(x)):
        np.testing.assert_array_equal(step(x).numpy(), other.numpy())
    out = tg.zeros_like(x)
    square.of_row[(33,)](x, out, 65, 65, BLOCK=32)  # section 3, number 10: fast, and wrong
    assert not tg.equal(out, x * x)


@checklist(124)
def test_order_of_groups_in_batches() -> None:
    """The order is that of the docstring, and every tile has one program."""
    shown = [line.split("->") for line in str(batched_matmul.__doc__).splitlines() if line.strip()[:1].isdigit()]
    assert shown
    order = tg.empty(5, 4, dtype=tg.int32)

    @tg.kernel
    def numbered(out, GROUP: tl.constexpr):
        i, j = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), GROUP)
        tl.store(out + i * 4 + j, tl.program_id(1) * 4 + tl.program_id(0))

    numbered[(4, 5)](order, GROUP=3)
    assert order.tolist() == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11], [12, 14, 16, 18], [13, 15, 17, 19]]


@checklist(124)
def test_products_of_different_shapes_in_one_launch() -> None:
    shapes = [(5, 7, 3), (33, 17, 20), (1, 1, 1), (16, 40, 9)]
    pairs = [(tg.randn(m, k), tg.randn(k, n)) for m, n, k in shapes]
    x, y = (tg.cat([pair[side].reshape(-1) for pair in pairs]) for side in (0, 1))
    out = batched_matmul.grouped_products(shapes, x, y, 16, 16, 8)
    expected = tg.cat([(a @ b).reshape(-1) for a, b in pairs])
    np.testing.assert_allclose(out.numpy(), expected.numpy(), 1e-5, 1e-5)


def test_a_step_that_is_wrong_is_not_timed() -> None:
    climb = Climb(
        "doubling", inputs=lambda n: (tg.ones(n),), expected=lambda x: 2 * x, size={"n": 3}, tiny=[], bytes=lambda n: 8
    )

    @climb.step
    def wrong(x: tg.Tensor) -> tg.Tensor:
        """adds 1.5"""
        return x + 1.5

    with pytest.raises(AssertionError, match="doubling, adds 1.5: differs by 2.5e-01"):
        climb.measured("cpu", climb.size)


def test_the_command_line() -> None:
    command = [sys.executable, "examples/kernels/saxpy.py", "--n", "1000", "--rounds", "1"]
    environment = {**__import__("os").environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    first, head, *rows = done.stdout.splitlines()
    assert first == "saxpy, n 1,000, on cpu"
    assert "of the limit" in head
    assert [row.split("  ")[1] for row in rows] == [*CLIMBS["saxpy"].steps_on("cpu"), "the tensor operation"]


def test_the_tables_are_current() -> None:
    """After a change of steps: python -m examples.kernels --tables (or --write, which measures them)."""
    text = page.README.read_text()
    assert page.written(text, page.newest("cpu"), page.newest("h200")) == text
    for name, climb in CLIMBS.items():
        assert f"({name}.py)" in text
        for title in climb.steps_on("cpu"):
            assert f"| {title} |" in text
    assert page.MISSING not in text
    shares = [float(share) for share in re.findall(r"\| (\d+) % \|", text)]
    assert shares
    assert max(shares) <= 115, "faster than the machine: its limits were measured while others were at work"


@checklist(128)
def test_what_a_memory_nearby_gains() -> None:
    """The same tiles on a CPU, in its cache, and on a GPU, in its shared memory: from the records of both."""
    text = page.near(page.newest("cpu"), page.newest("h200"))
    gains = [float(x) for x in re.findall(r"\| (\d+\.\d\d) ", text)]
    assert len(gains) == 2 * len(page.NEAR)
    assert min(gains) > 1.2
    for name, steps in page.NEAR.items():
        for kind, titles in (("cpu", steps[:2]), ("cuda", steps[2:])):
            assert set(titles) <= set(CLIMBS[name].steps_on(kind))


def test_a_table() -> None:
    rows = [Row("a program for each element", 4.0, 0.1, 0.0), Row("the tensor operation", 1.0, 0.4, 0.0)]
    record: Any = {"size": {"n": 8}, "rows": [{**r._asdict(), "own": n == 0} for n, r in enumerate(rows)]}
    made = page.table("vector_add", CLIMBS["vector_add"], "cpu", {"device": "x", "climbs": {"vector_add": record}})
    assert "**[vector add](vector_add.py)** on a CPU: n 8" in made
    assert "| a program for each element | 1.00 | 10 % | 0.25 |" in made
    assert made.count(page.MISSING) == 3
    assert gains([4.0, 2.0]) == [1.0, 2.0]


@checklist(48)
@pytest.mark.skipif(not tg.cpp.is_available(), reason="there is no C++ compiler")
def test_the_linear_layer_side_by_side() -> None:
    """Four rows with times and their spread, or why there is none; no cell is empty."""
    rows = linear.compared(runs=4, batch=3, inputs=5, outputs=4)
    assert [row[0] for row in rows] == list(linear.WAYS)
    assert all(cell for row in rows for cell in row)
    assert [bool(re.fullmatch(r"\d+ \[\d+, \d+\]", row[2])) for row in rows] == [True, True, True, False]
    assert linear.comparison(runs=4).count("\n") == 5
