"""Stored programs are read back unchanged: every constant, shared nodes, deep nesting. tests/fuzz draws random ones."""

import json
import math

import numpy as np
import pytest

from tests.known_kernels import KNOWN
from tilegrad.ir.dtype import DTYPES, FLOAT8
from tilegrad.ir.graph import TensorType
from tilegrad.ir.node import Structure
from tilegrad.ir.program import Copy, Foreign, Launch, Program, ProgramBuffer, Tiles
from tilegrad.ir.size import Size
from tilegrad.ir.stored import NotStored, node_of, text_of
from tilegrad.ir.tile import Apply, Assign, Literal, Name

CONSTANTS = [0, 1, -1, 1 << 80, True, False, 0.0, -0.0, 1.0, math.inf, -math.inf, 1e-320, 0.1, "", "ü\ud800\0\n", None]


@pytest.mark.parametrize("make", KNOWN, ids=lambda make: make.__name__)
def test_kernels(make: object) -> None:
    kernel = make(np.random.default_rng(0)).kernel  # type: ignore[operator]
    found = node_of(text_of(kernel))
    assert (found, repr(found), str(found)) == (kernel, repr(kernel), str(kernel))
    assert (found.__dict__["_digest"], found.__dict__["_form"]) == (kernel.digest(), kernel.form())


def test_constants_are_told_apart() -> None:
    node = Assign("x", tuple(CONSTANTS))  # type: ignore[arg-type]
    found = node_of(text_of(node)).value
    assert [(type(x), repr(x)) for x in found] == [(type(x), repr(x)) for x in CONSTANTS]
    assert math.isnan(node_of(text_of(Literal(math.nan))).value)


def test_a_program() -> None:
    n = Size.named("n")
    kernel = KNOWN[0](np.random.default_rng(0)).kernel
    work = object()
    buffers = [
        ProgramBuffer(d.name, TensorType(d, (2, n * 3 + 1), "cuda:0"), "input", n * 8, None) for d in (*DTYPES, *FLOAT8)
    ]
    steps = (Launch(kernel, ("x", n, 4), (Tiles(n, 4),), 1, 2.5, True), Copy("a", "b"), Foreign(work, ("x",), ("y",)))
    program = Program("p", ("n",), tuple(buffers), ("x",), (), steps, n * n)
    text = text_of(program, {id(work): "its mark"})
    found = node_of(text, {"its mark": work})
    assert found == program
    assert found.steps[2].work is work
    assert [b.type.dtype for b in found.buffers] == [b.type.dtype for b in buffers]
    assert all(x.type.dtype is y.type.dtype for x, y in zip(found.buffers, buffers, strict=True))
    with pytest.raises(KeyError):
        node_of(text)


def test_what_stands_at_two_places_is_one_row() -> None:
    """Text, time and memory are linear in the nodes, not in the paths to them; and no recursion ends it."""
    x = Name("x")
    for _ in range(3000):
        x = Apply("add", (x, x))
    text = text_of(x)
    assert len(json.loads(text)[2]) == 6001
    found = node_of(text)
    for _ in range(3000):
        assert found.args[0] is found.args[1]
        found = found.args[0]
    assert found == Name("x")


def test_anything_else_has_no_text() -> None:
    class Own(Structure):
        x: int

    for thing in (object(), [1], {1: 2}, Own(1), np.float64(1), np.int64(1), b"bytes", Own):
        with pytest.raises(NotStored):
            text_of(Assign("x", thing))  # type: ignore[arg-type]
