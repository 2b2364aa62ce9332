"""Move graphs of the examples from the CPU to another device."""

from typing import Any

from tilegrad.ir.graph import Graph, Input, TensorType, Value


def placed(graph: Graph, place: str) -> Graph:
    """Return the graph with all values on a device."""
    new: dict[Value, Value] = {}
    for value in (*graph.inputs, *graph.values()):
        if value in new:
            continue
        if isinstance(value, Input):
            new[value] = Input(_on(value.type, place), value.name)
            continue
        changes: dict[str, Any] = {}
        for name in value.attribute_fields:
            match value.__dict__[name]:
                case str() if name == "place":  # a number there says which of several outputs this is
                    changes[name] = place
                case TensorType() as type:
                    changes[name] = _on(type, place)
                case (TensorType(), *_) as types:
                    changes[name] = tuple([_on(type, place) for type in types])
        new[value] = value.with_inputs([new[x] for x in value.inputs], **changes)
    return Graph(tuple(new[v] for v in graph.inputs), tuple(new[v] for v in graph.outputs))


def _on(type: TensorType, place: str) -> TensorType:
    return TensorType(type.dtype, type.shape, place)
