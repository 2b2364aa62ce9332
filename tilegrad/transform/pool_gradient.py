"""Apply masks and sums to the pooled gradient before it is scattered back.

Behind an activation and a max-pooling, the gradient masks every element that was pooled by its sign. But only the
maxima get a gradient, and their signs are those of the pooled values. So the large tensor need not live until the
backward pass: in an AlexNet training step it is half of all memory. The sum of the scattered gradient, for the bias
before it, is the sum of the pooled gradient.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..ir.graph import Graph, Value
from ..ops.broadcasting import Sum
from ..ops.comparison import Comparison
from ..ops.control import Where, where
from ..ops.pooling import MaxPool, WindowArgmax, WindowScatter
from .rewrite import rewrite
from .simplify import constant_of


def pool_gradient(graph: Graph) -> Graph:
    """Apply a mask that compares with a number, or a sum over windows, before the gradient is scattered to the maxima.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.comparison import le
    >>> from ..ops.sliding import Sliding
    >>> x, u = Input(TensorType(float32, (3, 8)), "x"), Input(TensorType(float32, (3, 4)), "u")
    >>> axes = (Sliding(8, 4, 2, 2),)
    >>> found, back = MaxPool(x, axes), WindowScatter(u, WindowArgmax(x, axes), axes)
    >>> print(pool_gradient(Graph((x, u), (found, where(le(x, 0.0), 0.0, back)))))
    graph(x: f32[3,8], u: f32[3,4])
      %0: f32[3,4] = max_pool[axes=(2/2)] x
      %1: f32[] = fill[0]
      %2: bool[3,4] = less_equal %0 %1
      %3: f32[] = fill[0]
      %4: f32[3,4] = where %2 %3 u
      %5: u8[3,4] = window_argmax[axes=(2/2)] x
      %6: f32[3,8] = window_scatter[axes=(2/2)] %4 %5
      return %0, %6
    """
    pooled = {(v.x, v.axes): v for v in graph.values() if type(v) is MaxPool}
    return rewrite(graph, partial(_pushed, pooled)) if pooled else graph


def _are_last(axes: tuple[int, ...], count: int, x: Value) -> bool:
    """Whether axes contain the last ones of a value."""
    return set(range(x.type.rank - count, x.type.rank)) <= set(axes)


def _pushed(pooled: dict[tuple[Value, Any], MaxPool], value: Value, busy: set[Value]) -> Value | None:
    """Push a mask or a sum through the scatter; None for any other value."""
    match value:
        case Sum(WindowScatter(y, WindowArgmax(), spread), axes, keepdim) if _are_last(axes, len(spread), y):
            return Sum(y, axes, keepdim)
        case Where(condition, x, WindowScatter() as back) if _is_zero(x):
            kept = False
        case Where(condition, WindowScatter() as back, y) if _is_zero(y):
            kept = True
        case _:
            return None
    if not isinstance(back.numbers, WindowArgmax) or back in busy or back.shape != value.shape:
        return None
    greatest = pooled.get((back.numbers.x, back.axes))
    if greatest is None or back.numbers.axes != back.axes:
        return None
    here = _compare_pooled(condition, back.numbers.x, greatest)
    if here is None:
        return None
    return back.with_inputs((where(here, back.y, 0.0) if kept else where(here, 0.0, back.y), back.numbers))


def _is_zero(value: Value) -> bool:
    return str(constant_of(value)) == "0.0"  # an empty sum is 0.0, not -0.0


def _compare_pooled(condition: Value, each: Value, greatest: Value) -> Value | None:
    """Rewrite a comparison of each element with a number as one of the maxima; None for anything else."""
    if not isinstance(condition, Comparison) or each not in condition.inputs:
        return None
    inputs = [greatest if x is each else x for x in condition.inputs]
    if any(x is not greatest and (x.shape or constant_of(x) is None) for x in inputs):
        return None
    return condition.with_inputs(inputs)
