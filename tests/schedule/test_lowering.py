"""Every op, fused, lowered to tile kernels and assembled, means what its element rule says."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.registry import Example, all_examples
from tilegrad.backend.reference.graph import interpret
from tilegrad.backend.reference.tile import run
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.program import Copy, Foreign, Launch, Program
from tilegrad.ir.size import known
from tilegrad.ir.tile_parser import parse
from tilegrad.ops.activation import relu
from tilegrad.ops.arithmetic import add, mul
from tilegrad.ops.external_call import external_call
from tilegrad.runtime.external_work import ArrayWork
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse
from tilegrad.transform.autodiff import leaf_gradients
from tilegrad.transform.pipeline import optimise


def execute(program: Program, arrays: list[np.ndarray], sizes: dict[str, int] = {}) -> list[np.ndarray]:
    """Runs a program kernel by kernel with the interpreter of the tile language."""
    memory = {name: np.array(a).reshape(-1) for name, a in zip(program.inputs, arrays, strict=True)}
    for b in program.buffers:
        memory.setdefault(b.name, np.zeros(known(b.type.count, sizes), b.type.dtype.numpy))
    shaped = lambda name: memory[name].reshape([known(d, sizes) for d in program.buffer(name).type.shape])  # noqa: E731
    for step in program.steps:
        match step:
            case Launch(kernel, _, grid):
                assert parse(str(kernel)) == kernel
                arguments = [memory[a] if isinstance(a, str) else known(a, sizes) for a in step.arguments]
                run(kernel, arguments, tuple(t.count(sizes) for t in grid))
            case Copy(source, target):
                memory[target][...] = memory[source]
            case Foreign(work, inputs, outputs):
                work.into([shaped(x) for x in inputs], [shaped(x) for x in outputs])
    return [shaped(x) for x in program.outputs]


def check(graph: Graph, arrays: list[np.ndarray], target: TargetModel = TargetModel(), tolerance: float = 0.0) -> None:
    optimised = graph
    optimised = optimise(optimised, target)
    got = execute(assemble(fuse(optimised, target)), arrays)
    for have, want in zip(got, interpret(graph, arrays), strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_allclose(
            have.astype(np.float64), want.astype(np.float64), max(tolerance, 1e-5), max(tolerance, 1e-6)
        )


@pytest.mark.parametrize("example", all_examples(), ids=lambda e: e.name)
def test_op(example: Example) -> None:
    check(example.graph(), list(example.arrays), tolerance=example.tolerance)


def test_an_empty_result_beside_another() -> None:
    work = ArrayWork("halves", lambda x: (x[:0], x * 2))
    x = Input(TensorType(float32, (3, 4)), "x")
    graph = Graph((x,), tuple(external_call(work, [x], [TensorType(float32, (0, 4)), x.type])))
    check(graph, [np.ones((3, 4), np.float32)])


def test_long_chains_in_one_kernel_are_no_deep_recursion() -> None:
    x = Input(TensorType(float32, (5,)), "x")
    y: Value = x
    for _ in range(400):
        y = add(mul(relu(y), 0.5), x)
    graph = Graph((x,), (y,))
    schedule = fuse(graph)
    assert len(schedule.groups) == 1
    (got,) = execute(assemble(schedule), [np.arange(5, dtype=np.float32)])
    np.testing.assert_allclose(got, 2 * np.arange(5), 1e-6)


@pytest.mark.parametrize("example", [e for e in all_examples() if e.gradient], ids=lambda e: e.name)
def test_gradient(example: Example) -> None:
    graph = example.graph()
    outputs = [v for v in graph.outputs if v.tracked]
    found = leaf_gradients(outputs, outputs)
    made = [found[x] for x in graph.inputs if x in found]
    if made:
        check(Graph(graph.inputs, tuple(made)), list(example.arrays))
