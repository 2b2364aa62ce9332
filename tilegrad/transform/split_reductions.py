"""Split long reductions with few results into two stages, so that all cores have work."""

from __future__ import annotations

from ..ir.dtype import float32, int64
from ..ir.functions import identity
from ..ir.graph import Graph, Value
from ..ir.location import working_for
from ..ir.size import product
from ..ops.arithmetic import add, mul
from ..ops.base import Elementwise
from ..ops.bits import bitwise_or
from ..ops.broadcasting import Reduction, reshape
from ..ops.cast import cast
from ..ops.comparison import eq, isnan
from ..ops.control import where
from ..ops.creation import positions
from ..ops.movement import pad
from ..ops.reduction import ArgExtreme, Argmax, Max, Min
from ..runtime.target_model import TargetModel
from .rewrite import change_each

EXTREME = {"argmax": "maximum", "argmin": "minimum"}
MAX_VISITED = 24
"""Values visited to find the operands of a reduction."""


def split_reductions(graph: Graph, target: TargetModel = TargetModel()) -> Graph:
    """Rewrite a reduction of many elements to few results as a reduction of partial results.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.broadcasting import reduce_sum
    >>> x = Input(TensorType(float32, (1048576,)), "x")
    >>> print(split_reductions(Graph((x,), (reduce_sum(x),))))
    graph(x: f32[1048576])
      %0: f32[64,16384] = reshape[sizes=(64, 16384)] x
      %1: f32[64] = sum[axes=(1), keepdim=False] %0
      %2: f32[] = sum[axes=(0), keepdim=False] %1
      return %2
    """
    return change_each(graph, lambda _, made: _split_reduction(made, target) if isinstance(made, Reduction) else made)


def _split_reduction(value: Reduction, target: TargetModel) -> Value:
    parts = part_count(value, target)
    if parts > 1:
        return _split(value, parts)
    return _reduce_rows_first(value) if _reads_row_reductions(value) else value


def part_count(value: Reduction, target: TargetModel) -> int:
    """Choose the number of parts of a reduction.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.broadcasting import reduce_sum
    >>> from ..backend.cuda.costs import gpu_model
    >>> x = Input(TensorType(float32, (16384, 16384)), "x")
    >>> [part_count(reduce_sum(x, axes), gpu_model(132)) for axes in ((0,), (1,), (0, 1))]
    [4, 1, 512]
    """
    results, count = product(value.shape), value.count
    if type(results) is not int or type(count) is not int or results == 0:
        return 1
    extent = value.x.shape[_longest(value)]
    assert type(extent) is int
    along = value.x.type.rank - 1 in value.axes
    if results <= (
        min(target.max_split_results, target.min_parallel_rows * target.workers) if along else target.max_split_results
    ):
        if count < target.min_split_elements or extent < 2 * target.max_split_parts:
            return 1
        streams = -(-count // target.max_row_elements) if along and target.row_streams > 1 else 1
        return max(target.max_split_parts, min(1 << (streams - 1).bit_length(), extent // 2))
    columns = 1 if along else min(results, target.column_tile_width)
    if count * columns < target.min_split_elements:
        return 1
    instances = -(-results // columns)
    wanted = min(
        target.max_split_parts, target.min_instances // instances, extent // 2, count * columns // target.tile_elements
    )
    return 1 << max(0, wanted.bit_length() - 1)


def _longest(value: Reduction) -> int:
    return max(value.axes, key=lambda a: value.x.shape[a])  # type: ignore[arg-type,return-value]


def _split(value: Reduction, count: int) -> Value:
    """Reduce parts of the longest axis first; half precision is reduced in float32 and rounded once."""
    if not isinstance(value, ArgExtreme) and value.dtype.is_float and value.dtype.bits < float32.bits:
        with working_for(value.location):
            wide = type(value)(cast(value.x, float32), value.axes, value.keepdim)
            return cast(_split(wide, count), value.dtype)
    axis = _longest(value)
    extent = value.x.shape[axis]
    assert type(extent) is int
    with working_for(value.location):
        length = -(-extent // count)
        x = value.x
        if extent % count:
            widths = [(0, count * length - extent) if n == axis else (0, 0) for n in range(x.type.rank)]
            x = pad(x, widths, identity(EXTREME.get(value.fn, value.fn), x.dtype))
        cut = reshape(x, (*x.shape[:axis], count, length, *x.shape[axis + 1 :]))
        if isinstance(value, ArgExtreme):
            return reshape(_split_place(value, cut, axis), value.shape)
        inner = tuple(a + (a >= axis) for a in value.axes)
        parts = type(value)(cut, inner, False)
        left = sum(a not in value.axes for a in range(axis))
        whole = type(value)(parts, (left,), False)
        return reshape(whole, value.shape)


def _split_place(value: ArgExtreme, cut: Value, axis: int) -> Value:
    """Return the first position of the extreme over parts (NaN first); `cut` has the parts along an axis and their
    elements along the next.
    """
    places = type(value)(cut, (axis + 1,), False)
    extreme = Max if isinstance(value, Argmax) else Min
    ends = extreme(cut, (axis + 1,), False)
    chosen = eq(ends, extreme(ends, (axis,), True))
    if cut.dtype.is_float:
        chosen = bitwise_or(chosen, isnan(ends))
    count, length = cut.shape[axis : axis + 2]
    assert type(length) is int
    along = [count if n == axis else 1 for n in range(places.type.rank)]
    begins = reshape(mul(positions(count, cut.device), length), along)
    return Min(where(chosen, add(places, begins), int64.max), (axis,), False)


def _reads_row_reductions(value: Reduction) -> bool:
    """Return whether a reduction over rows and other axes reads reductions of the same rows."""
    last = value.x.type.rank - 1
    if len(value.axes) < 2 or last not in value.axes or value.fn.startswith("arg"):
        return False
    stack, seen = [value.x], 0
    while stack and seen < MAX_VISITED:
        x = stack.pop()
        seen += 1
        if isinstance(x, Reduction) and x.axes == (last,) and x.keepdim:
            return True
        if isinstance(x, Elementwise):
            stack.extend(x.inputs)
    return False


def _reduce_rows_first(value: Reduction) -> Value:
    """Reduce along the rows first, which fuses with the kernel that computes them."""
    with working_for(value.location):
        rows = type(value)(value.x, (value.axes[-1],), True)
        return type(value)(rows, value.axes, value.keepdim)
