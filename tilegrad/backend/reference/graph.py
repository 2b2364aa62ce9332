"""Interpret a graph by the `element` rules of its ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.graph import Graph, Value
from ...ir.scalar import Expr, Index, Position, Read
from ...ir.size import known
from ...ops.bind_sizes import with_sizes
from ...ops.external_call import ExternalCall, TileWork
from ...runtime.external_work import with_known_sizes as settled_type
from .scalar import evaluate
from .tile import run


def interpret(graph: Graph, inputs: Sequence[Any], sizes: Mapping[str, int] = {}) -> list[Any]:
    """Return the outputs of a graph as numpy arrays, from arrays for its inputs."""
    arrays: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
    for value in graph.values():
        if value not in arrays:
            arrays[value] = _computed(value, arrays, dict(sizes))
    return [arrays[v] for v in graph.outputs]


def _computed(value: Value, arrays: Mapping[Value, Any], sizes: dict[str, int]) -> Any:
    if isinstance(value, ExternalCall):
        return _called(value, [arrays[x] for x in value.inputs], sizes)
    if value.opaque:
        op = with_sizes(value, sizes) if sizes else value
        return op.reference(*(arrays[x] for x in value.inputs))  # type: ignore[attr-defined]

    def read(x: Value, position: Position) -> Expr:
        return Read(x, position, x.dtype)

    indices = tuple(Index(f"i{n}", extent) for n, extent in enumerate(value.shape))
    return evaluate(value.element(indices, read), indices, arrays.__getitem__, sizes)


def _called(value: ExternalCall, arrays: Sequence[Any], sizes: dict[str, int]) -> Any:
    """Compute one output of an external call, on copies."""
    given = [np.array(x, order="C") for x in arrays]
    types = [settled_type(t, sizes) for t in value.results]
    shapes: list[Any] = [t.shape for t in types]
    made = [
        np.empty(shape, t.dtype.numpy) if start is None else given[start]
        for t, shape, start in zip(types, shapes, value.starts, strict=True)
    ]
    if isinstance(value.work, TileWork):
        flat = [x.reshape(-1) for x in (*given, *made)]
        memory = [*(flat[n] for n in value.work.places), *(known(size, sizes) for size in value.work.sizes)]
        run(value.work.kernel, memory, tuple([tiles.count(sizes) for tiles in value.work.grid]))
    else:
        inputs = [settled_type(x.type, sizes) for x in value.inputs]
        value.work.prepared(inputs, types, "cpu").run([x.ctypes.data for x in (*given, *made)])
    return made[value.place]
