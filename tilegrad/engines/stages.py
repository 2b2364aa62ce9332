"""Cut a network into stages of about equal cost, each a network of its own: the next stage takes what it returns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..errors import ArgumentError
from ..ir.graph import Graph, Input, Value
from ..nn.graph_module import NetworkGraph, input_name
from ..saved.exported import ExportedProgram
from ..transform.operation_count import element_count, operations
from ..tree import LEAF, Tree

ELEMENT_OPERATIONS = 16
"""Operations that handing an element to the next stage is worth: it leaves the cache of one core for another's."""


def cut_into_stages(program: ExportedProgram, count: int) -> list[ExportedProgram]:
    """Cut a network into `count` stages; fewer if it has fewer values.

    >>> import tilegrad as tg
    >>> net = tg.export(tg.nn.Sequential(tg.nn.Linear(8, 8), tg.nn.ReLU(), tg.nn.Linear(8, 8)).eval(), tg.ones(2, 8))
    >>> first, second = cut_into_stages(net, 2)
    >>> (second(*first(tg.ones(2, 8))) == net(tg.ones(2, 8))).all().item()
    True
    """
    if count < 1:
        raise ArgumentError(f"a pipeline has at least 1 stage, not {count}")
    network = program.graph
    order = [v for v in network.graph.values() if v not in set(network.graph.inputs)]
    ends = [*_cuts(network, order, count), len(order)]
    stages = []
    carried: list[Value] = list(network.argument_inputs)
    for end in ends:
        is_last = end == len(order)
        wanted = list(network.graph.outputs) if is_last else _live(network, order, end)
        stages.append(_stage(program, carried, wanted, network.results if is_last else None))
        carried = wanted
    return stages


def _cuts(network: NetworkGraph, order: Sequence[Value], count: int) -> list[int]:
    """Choose where stages begin: the largest cost of a stage is to be small, with what it hands on."""
    costs = list(itertools.accumulate([float(operations(v)) for v in order], initial=0.0))
    handed = [0.0] + [
        ELEMENT_OPERATIONS * float(sum(map(element_count, _live(network, order, n)))) for n in range(1, len(order))
    ]
    found: list[tuple[float, list[int]]] = [(cost, []) for cost in costs]
    """For each number of values: the largest cost of a stage, and the cuts."""
    for _ in range(1, min(count, len(order))):
        found = [_with_one_more(found, costs, handed, n) for n in range(len(order) + 1)]
    return found[-1][1]


def _with_one_more(
    found: Sequence[tuple[float, list[int]]], costs: Sequence[float], handed: Sequence[float], n: int
) -> tuple[float, list[int]]:
    """Cut the first n values once more than before, at the best place."""
    choices = [(max(found[m][0] + handed[m], costs[n] - costs[m] + handed[m]), [*found[m][1], m]) for m in range(1, n)]
    return min(choices, default=found[n])


def _live(network: NetworkGraph, order: Sequence[Value], end: int) -> list[Value]:
    """List the values before a place that are read after it: what one stage hands to the next."""
    before = {*network.argument_inputs, *order[:end]}
    read = [x for v in order[end:] for x in v.inputs]
    return [v for v in dict.fromkeys([*read, *network.graph.outputs]) if v in before]


def _stage(
    program: ExportedProgram, given: Sequence[Value], wanted: Sequence[Value], results: Tree | None
) -> ExportedProgram:
    """Make the network that computes some values from others, and from the tensors that it needs."""
    placed: dict[Value, Value] = {}
    for n, x in enumerate(given):
        placed[x] = Input(x.type, input_name(x) if isinstance(x, Input) else f"carried_{n}")
    arguments = list(placed.values())
    tensors = list(program.graph.graph.inputs[len(program.graph.argument_inputs) :])
    made = {**placed, **{x: x for x in tensors}}
    for value in Graph((*given, *tensors), tuple(wanted)).values():
        if value not in made:
            made[value] = value.with_inputs([made[x] for x in value.inputs]) if value.inputs else value
    outputs = tuple([made[v] for v in wanted])
    read = set(Graph((*arguments, *tensors), outputs).values())
    needed = tuple([x for x in tensors if x in read])
    network = NetworkGraph(
        Graph((*arguments, *needed), outputs),
        {input_name(x): LEAF for x in arguments},
        results if results is not None else Tree(tuple, (), (LEAF,) * len(outputs)),
        (),
        program.graph.unequal,
    )
    return ExportedProgram(network, {input_name(x): program.tensor(input_name(x)) for x in needed}).eval()
