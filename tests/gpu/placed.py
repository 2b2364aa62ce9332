"""Graphs of the examples, which are on the CPU, on another device."""

from tilegrad.ir.graph import Graph, Input, TensorType, Value


def placed(graph: Graph, place: str) -> Graph:
    """The same graph with everything on a device."""
    new: dict[Value, Value] = {}
    for value in (*graph.inputs, *graph.values()):
        if value in new:
            continue
        if isinstance(value, Input):
            new[value] = Input(_on(value.type, place), value.name)
            continue
        changes = {"place": place} if "place" in value.attribute_fields else {}
        for name in value.attribute_fields:
            attribute = value.__dict__[name]
            if isinstance(attribute, TensorType):
                changes[name] = _on(attribute, place)  # type: ignore[assignment]
        new[value] = value.with_inputs([new[x] for x in value.inputs], **changes)
    return Graph(tuple(new[v] for v in graph.inputs), tuple(new[v] for v in graph.outputs))


def _on(type: TensorType, place: str) -> TensorType:
    return TensorType(type.dtype, type.shape, place)
