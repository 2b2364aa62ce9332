"""The meaning of a graph, computed from nothing but the `element` rules of its ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.graph import Graph, Value
from ...ir.scalar import Expr, Index, Position, Read
from ...ops.opaque import settled
from .scalar import evaluate


def interpret(graph: Graph, inputs: Sequence[Any], sizes: Mapping[str, int] = {}) -> list[Any]:
    """The outputs of a graph as numpy arrays, from arrays for its inputs."""
    arrays: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
    for value in graph.values():
        if value not in arrays:
            arrays[value] = _computed(value, arrays, dict(sizes))
    return [arrays[v] for v in graph.outputs]


def _computed(value: Value, arrays: Mapping[Value, Any], sizes: dict[str, int]) -> Any:
    if value.opaque:
        op = settled(value, sizes) if sizes else value
        return op.reference(*(arrays[x] for x in value.inputs))  # type: ignore[attr-defined]

    def read(x: Value, position: Position) -> Expr:
        return Read(x, position, x.dtype)

    indices = tuple(Index(f"i{n}", extent) for n, extent in enumerate(value.shape))
    return evaluate(value.element(indices, read), indices, arrays.__getitem__, sizes)
