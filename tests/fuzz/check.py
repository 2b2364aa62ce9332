"""Properties that hold for every graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.fuzz.graphs import Drawn, compare, tolerance
from tilegrad.backend.reference.graph import interpret
from tilegrad.backend.reference.tile import run
from tilegrad.ir.graph import Graph
from tilegrad.ir.program import Copy, Launch, Program, ProgramBuffer
from tilegrad.ir.program_checker import check_program
from tilegrad.ir.size import known
from tilegrad.ir.stored import node_of, text_of
from tilegrad.ir.tile_parser import parse
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.order import order
from tilegrad.transform.autodiff import leaf_gradients
from tilegrad.transform.pipeline import PASSES, optimise
from tilegrad.transform.share import share
from tilegrad.transform.simplify import simplify

EXACT = (simplify, share)
"""Passes after which every element is the same, bit for bit (but for which NaN)."""


def meaning(graph: Graph, arrays: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
    with np.errstate(all="ignore"):
        return interpret(graph, arrays, sizes)


def check_passes(d: Drawn) -> None:
    """Each pass keeps the meaning, and gives the same object when it is asked again."""
    graph, want = d.graph, meaning(d.graph, d.arrays, d.sizes)
    for change in PASSES:
        changed = change(graph)
        if changed is graph:
            continue
        got = meaning(changed, d.arrays, d.sizes)
        for a, b, exact in zip(got, want, d.exact, strict=True):
            compare(a, b, exact or change.run in EXACT, tolerance(d.graph), f"{change.name}\n{graph}\n{changed}")
        assert [v.type for v in changed.outputs] == [v.type for v in graph.outputs]
        graph, want = changed, got if change.run in EXACT else want
    for change in EXACT:
        once = change(graph)
        assert change(once) is once, f"{change.name} goes on changing\n{graph}\n{once}\n{change(once)}"


def optimised(graph: Graph, target: TargetModel = TargetModel()) -> Graph:
    graph = optimise(graph, target)
    return graph


def check_road(d: Drawn, target: TargetModel = TargetModel()) -> None:
    """The kernels of a graph compute what it means; memory is shared without harm."""
    program = assemble(order(fuse(optimised(d.graph, target), target)))
    check_program(program)
    for step in program.steps:
        if isinstance(step, Launch):
            assert parse(str(step.kernel)) == step.kernel
    kept = node_of(text_of(program))
    assert (kept, repr(kept)) == (program, repr(program))
    want = meaning(d.graph, d.arrays, d.sizes)
    for arena in (False, True):
        got = execute(program, d.arrays, d.sizes, arena)
        for a, b, exact in zip(got, want, d.exact, strict=True):
            compare(
                a, b, exact, tolerance(d.graph), f"{d}\n{program}" if not arena else f"in the arena\n{d}\n{program}"
            )


def check_gradients(d: Drawn, target: TargetModel = TargetModel()) -> None:
    """The same for the gradients of what was drawn."""
    graph = backward(d.graph)
    if graph.outputs:
        check_road(d._replace(graph=graph, exact=(False,) * len(graph.outputs)), target)


def backward(graph: Graph) -> Graph:
    """The gradients of the outputs with respect to the inputs, as far as there are any."""
    outputs = [v for v in graph.outputs if v.tracked]
    found = leaf_gradients(outputs, outputs)
    return Graph(graph.inputs, tuple([found[x] for x in graph.inputs if x in found]))


def check_updates(d: Drawn) -> None:
    """Outputs that overwrite inputs are the same as outputs in memory of their own."""
    updates: dict[int, int] = {}
    for n, out in enumerate(d.graph.outputs):
        fitting = [k for k, x in enumerate(d.graph.inputs) if x.type == out.type and k not in updates.values()]
        if fitting:
            updates[n] = fitting[-1]
    graph = optimised(d.graph)
    program = assemble(order(fuse(graph), updates), updates)
    check_program(program)
    want = meaning(d.graph, d.arrays, d.sizes)
    memory: dict[str, np.ndarray] = {}
    got = execute(program, d.arrays, d.sizes, True, memory)
    for n, (a, b, exact) in enumerate(zip(got, want, d.exact, strict=True)):
        compare(a, b, exact, tolerance(d.graph), f"updates\n{d}\n{program}")
        if n in updates:
            name = program.inputs[updates[n]]
            compare(
                memory[name].reshape(b.shape), b, exact, tolerance(d.graph), f"{name} is not renewed\n{d}\n{program}"
            )


def execute(
    program: Program,
    arrays: Sequence[Any],
    sizes: Mapping[str, int] = {},
    arena: bool = False,
    memory: dict[str, np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Runs a program with the interpreter of the tile language; temporaries have memory of their own, or that
    which was planned for them. What nobody has written is 0xAA in every byte.
    """
    memory = {} if memory is None else memory
    memory |= {name: np.array(a).reshape(-1) for name, a in zip(program.inputs, arrays, strict=True)}
    planned = np.full(known(program.arena, sizes), 0xAA, np.uint8)
    for b in program.buffers:
        if b.name not in memory:
            memory[b.name] = _place(b, sizes, planned, arena)
    for step in program.steps:
        match step:
            case Launch(kernel, arguments, grid):
                given = [memory[a] if isinstance(a, str) else known(a, sizes) for a in arguments]
                with np.errstate(all="ignore"):
                    run(kernel, given, tuple(t.count(sizes) for t in grid))
            case Copy(source, target):
                memory[target][...] = memory[source]
    shapes = [[known(n, sizes) for n in program.buffer(o).type.shape] for o in program.outputs]
    return [memory[o].reshape(s) for o, s in zip(program.outputs, shapes, strict=True)]


def _place(b: ProgramBuffer, sizes: Mapping[str, int], planned: np.ndarray, arena: bool) -> np.ndarray:
    bytes = known(b.type.bytes, sizes)
    if arena and b.offset is not None:
        start = known(b.offset, sizes)
        return planned[start : start + bytes].view(b.type.dtype.numpy)
    return np.full(bytes, 0xAA, np.uint8).view(b.type.dtype.numpy)
