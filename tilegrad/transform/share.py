"""Eliminate common subexpressions."""

from __future__ import annotations

from typing import Any

from ..ir.graph import Graph, Input, Value
from ..ir.node import amend


def share(graph: Graph) -> Graph:
    """Merge values of the same op with equal attributes and inputs.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import TensorType
    >>> from ..ops.arithmetic import add
    >>> from ..ops.exponential import exp
    >>> x = Input(TensorType(float32, (3,)), "x")
    >>> print(share(Graph((x,), (add(exp(x), exp(x)),))))
    graph(x: f32[3])
      %0: f32[3] = exp x
      %1: f32[3] = add %0 %0
      return %1
    """
    given = set(graph.inputs)
    new: dict[Value, Value] = {}
    known: dict[tuple[Any, ...], Value] = {}
    changed = False
    for value in graph.values():
        if value in given or type(value) is Input:
            new[value] = value
            continue
        inputs = tuple([new[x] for x in value.inputs])
        key = (type(value), _exact(value.attributes), inputs)
        found = known.get(key)
        if found is None:
            found = known[key] = on_inputs(value, inputs)
        changed |= found is not value
        new[value] = found
    return Graph(graph.inputs, tuple(new[v] for v in graph.outputs)) if changed else graph


def on_inputs(value: Value, inputs: tuple[Value, ...]) -> Value:
    """Apply the op of a value to other inputs, at the user's line of the original."""
    made = value.with_inputs(inputs)
    if made is not value:
        amend(made, location=value.location)
    return made


def _exact(attributes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make attributes comparable: 0.0 and -0.0, 1 and 1.0 and True differ, and NaN equals itself."""
    return tuple([(type(a), repr(a)) if isinstance(a, float | int) else a for a in attributes])
