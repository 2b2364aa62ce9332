"""What passes that look at one value at a time have in common: the walk from inputs to outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..ir.graph import Graph, Input, Value
from ..ir.location import working_for
from .share import moved

Simpler: TypeAlias = Callable[[Value, set[Value]], "Value | None"]
"""What may be written for a value, or None. The set has the values that more than one reader needs."""

MOST_STEPS = 64
"""A value that is rewritten more often is in a circle of rules."""


def rewrite(graph: Graph, simpler: Simpler) -> Graph:
    """The graph with every value replaced as often as there is something for it; the same if there is nothing."""
    given = set(graph.inputs)
    readers = graph.consumers()
    outputs = set(graph.outputs)
    new: dict[Value, Value] = {}
    busy: set[Value] = set()
    for value in readers:
        if value in given or type(value) is Input:
            made = value
        else:
            with working_for(value.location):
                made = _settled(value, new, simpler, busy)
        new[value] = made
        if len(readers[value]) > 1 or value in outputs:
            busy.add(made)
    if all(x is y for x, y in new.items()):
        return graph
    return Graph(graph.inputs, tuple([new[v] for v in graph.outputs]))


def _settled(value: Value, new: dict[Value, Value], simpler: Simpler, busy: set[Value]) -> Value:
    """A value on settled inputs, in its simplest form; what a rule makes on the way is settled too."""
    for _ in range(MOST_STEPS):
        for x in value.inputs:
            if x not in new:
                new[x] = x if type(x) is Input else _settled(x, new, simpler, busy)
        value = moved(value, tuple([new[x] for x in value.inputs]))
        found = simpler(value, busy)
        if found is None:
            return new.setdefault(value, value)
        if found in new:
            return new[found]
        value = found
    raise AssertionError(f"rewriting goes round in a circle: {value}")
