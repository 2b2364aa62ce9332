"""Hoist values that depend on constant inputs alone, such as weights, out of the program that runs in each call.

A hoisted value is computed once, and again only when its inputs change (`Executable.hoisted`). Fused into its readers
it would be computed in every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from ..ir.graph import Graph, Value
from ..ir.location import working_for
from ..ir.size import Size
from ..ops.packed_rows import Materialised
from .rewrite import change_each

MIN_ELEMENTS = 1024
"""Elements from which a value is worth memory of its own."""


def hoist_constants(graph: Graph, constant_inputs: Set[Value]) -> Graph:
    """Materialise values that depend on constant inputs alone and take no more memory than these.

    >>> from ..ir.dtype import bfloat16, float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.cast import Cast
    >>> from ..ops.contraction import contract
    >>> x = Input(TensorType(bfloat16, (4, 64)), "x")
    >>> w = Input(TensorType(float32, (32, 64)), "w")
    >>> print(hoist_constants(Graph((x, w), (contract(x, Cast(w, bfloat16), "ik,jk->ij"),)), {w}))
    graph(x: bf16[4,64], w: f32[32,64])
      %0: bf16[32,64] = cast[bf16] w
      %1: bf16[32,64] = materialised %0
      %2: bf16[4,32] = contract[ik,jk->ij] x %1
      return %2
    """
    sources = _sources(graph, constant_inputs)
    found = {_stored_part(value, sources) for value in _boundary(graph, sources)} - {None}
    if not found:
        return graph

    def stored(value: Value, made: Value) -> Value:
        with working_for(value.location):
            return Materialised(made) if value in found else made

    return change_each(graph, stored)


def _sources(graph: Graph, constant_inputs: Set[Value]) -> dict[Value, frozenset[Value]]:
    """Map each value that depends on constant inputs alone to these inputs."""
    found: dict[Value, frozenset[Value]] = {x: frozenset([x]) for x in constant_inputs}
    given = set(graph.inputs)
    for value in graph.values():
        if value not in given and not value.opaque and all(x in found for x in value.inputs):
            found[value] = frozenset([source for x in value.inputs for source in found[x]])
    return found


def _boundary(graph: Graph, sources: Mapping[Value, frozenset[Value]]) -> list[Value]:
    """List the constant values that have a reader which is not constant."""
    readers, outputs = graph.consumers(), set(graph.outputs)
    return [v for v in readers if v in sources and v not in outputs and any(r not in sources for r in readers[v])]


def _stored_part(value: Value, sources: Mapping[Value, frozenset[Value]]) -> Value | None:
    """Return the part of a constant value to store, without movements; None if reading it would not save work."""
    while value.moves and not _is_small(value, sources):
        (value,) = value.inputs
    below = value
    while below.moves:
        (below,) = below.inputs
    return value if below.inputs and _is_small(value, sources) else None


def _is_small(value: Value, sources: Mapping[Value, frozenset[Value]]) -> bool:
    count, bytes = value.type.count, value.type.bytes
    have = sum([x.type.bytes for x in sources[value]])
    if isinstance(count, Size) or isinstance(bytes, Size) or isinstance(have, Size):
        return False
    return count >= MIN_ELEMENTS and bytes <= have
