"""Rewrite graphs value by value: the traversal that passes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..ir.graph import Graph, Input, Value
from ..ir.location import working_for
from .share import on_inputs

Rewrite: TypeAlias = Callable[[Value, set[Value]], "Value | None"]
"""Return a replacement for a value, or None. The set holds values with several readers."""

Change: TypeAlias = Callable[[Value, Value], Value]
"""Return a replacement, given a value and the same on changed inputs."""

MAX_STEPS = 64
"""Most rewrites of one value; more mean that rules undo each other."""


def rewrite(graph: Graph, simpler: Rewrite, of: type[Value] | tuple[type[Value], ...] = Value) -> Graph:
    """Replace values until no rewrite applies, producers first; return the graph itself if nothing changed.

    Only values of the classes `of` are rewritten: a graph that has none is not walked.
    """
    if of is not Value and not any(issubclass(kind, of) for kind in set(map(type, graph.values()))):
        return graph
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
                made = _rewritten(value, new, simpler, busy, of)
        new[value] = made
        if len(readers[value]) > 1 or value in outputs:
            busy.add(made)
    if all(x is y for x, y in new.items()):
        return graph
    return Graph(graph.inputs, tuple([new[v] for v in graph.outputs]))


def _rewritten(value: Value, new: dict[Value, Value], simpler: Rewrite, busy: set[Value], of: Any) -> Value:
    """Rewrite the inputs of a value, then the value; values made by a rewrite are rewritten too."""
    for _ in range(MAX_STEPS):
        for x in value.inputs:
            if x not in new:
                new[x] = x if type(x) is Input else _rewritten(x, new, simpler, busy, of)
        value = on_inputs(value, tuple([new[x] for x in value.inputs]))
        found = simpler(value, busy) if of is Value or isinstance(value, of) else None
        if found is None:
            return new.setdefault(value, value)
        if found in new:
            return new[found]
        value = found
    raise AssertionError(f"rewriting goes round in a circle: {value}")


def change_each(graph: Graph, change: Change) -> Graph:
    """Change each value once, producers first; return the graph itself if nothing changed."""
    new: dict[Value, Value] = {x: x for x in graph.inputs}
    for value in graph.values():
        if value not in new:
            new[value] = change(value, on_inputs(value, tuple([new[x] for x in value.inputs])))
    if all(x is y for x, y in new.items()):
        return graph
    return Graph(graph.inputs, tuple([new[v] for v in graph.outputs]))
