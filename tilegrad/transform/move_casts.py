"""Move casts to the point in the graph with the fewest bytes."""

from __future__ import annotations

from ..ir.graph import Graph, Value
from ..ir.size import Dim, product
from ..ops.broadcasting import Expand, Reshape
from ..ops.cast import Cast
from ..ops.indexing import Gather, TakeAlong
from ..ops.movement import Permute, Slice
from ..ops.reduction import Max, Min
from .rewrite import rewrite
from .simplify import is_exact_in

CANDIDATES = {Cast, Expand, Reshape, Permute, Slice, Gather, TakeAlong, Max, Min}


def move_casts(graph: Graph) -> Graph:
    """Move casts past movements of elements, to where there are fewer elements; with equal counts move the narrower
    type.

    A cast costs little where it is computed, but stored values should be narrow, and elements that are gathered, sliced
    or repeated should not be cast before most of them are dropped.

    >>> from ..ir.dtype import float16, float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.movement import slice_axis
    >>> x = Input(TensorType(float16, (100, 8)), "x")
    >>> print(move_casts(Graph((x,), (slice_axis(Cast(x, float32), 0, 5, 7),))))
    graph(x: f16[100,8])
      %0: f16[2,8] = slice[5:7, :] x
      %1: f32[2,8] = cast[f32] %0
      return %1
    """
    return rewrite(graph, lambda value, busy: _moved(value, busy) if type(value) in CANDIDATES else None)


def _moved(value: Value, busy: set[Value]) -> Value | None:
    match value:
        case Cast(Expand() | Gather() | TakeAlong() | Permute() | Reshape() as moved, to) if moved not in busy:
            return (
                _cast_before(value, moved) if _is_cheaper(moved.x, value, narrow=to.bits < moved.dtype.bits) else None
            )
        case Expand(Cast() as x) | Gather(Cast() as x) | TakeAlong(Cast() as x) if x not in busy:
            return _cast_after(value, x) if _is_cheaper(value, x, narrow=False) else None
        case Permute(Cast() as x) | Reshape(Cast() as x) | Slice(Cast() as x) if x not in busy:
            return _cast_after(value, x) if _is_cheaper(value, x, narrow=x.dtype.bits > x.x.dtype.bits) else None
        case Max(Cast() as x) | Min(Cast() as x) if x not in busy and is_exact_in(x.dtype.short, x.x.dtype.short):
            return _cast_after(value, x)  # the extreme of the narrow elements is the same element
    return None


def _is_cheaper(there: Value, here: Value, narrow: bool) -> bool:
    """Return whether a cast is cheaper at `there`: of fewer elements, or of as many if narrower ones are moved then."""
    a, b = _count(there), _count(here)
    return (a is not None and b is not None and (a < b or (a == b and narrow))) or (
        there.shape == here.shape and narrow
    )


def _count(value: Value) -> int | None:
    count: Dim = product(value.shape)
    return count if type(count) is int else None


def _cast_before(cast: Cast, moved: Value) -> Value:
    inputs = moved.inputs
    return moved.with_inputs([Cast(inputs[0], cast.to), *inputs[1:]])


def _cast_after(value: Value, cast: Cast) -> Value:
    return Cast(value.with_inputs([cast.x, *value.inputs[1:]]), cast.to)
