"""Windows are gone through element by element where many are looked at at once: `ops/windows_in_turn.py` says why."""

from __future__ import annotations

import math

from ..ir.graph import Graph, Value
from ..ir.location import working_for
from ..ops.pooling import FEW, Greatest, MaxPool, Returned
from ..ops.windows_in_turn import GreatestInTurn, MaxPoolInTurn, ReturnedInTurn
from ..runtime.grain import Grain
from .share import moved

MOST = 16
"""Elements of a window, or windows over an element."""


def in_turn(graph: Graph, grain: Grain = Grain()) -> Graph:
    """The graph with small windows written out, on devices of many threads."""
    if not grain.powers:
        return graph
    given = set(graph.inputs)
    new: dict[Value, Value] = {}
    for value in graph.values():
        if value in given or not value.inputs:
            new[value] = value
            continue
        made = moved(value, tuple([new[x] for x in value.inputs]))
        with working_for(value.location):
            new[value] = _written_out(made) or made
    if all(x is y for x, y in new.items()):
        return graph
    return Graph(graph.inputs, tuple([new[v] for v in graph.outputs]))


def _written_out(value: Value) -> Value | None:
    match value:
        case MaxPool(x, axes) if math.prod(a.width for a in axes) <= MOST:
            return MaxPoolInTurn(x, axes)
        case Greatest(x, axes) if math.prod(a.width for a in axes) <= MOST:
            return GreatestInTurn(x, axes)
        case Returned(y, numbers, axes) if math.prod(a.cover for a in axes) <= FEW:
            return ReturnedInTurn(y, numbers, axes)
    return None
