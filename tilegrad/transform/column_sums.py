"""Sums across rows, where something else is reduced along them, are made in parts: of a few rows at a time.

Whoever goes through rows, to normalise them or to take a gradient back through that, has their elements at
hand, but not those of all rows at once. Parts of a sum over rows are made on that way, and memory is gone through once.
"""

from __future__ import annotations

from ..ir.graph import Graph, Value
from ..ir.location import working_for
from ..ir.size import product
from ..ops.base import Elementwise
from ..ops.broadcasting import Reduction, Sum, reshape
from ..runtime.target_model import TargetModel
from .share import on_inputs

MIN_ELEMENTS = 1 << 16
"""Elements from which on it matters how often memory is gone through."""
MIN_PART_ROWS, MAX_PART_ROWS = 8, 32
"""Rows of a part: the more, the less is left to sum."""
MAX_PART_ROWS_OF_MANY_WORKERS = 128
"""The same where there are many workers, and enough for all."""
MAX_VISITED = 48
"""How many values are looked at to find out what a reduction is made of."""


def column_sums(graph: Graph, target: TargetModel = TargetModel()) -> Graph:
    """A sum over all rows of what is also reduced along the rows becomes one of sums over a few rows.

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
    given = set(graph.inputs)
    new: dict[Value, Value] = {}
    for value in graph.values():
        if value in given or not value.inputs:
            new[value] = value
            continue
        made = on_inputs(value, tuple([new[x] for x in value.inputs]))
        new[value] = _split(made, cut[value]) if value in cut else made  # type: ignore[arg-type]
    return Graph(graph.inputs, tuple(new[v] for v in graph.outputs))


def _sums_to_split(graph: Graph, target: TargetModel) -> dict[Value, int]:
    """The sums that are made in parts, and how many rows each part has."""
    sums = {v: rows for v in graph.values() if isinstance(v, Sum) and (rows := _part_rows(v, target))}
    if not sums:
        return {}
    along: dict[tuple[object, ...], list[Reduction]] = {}
    for value in graph.values():
        if isinstance(value, Reduction) and value.axes == (value.x.type.rank - 1,):
            along.setdefault(value.x.shape, []).append(value)
    return {v: rows for v, rows in sums.items() if _joins_row_reductions(v, along.get(v.inputs[0].shape, []))}


def _part_rows(value: Sum, target: TargetModel) -> int:
    """How many rows are summed at a time; 0: the sum stays as it is."""
    shape = value.x.shape
    if len(shape) < 2 or value.axes != tuple(range(len(shape) - 1)) or value.dtype.bits < 32:
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
    """The largest divisor that is not above a number, if it is no less than `MIN_PART_ROWS`; else 0.

    >>> _divisor(3072, 50), _divisor(3163, 50)
    (48, 0)
    """
    return next((n for n in range(most, MIN_PART_ROWS - 1, -1) if extent % n == 0), 0)


def _balanced_rows(extent: int, all_rows: int, target: TargetModel) -> int:
    """How many of such long rows a part has that a worker has room for one part only: such that all are done soonest,
    and then as many as possible.

    >>> from ..backend.cuda.costs import gpu_model
    >>> [_balanced_rows(rows, rows, gpu_model(132)) for rows in (8192, 2048, 1000)]
    [64, 16, 8]
    """
    counts = [n for n in range(MIN_PART_ROWS, MAX_PART_ROWS_OF_MANY_WORKERS + 1) if extent % n == 0]
    return min(counts, key=lambda n: (-(-all_rows // n // target.workers) * n, -n), default=0)


def _joins_row_reductions(value: Sum, along: list[Reduction]) -> bool:
    """Whether rows of the same elements are reduced, by something that need not wait for other kernels."""
    if not along:
        return False
    own = _row_sources(value.x)
    near = [v for v in along if not own.isdisjoint(_row_sources(v.x))]
    if any(v in own for v in near):
        return True
    return bool(near) and not set(near) <= _ancestors(value)


def _row_sources(x: Value) -> set[Value]:
    """What the elements of a value are made of at the same place, or at their row."""
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
    """All that a value is computed from."""
    found: set[Value] = set()
    stack = [value]
    while stack:
        for x in stack.pop().inputs:
            if x not in found:
                found.add(x)
                stack.append(x)
    return found


def _split(value: Sum, rows: int) -> Value:
    """The same sum, over a few rows first."""
    with working_for(value.location):
        shape = value.x.shape
        axis = len(shape) - 2
        parts = Sum(reshape(value.x, (*shape[:axis], shape[axis] // rows, rows, shape[-1])), (axis + 1,), False)
        return Sum(parts, value.axes, value.keepdim)
