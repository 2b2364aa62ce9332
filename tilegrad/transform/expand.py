"""Replace declared operators by the code that computes them on their device."""

from __future__ import annotations

from ..ir.graph import Graph, Input, Value
from ..ir.location import working_for
from ..ops.declared import Declared
from .share import on_inputs


def expand(graph: Graph) -> Graph:
    """Replace `Declared` values by the kernel for the device, or by the reference implementation.

    This pass runs first, so that all other passes see the code.
    """
    if not any(v.user_defined for v in graph.values()):
        return graph
    given = set(graph.inputs)
    new: dict[Value, Value] = {}
    known: dict[tuple[object, ...], list[Value]] = {}
    for value in graph.values():
        if value in given or type(value) is Input:
            new[value] = value
            continue
        inputs = tuple([new[x] for x in value.inputs])
        if not isinstance(value, Declared):
            new[value] = on_inputs(value, inputs)
            continue
        key = (value.meaning, inputs)
        if key not in known:
            with working_for(value.location):
                known[key] = _code(value, inputs)
        new[value] = known[key][value.place]
    return Graph(graph.inputs, tuple([new[v] for v in graph.outputs]))


def _code(value: Declared, inputs: tuple[Value, ...]) -> list[Value]:
    """Instantiate all outputs of an operator."""
    code = expand(value.meaning.code(value.type.device))  # an operator may use others
    new: dict[Value, Value] = dict(zip(code.inputs, inputs, strict=True))
    for part in code.values():
        if part not in new:
            new[part] = part.with_inputs([new[x] for x in part.inputs])
    return [new[v] for v in code.outputs]
