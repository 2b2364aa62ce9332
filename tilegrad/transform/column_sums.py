"""Split sums over rows into partial sums over a few rows, where the same rows are reduced along their elements.

A kernel that normalises rows, or takes the gradient of a normalisation, has the elements of some rows in registers.
Partial sums over these rows fuse into it, so that memory is read once.
"""

from __future__ import annotations

from ..ir.dtype import float32
from ..ir.graph import Graph, Value
from ..ir.location import working_for
from ..ir.size import product
from ..ops.base import Elementwise
from ..ops.broadcasting import Reduction, Sum, reshape
from ..runtime.target_model import TargetModel
from .rewrite import change_each

MIN_ELEMENTS = 1 << 16
"""Elements from which the number of passes over memory matters."""
MIN_PART_ROWS, MAX_PART_ROWS = 8, 32
"""Rows of a partial sum; with more rows fewer partial sums are left to add."""
MAX_PART_ROWS_OF_MANY_WORKERS = 128
"""Rows of a partial sum on targets with many workers, if there are enough parts for all of them."""
MAX_VISITED = 48
"""Values visited to find the operands of a reduction."""


def column_sums(graph: Graph, target: TargetModel = TargetModel()) -> Graph:
    """Rewrite a sum over all rows as a sum of partial sums, if a reduction along these rows can compute the partial
    sums.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.broadcasting import reduce_sum
    >>> x = Input(TensorType(float32, (2048, 512)), "x")
    >>> print(column_sums(Graph((x,), (reduce_sum(x, (1,)), reduce_sum(x, (0,))))))
    graph(x: f32[2048,512])
      %0: f32[2048] = sum[axes=(1), keepdim=False] x
      %1: f32[64,32,512] = reshape[sizes=(64, 32, 512)] x
      %2: f32[64,512] = sum[axes=(1), keepdim=False] %1
      %3: f32[512] = sum[axes=(0), keepdim=False] %2
      return %0, %3
    """
    cut = _sums_to_split(graph, target)
    if not cut:
        return graph
    return change_each(graph, lambda value, made: _split(made, cut[value]) if value in cut else made)  # type: ignore[arg-type]


def _sums_to_split(graph: Graph, target: TargetModel) -> dict[Value, int]:
    """Map each sum that is split to the number of rows of a part."""
    sums = {v: rows for v in graph.values() if isinstance(v, Sum) and (rows := _part_rows(v, target))}
    if not sums:
        return {}
    along: dict[tuple[object, ...], list[Reduction]] = {}
    for value in graph.values():
        if isinstance(value, Reduction) and value.axes == (value.x.type.rank - 1,):
            along.setdefault(value.x.shape, []).append(value)
    return {v: rows for v, rows in sums.items() if _joins_row_reductions(v, along.get(v.inputs[0].shape, []))}


def _part_rows(value: Sum, target: TargetModel) -> int:
    """Return the number of rows of a part; 0 if the sum is not split."""
    shape = value.x.shape
    if len(shape) < 2 or value.axes != tuple(range(len(shape) - 1)) or value.dtype.bits < float32.bits:
        return 0
    count = product(shape)
    if type(count) is not int or count < MIN_ELEMENTS or shape[-1] > target.max_row_elements:  # type: ignore[operator]
        return 0
    width = shape[-1]
    assert type(width) is int
    last, all_rows, parts = shape[-2], count // width, target.column_sum_parts
    assert type(last) is int
    if target.min_instances > 1:
        few_rows, many_rows = all_rows // parts, all_rows // target.min_instances
        wanted = max(min(MAX_PART_ROWS, few_rows), min(MAX_PART_ROWS_OF_MANY_WORKERS, many_rows))
        return _balanced_rows(last, all_rows, target) if width > target.loop_elements else _divisor(last, wanted)
    wanted = all_rows // parts if width <= target.loop_elements else -(-all_rows // parts)
    return _divisor(last, min(MAX_PART_ROWS, wanted))


def _divisor(extent: int, most: int) -> int:
    """Return the largest divisor between `MIN_PART_ROWS` and a limit; 0 if there is none.

    >>> _divisor(3072, 50), _divisor(3163, 50)
    (48, 0)
    """
    return next((n for n in range(most, MIN_PART_ROWS - 1, -1) if extent % n == 0), 0)


def _balanced_rows(extent: int, all_rows: int, target: TargetModel) -> int:
    """Return the number of rows of a part for rows so long that a worker runs one part at a time: minimise the time
    until all parts are done, then maximise the rows.

    >>> from ..backend.cuda.costs import gpu_model
    >>> [_balanced_rows(rows, rows, gpu_model(132)) for rows in (8192, 2048, 1000)]
    [64, 16, 8]
    """
    counts = [n for n in range(MIN_PART_ROWS, MAX_PART_ROWS_OF_MANY_WORKERS + 1) if extent % n == 0]
    return min(counts, key=lambda n: (-(-all_rows // n // target.workers) * n, -n), default=0)


def _joins_row_reductions(value: Sum, along: list[Reduction]) -> bool:
    """Return whether a row reduction over the same elements can compute the partial sums without waiting for another
    kernel.
    """
    if not along:
        return False
    own = _row_sources(value.x)
    near = [v for v in along if not own.isdisjoint(_row_sources(v.x))]
    if any(v in own for v in near):
        return True
    return bool(near) and not set(near) <= _ancestors(value)


def _row_sources(x: Value) -> set[Value]:
    """Return the values that a value is computed from elementwise or by reductions of the same row."""
    found: set[Value] = set()
    stack = [x]
    while stack and len(found) < MAX_VISITED:
        value = stack.pop()
        if value not in found:
            found.add(value)
            row = isinstance(value, Reduction) and value.axes == (value.x.type.rank - 1,)
            if isinstance(value, Elementwise) or row:
                stack.extend(value.inputs)
    return found


def _ancestors(value: Value) -> set[Value]:
    """Return all values that a value is computed from."""
    found: set[Value] = set()
    stack = [value]
    while stack:
        for x in stack.pop().inputs:
            if x not in found:
                found.add(x)
                stack.append(x)
    return found


def _split(value: Sum, rows: int) -> Value:
    """Rewrite a sum as a sum of partial sums."""
    with working_for(value.location):
        shape = value.x.shape
        axis = len(shape) - 2
        parts = Sum(reshape(value.x, (*shape[:axis], shape[axis] // rows, rows, shape[-1])), (axis + 1,), False)
        return Sum(parts, value.axes, value.keepdim)
