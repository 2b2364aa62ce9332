"""The work of compiling, as the number of calls of Python functions, which does not depend on the machine."""

from __future__ import annotations

import cProfile
import pstats

from tests.verifier.net import not_watching
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ops.arithmetic import add, mul, sub
from tilegrad.ops.broadcasting import reduce_sum
from tilegrad.ops.contraction import matmul
from tilegrad.ops.exponential import exp
from tilegrad.ops.trigonometric import tanh
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.order import order
from tilegrad.transform.autodiff import leaf_gradients
from tilegrad.transform.pipeline import optimise

CALLS = 1160
"""Limit of calls per value of a graph. A call takes about 0.4 microseconds on a machine of 2021: 200 values take 100
ms.
"""


def training(layers: int) -> tuple[Graph, dict[int, int]]:
    """A step of training a network of small layers: about 25 values for each."""
    x, *weights = (Input(TensorType(float32, (32, 32)), f"x{n}") for n in range(layers + 1))
    for w in weights:
        w.__dict__["tracked"] = True
    y: Value = x
    for w in weights:
        y = add(y, tanh(mul(exp(sub(matmul(y, w), 1.0)), 0.5)))
    loss = reduce_sum(mul(y, y))
    found = leaf_gradients([loss], [loss])
    renewed = [sub(w, mul(found[w], 0.1)) for w in weights]
    return Graph((x, *weights), (loss, *renewed)), {n: n for n in range(1, layers + 1)}


def compiled(graph: Graph, updates: dict[int, int]) -> None:
    graph = optimise(graph)
    assemble(order(fuse(graph), updates), updates)


def calls(graph: Graph, updates: dict[int, int]) -> int:
    profile = cProfile.Profile()
    with not_watching():
        profile.runcall(compiled, graph, updates)
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined,no-any-return]


def test_compiling_takes_few_calls() -> None:
    compiled(*training(2))  # loads what is needed
    graph, updates = training(10)
    count = len(graph.values())
    assert count > 200
    assert calls(graph, updates) < CALLS * count


def test_effort_grows_with_the_graph_and_not_faster() -> None:
    small, large = training(4)[0], training(32)[0]
    ratio = len(large.values()) / len(small.values())
    assert calls(*training(32)) < 1.5 * ratio * calls(*training(4))
