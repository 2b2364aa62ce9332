"""Turn recomputation into ordering edges.

`Recompute` keeps a second computation apart from the first in passes that share equal values. For kernels it is the
value itself, with an edge from what must run before; otherwise both computations would be fused into one.
"""

from __future__ import annotations

from collections.abc import Collection

from ..ir.graph import Graph, Value
from ..ops.joint import Recompute
from ..transform.share import on_inputs

Waits = dict[Value, set[Value]]
"""For each value those that must be computed before it, besides what it reads."""


def waiting(graph: Graph) -> tuple[Graph, Waits, dict[Value, Value]]:
    """Return the graph without recompute nodes, the ordering edges of its values, and the origin of each changed value.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.exponential import exp
    >>> from ..ops.trigonometric import sin
    >>> x = Input(TensorType(float32, (3,)), "x")
    >>> u = sin(exp(x))
    >>> made, waits, back = waiting(Graph((x,), (u, exp(Recompute(x, u)))))
    >>> print(made)
    graph(x: f32[3])
      %0: f32[3] = exp x
      %1: f32[3] = sin %0
      %2: f32[3] = exp x
      return %1, %2
    >>> {str(v): [str(w) for w in ws] for v, ws in waits.items()}
    {'exp': ['sin']}
    >>> [type(x).__name__ for old in back.values() for x in old.inputs]
    ['Recompute']
    """
    values = graph.values()
    if not any(type(v) is Recompute for v in values):
        return graph, {}, {}
    given = set(graph.inputs)
    new: dict[Value, Value] = {}
    after: dict[Value, set[Value]] = {}
    waits: Waits = {}
    for value in values:
        if value in given:
            new[value] = value
        elif isinstance(value, Recompute):
            new[value] = new[value.x]
            after[value] = {new[value.after]} | after.get(value.x, set())
        else:
            made = new[value] = on_inputs(value, tuple([new[x] for x in value.inputs]))
            own: set[Value] = set().union(*[after[x] for x in value.inputs if x in after])
            if own:
                waits.setdefault(made, set()).update(own)
    back = {made: old for old, made in new.items() if made is not old and not isinstance(old, Recompute)}
    return Graph(graph.inputs, tuple([new[v] for v in graph.outputs])), waits, back


def of_nodes(graph: Graph, waits: Waits, nodes: Collection[Value]) -> Waits:
    """Carry ordering edges over to nodes: an inlined value makes its reader wait."""
    if not waits:
        return {}
    passed: dict[Value, set[Value]] = {}
    found: Waits = {}
    for value in graph.values():
        own = set().union(waits.get(value, set()), *[passed[x] for x in value.inputs if x in passed])
        if own and value in nodes:
            found[value] = _made_by(own, nodes)
        elif own:
            passed[value] = own
    return found


def _made_by(values: Collection[Value], nodes: Collection[Value]) -> set[Value]:
    """Return the nodes that compute values, inlined or not."""
    found: set[Value] = set()
    seen: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value in nodes:
            found.add(value)
        elif value not in seen:
            seen.add(value)
            stack.extend(value.inputs)
    return found
