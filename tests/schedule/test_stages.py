"""Every stage of four small programs in print. `pytest --update-golden` accepts new output."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.checklist import checklist
from tilegrad.compiler import Stages
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.program import Launch
from tilegrad.ir.program_checker import check_program
from tilegrad.ops.activation import relu, softmax
from tilegrad.ops.arithmetic import add, mul, square, sub
from tilegrad.ops.broadcasting import fill, reduce_sum
from tilegrad.ops.contraction import matmul
from tilegrad.ops.statistics import mean
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.order import order
from tilegrad.transform.autodiff import gradients
from tilegrad.transform.pipeline import PASSES

Stated = tuple[Graph, dict[int, int]]


def given(name: str, *shape: int) -> Input:
    made = Input(TensorType(float32, shape), name)
    made.__dict__["tracked"] = True
    return made


def rows() -> Stated:
    x = given("x", 64, 1000)
    return Graph((x,), (softmax(x, -1),)), {}


def rows_backward() -> Stated:
    x, upstream = given("x", 64, 1000), given("dy", 64, 1000)
    (dx,) = gradients([softmax(x, -1)], [upstream], [x])
    return Graph((x, upstream), (dx,)), {}


def step() -> Stated:
    x, y, w, b = given("x", 32, 100), given("y", 32, 20), given("w", 100, 20), given("b", 20)
    loss = mean(square(sub(relu(add(matmul(x, w), b)), y)))
    shares = gradients([loss], [fill(1.0, (), float32)], [w, b])
    renewed: list[Value] = [sub(p, mul(g, 0.1)) for p, g in zip((w, b), shares) if g is not None]
    return Graph((x, y, w, b), (loss, *renewed)), {1: 2, 2: 3}


def columns() -> Stated:
    x = given("x", 3000, 500)
    return Graph((x,), (reduce_sum(x, 0),)), {}


@checklist(151)
@pytest.mark.parametrize("make", [rows, rows_backward, step, columns], ids=lambda f: f.__name__)
def test_stages(make: Callable[[], Stated], golden: Callable[[object], None]) -> None:
    graph, updates = make()
    stages = Stages()
    stages.keep("graph", lambda: graph)
    for change in PASSES:
        skipped = "" if change.applies(TargetModel()) else "skipped on cpu"
        graph = stages.keep(change.name, partial(change, graph), graph, skipped)
    found = stages.keep("fuse", partial(fuse, graph))
    schedule = stages.keep("order", partial(order, found, updates), found)
    program = stages.keep("program", partial(assemble, schedule, updates, make.__name__))
    check_program(program)
    parts = [f"--- {s.name} ---\n{s.text}" for s in stages.made]
    golden("\n\n".join([*parts, *(str(s.kernel) for s in program.steps if isinstance(s, Launch))]))
