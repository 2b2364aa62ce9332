"""Programs that go wrong are refused before they run."""

from __future__ import annotations

from typing import Any

import pytest

from tilegrad.errors import CompileError
from tilegrad.ir.dtype import float32, int32
from tilegrad.ir.graph import TensorType
from tilegrad.ir.program import Allocate, Copy, Free, Launch, Program, ProgramBuffer, Record, Step, Tiles, Wait
from tilegrad.ir.program_checker import check_program
from tilegrad.ir.size import Size
from tilegrad.ir.tile_parser import parse

COPY = parse("""
    # net.py:3
    def double(x: "*f32", out: "*f32", n: "i64"):
        i = tl.program_id(0) * 4 + tl.arange(0, 4)
        tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
""")
FOUR = TensorType(float32, (4,))
X, Y = ProgramBuffer("x", FOUR, "input"), ProgramBuffer("y", FOUR, "output")
A, B = ProgramBuffer("a", FOUR, "temporary", 0), ProgramBuffer("b", FOUR, "temporary", 16)


def double(source: str, target: str, stream: int = 0, **changes: Any) -> Launch:
    return Launch(COPY, (source, target, 4), (Tiles(4, 4),), stream).replaced(**changes)  # type: ignore[no-any-return]


def program(*steps: Step, buffers: tuple[ProgramBuffer, ...] = (X, A, B, Y), **changes: Any) -> Program:
    made = Program("net", (), buffers, ("x",), ("y",), steps, 32)
    return made.replaced(**changes)  # type: ignore[no-any-return]


def test_a_chain() -> None:
    check_program(program(double("x", "a"), double("a", "b"), double("b", "y")))


def test_memory_is_shared_after_the_last_reader() -> None:
    again = B.replaced(offset=0)
    third = ProgramBuffer("c", FOUR, "temporary", 16)
    steps = (double("x", "a"), double("a", "c"), double("c", "b"), double("b", "y"))
    check_program(program(*steps, buffers=(X, A, again, third, Y)))


def test_two_streams_with_an_event() -> None:
    steps = (double("x", "a"), Record(0, 0), Wait(0, 1), double("a", "y", stream=1))
    check_program(program(*steps))


def test_an_update_in_place() -> None:
    check_program(program(double("x", "a"), double("x", "x"), outputs=("x",)))
    check_program(program(double("x", "y"), buffers=(X, Y.replaced(alias="x"))))


WRONG: dict[str, tuple[Program, str]] = {
    "nobody writes": (program(double("a", "y")), "step 0 (double[cdiv(4, 4)](a, y, 4)): reads a, which nobody has"),
    "no output": (program(double("x", "a")), "the output y is never written"),
    "an input": (program(double("x", "y"), double("y", "x")), "writes x, which is only read"),
    "arguments": (program(double("x", "y", arguments=("x", "y"))), "takes 3 arguments, and not 2"),
    "a number for a buffer": (program(double("x", "y", arguments=("x", 3, 4))), "`out` takes a buffer, not 3"),
    "a buffer for a number": (program(double("x", "y", arguments=("x", "y", "a"))), "`n` takes a number, not a"),
    "unknown": (program(double("x", "z")), "there is no buffer z"),
    "a dtype": (
        program(double("x", "y"), buffers=(X, ProgramBuffer("y", TensorType(int32, (4,)), "output"))),
        "`out` points to f32, and y is of i32",
    ),
    "no grid": (program(double("x", "y", grid=(Tiles(1, 1),) * 4)), "at most 3 axes"),
    "a grid": (program(double("x", "y", grid=(Tiles(1, 1), Tiles(70000, 1)))), "where 0 to 65535 can be"),
    "a kernel": (
        program(double("x", "y", kernel=COPY.replaced(body=(*COPY.body[1:],)))),
        "there is no variable `i`",
    ),
    "sizes": (
        program(
            double("x", "y"), buffers=(X, Y, ProgramBuffer("t", TensorType(float32, (Size.named("n"),)), "temporary"))
        ),
        "the size n of buffer t is not declared",
    ),
    "a shared place": (
        program(double("x", "a"), double("x", "b"), double("a", "y"), buffers=(X, A, B.replaced(offset=8), Y)),
        "a and b have the same memory at the same time",
    ),
    "the end of the arena": (
        program(double("x", "b"), double("b", "y"), arena=16),
        "b ends at byte 32 of an arena of 16",
    ),
    "no event": (program(double("x", "a"), double("a", "y", stream=1)), "reads a, while step 0 writes it"),
    "an early writer": (
        program(
            double("x", "a"), Record(0, 0), double("x", "b"), double("a", "y"), Wait(0, 1), double("b", "a", stream=1)
        ),
        "wait for an event",
    ),
    "an event of nobody": (program(Wait(3, 0)), "event 3 has not been recorded"),
    "freed": (program(Allocate("a"), double("x", "a"), Free("a"), double("a", "y")), "a has been freed"),
    "allocated twice": (program(Allocate("a"), Allocate("a")), "a is allocated already"),
    "overwritten": (
        program(double("x", "y"), double("x", "a"), buffers=(X, A, Y.replaced(alias="x"))),
        "reads x, which y has overwritten",
    ),
    "an alias": (program(buffers=(X, Y.replaced(alias="q"))), "y is in the memory of q"),
    "a small alias": (
        program(buffers=(X, ProgramBuffer("y", TensorType(float32, (5,)), "output", alias="x"))),
        "y does not fit in the memory of x",
    ),
    "a copy": (
        program(Copy("x", "y"), buffers=(X, ProgramBuffer("y", TensorType(float32, (5,)), "output"))),
        "the two buffers differ in size",
    ),
    "two of a name": (program(buffers=(X, X, Y)), "two buffers have one name"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong(case: str) -> None:
    wrong, reason = WRONG[case]
    with pytest.raises(CompileError) as raised:
        check_program(wrong)
    assert reason in str(raised.value)


def test_print() -> None:
    n = Size.named("n")
    long = TensorType(float32, (n,))
    buffers = (ProgramBuffer("x", long, "input"), ProgramBuffer("y", long, "output"))
    launch = Launch(COPY, ("x", "y", n), (Tiles(n, 4),))
    made = Program("net", ("n",), buffers, ("x",), ("y",), (launch, Record(0, 0), Wait(0, 1)), 0)
    check_program(made)
    assert str(made).split("\n") == [
        "program net(x) -> y for n",
        "  memory",
        "    x: f32[n] input, 4*n bytes",
        "    y: f32[n] output, 4*n bytes",
        "  steps",
        "    0: double[cdiv(n, 4)](x, y, n)  # net.py:3",
        "    1: record event 0",
        "    2: wait for event 0 on stream 1",
        "  peak 8*n bytes: 0 for temporaries, 8*n for the rest",
    ]


def test_the_peak_of_what_is_allocated() -> None:
    steps = (Allocate("a"), double("x", "a"), Free("a"), Allocate("b"), double("x", "b"), double("b", "y"), Free("b"))
    free = (X, A.replaced(offset=None), B.replaced(offset=None), Y)
    assert str(program(*steps, buffers=free, arena=0)).endswith("peak 48 bytes: 16 for temporaries, 32 for the rest")
