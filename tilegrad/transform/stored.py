"""Operands of products are in memory, as the products read them, where computing them each time costs more.

A device that copies operands while it multiplies cannot do that with what must be computed first: a float32 weight that
is multiplied in bfloat16, or what an activation makes of the sums before. It is stored once; most often the kernel
before does so, which has its elements at hand.
"""

from __future__ import annotations

from ..ir.graph import Graph, Value
from ..ir.size import product
from ..ops.base import Elementwise
from ..ops.cast import Cast
from ..ops.contraction import Contract
from ..ops.lines import Stored
from ..ops.movement import Movement
from ..ops.pooling import Returned
from ..runtime.grain import Grain
from .share import moved

FEWEST = 1 << 12
"""Elements from which on it matters."""
FEWEST_CAST = 1 << 18
"""The same for what is only converted: it is one more kernel."""


def stored(graph: Graph, grain: Grain = Grain()) -> Graph:
    """The graph with computed operands in memory, on devices whose grain says so.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.contraction import contract
    >>> from ..ops.exponential import exp
    >>> from ..runtime.grain import many_small
    >>> x = Input(TensorType(float32, (64, 64)), "x")
    >>> print(stored(Graph((x,), (contract(exp(x), x, "ij,jk->ik"),)), many_small(132)))
    graph(x: f32[64,64])
      %0: f32[64,64] = exp x
      %1: f32[64,64] = stored %0
      %2: f32[64,64] = contract[ij,jk->ik] %1 x
      return %2
    """
    if not grain.products.piece:
        return graph
    given = set(graph.inputs)
    wanted = {x for v in graph.values() if v not in given for x in _computed(v) if x not in given}
    if not wanted:
        return graph
    new: dict[Value, Value] = {}
    for value in graph.values():
        made = value if value in given or not value.inputs else moved(value, tuple([new[x] for x in value.inputs]))
        new[value] = Stored(made) if value in wanted else made
        new[value].__dict__.setdefault("location", value.location)
    return Graph(graph.inputs, tuple([new[v] for v in graph.outputs]))


def _computed(value: Value) -> list[Value]:
    """What is computed for a value that reads it many times, and could be read from memory."""
    read: tuple[Value, ...] = ()
    if isinstance(value, Contract):
        read = value.inputs
    elif isinstance(value, Returned):
        read = (value.y,)
    found = []
    for x in read:
        while isinstance(x, Movement) and len(x.inputs) == 1 and not isinstance(x, Stored):
            x = x.inputs[0]
        count = product(x.shape)
        if (
            isinstance(x, Elementwise | Cast)
            and type(count) is int
            and count >= (FEWEST_CAST if isinstance(x, Cast) else FEWEST)
        ):
            found.append(x)
    return found
