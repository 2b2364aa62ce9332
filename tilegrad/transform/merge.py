"""Matrix products that share an operand become one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from ..ir.graph import Graph, Input, Value
from ..ir.location import working_for
from ..ir.size import Dim, Size
from ..ops.broadcasting import Expand, Reshape
from ..ops.cast import Cast
from ..ops.contraction import Contract, letters
from ..ops.movement import Cat, Movement, narrow
from .share import moved

LARGEST = 1 << 25
"""Products with more multiplications than this fill a machine alone; what follows them is better fused to them."""
TYPICAL = 64
"""What a size that varies is taken for."""


def merge(graph: Graph) -> Graph:
    """Products of one value with several weights become one product with all of them side by side.

    The shared operand is read, packed and shared among threads once, and a wide product runs faster than
    narrow ones: the gates of a recurrent cell, or queries, keys and values of attention.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import TensorType
    >>> from ..ops.contraction import matmul
    >>> x, v, w = (Input(TensorType(float32, s), n) for s, n in (((8, 4), "x"), ((4, 3), "v"), ((4, 5), "w")))
    >>> print(merge(Graph((x, v, w), (matmul(x, v), matmul(x, w)))))
    graph(x: f32[8,4], v: f32[4,3], w: f32[4,5])
      %0: f32[4,8] = cat[axis=1] v w
      %1: f32[8,8] = contract[ik,kj->ij] x %0
      %2: f32[8,3] = slice[:, 0:3] %1
      %3: f32[8,5] = slice[:, 3:] %1
      return %2, %3
    """
    families: dict[tuple[object, ...], list[_Plan]] = defaultdict(list)
    given = set(graph.inputs)
    for value in graph.values():
        if value not in given and isinstance(value, Contract):
            for plan in _plans(value, given):
                families[plan.family].append(plan)
    chosen: dict[Value, list[_Plan]] = {}
    for family in sorted(families.values(), key=len, reverse=True):
        left = [plan for plan in family if plan.product not in chosen]
        if len(left) > 1:
            chosen |= {plan.product: left for plan in left}
    return _merged(graph, chosen) if chosen else graph


class _Plan(NamedTuple):
    """A product that may be merged, along an axis of its weight and of its result, with those of its family."""

    product: Contract
    shared: Value
    weight: Value
    axis: int
    out: int
    family: tuple[object, ...]


def _plans(product: Contract, given: set[Value]) -> list[_Plan]:
    of_x, of_y, out = letters(product.equation)
    found: list[_Plan] = []
    if product.x is product.y:
        return found
    for own, other, weight, shared in ((of_y, of_x, product.y, product.x), (of_x, of_y, product.x, product.y)):
        free = [letter for letter in own if letter in out and letter not in other]
        if len(free) == 1 and _is_weight(weight, given) and product.dtype.is_float and _is_small(product):
            axis = own.index(free[0])
            others = (*weight.shape[:axis], *weight.shape[axis + 1 :])
            family = (shared, weight is product.y, product.equation, others)
            found.append(_Plan(product, shared, weight, axis, out.index(free[0]), family))
    return found


def _is_weight(value: Value, given: set[Value]) -> bool:
    """Whether a value is there from the start: then no product can be needed for it, and it need not be made."""
    while isinstance(value, Movement | Reshape | Expand | Cast) and len(value.inputs) == 1:
        value = value.inputs[0]
    return value in given or isinstance(value, Input)


def _is_small(product: Contract) -> bool:
    of_x, of_y, _ = letters(product.equation)
    extents: dict[str, Dim] = dict(zip(of_x + of_y, product.x.shape + product.y.shape, strict=True))
    return math.prod(_typical(n) for n in extents.values()) <= LARGEST


def _typical(extent: Dim) -> int:
    return extent.value(dict.fromkeys(extent.names(), TYPICAL)) if isinstance(extent, Size) else extent


def _merged(graph: Graph, chosen: Mapping[Value, list[_Plan]]) -> Graph:
    new: dict[Value, Value] = {}
    given = set(graph.inputs)
    for value in graph.values():
        if value in new:
            continue
        if value in chosen:
            new |= _side_by_side(chosen[value], new)
        else:
            new[value] = value if value in given else moved(value, tuple([new[x] for x in value.inputs]))
    return Graph(graph.inputs, tuple([new[v] for v in graph.outputs]))


def _side_by_side(family: list[_Plan], new: Mapping[Value, Value]) -> dict[Value, Value]:
    """One product for several: each gets its slice."""
    first = family[0]
    with working_for(first.product.location):
        weights = Cat(tuple([plan.weight for plan in family]), first.axis)
        shared = new[first.shared]
        operands = (shared, weights) if first.weight is first.product.y else (weights, shared)
        whole = Contract(operands[0], operands[1], first.product.equation)
        results: dict[Value, Value] = {}
        begin: Dim = 0
        for plan in family:
            extent = plan.weight.shape[plan.axis]
            results[plan.product] = narrow(whole, plan.out, begin, extent)
            begin = begin + extent
    return results
