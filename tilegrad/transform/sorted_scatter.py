"""Sort the entries of scatters by destination, so that all instances work on one scatter.

Entries with the same destination must be combined in a fixed order, which one instance can do by processing all entries
sequentially. After sorting, the entries of a destination are adjacent, and destinations are independent.
"""

from __future__ import annotations

from math import prod

from ..ir.dtype import bfloat16, bool_, float16, float32, float64, int32
from ..ir.graph import Graph, Value
from ..ir.node import Node
from ..ops.arithmetic import add, maximum, minimum, mul, sub
from ..ops.broadcasting import Expand, Fill, Reshape, expand, reduce_sum, reshape
from ..ops.cast import cast, widened
from ..ops.comparison import lt
from ..ops.control import where, with_check
from ..ops.counting import PartialHistograms
from ..ops.creation import positions
from ..ops.exact_sums import WORDS_PER_ROW, ExactSums, exact_total
from ..ops.indexing import Gather, Scatter, ScatterAlong, clamp_indices
from ..ops.movement import narrow, select
from ..ops.ranges import RangeReduce, block_levels
from ..ops.segment_sums import SegmentStarts
from ..runtime.target_model import TargetModel
from .radix_sorts import stable_order
from .rewrite import rewrite

KERNELS_NS = 1 << 17
"""Approximate nanoseconds that sorting takes, without one nanosecond for each entry."""
SERIAL_ENTRY_NS = 512
"""Nanoseconds of an entry that is written sequentially."""
MAX_COUNTED_ROWS, ENTRIES_PER_INSTANCE, MAX_COUNTERS = 1 << 14, 1 << 12, 1 << 22
"""Destinations that each instance counts, entries of an instance, and counters of all instances."""
MAX_SUMMED_ROWS = 1 << 12
"""Destinations of exact sums: with more, too few instances have room for sums of their own."""
COMBINE = {"add": add, "mul": mul, "maximum": maximum, "minimum": minimum}


class FlatScatter(Node):
    """A scatter of rows (entries, columns) to rows of the result."""

    to: Value
    """Destination row of each entry, int32."""
    rows: int
    columns: int
    source: Value
    """The entries, (entries, columns)."""
    in_turn: int
    """Entries that one instance would write sequentially."""


def sorted_scatter(graph: Graph, target: TargetModel) -> Graph:
    """Sort the entries of scatters by destination, so that all instances share the work of each scatter."""
    return rewrite(graph, lambda value, _: sort_scatter(value, target), of=(Scatter, ScatterAlong))


def sort_scatter(value: Value, target: TargetModel) -> Value | None:
    """Rewrite a scatter with many entries; None for anything else.

    >>> from ..ir.dtype import float32, int64
    >>> from ..ops.broadcasting import fill
    >>> from ..backend.cuda.costs import gpu_model
    >>> from ..ir.graph import Input, TensorType
    >>> index, x = Input(TensorType(int64, (5000,))), Input(TensorType(float32, (5000,)))
    >>> sort_scatter(ScatterAlong(fill(0.0, (), float32), index, x, 0, (100,), "add"), gpu_model(132)).op
    'reshape'
    """
    if not isinstance(value, Scatter | ScatterAlong) or (value.dtype is bool_ and value.fn):
        return None
    dims = (*value.sizes, *(d for x in value.inputs for d in x.shape))
    if not all(type(d) is int and d > 0 for d in dims):
        return None
    found = _flat_scatter(value) if isinstance(value, Scatter) else _flat_scatter_along(value)
    if found is None or found.rows > int32.max:
        return None
    count: int = found.to.shape[0]  # type: ignore[assignment]
    if found.in_turn * SERIAL_ENTRY_NS < KERNELS_NS + count * found.columns:
        return None
    made = _count_entries(value, found, target) or _exact_sums(value, found, target) or _sort_entries(value, found)
    return reshape(made, value.sizes)


def _sort_entries(value: Scatter | ScatterAlong, found: FlatScatter) -> Value:
    """Sort the entries by their rows, and reduce each segment or keep its last entry."""
    order = stable_order(found.to, found.rows)
    starts = SegmentStarts(order, found.rows)
    base = _base(value, found)
    if value.fn:
        return _reduce_entries(base, found, order, starts, value.fn)
    return _last_entries(base, found, order, starts)


def _last_entries(base: Value, found: FlatScatter, order: Value, starts: Value) -> Value:
    """Write the last entry of each destination."""
    begin, end = (narrow(starts, 0, n, found.rows) for n in range(2))
    which = Gather(select(order, 0, 0), (maximum(sub(end, 1), 0),), (0,))
    new = Gather(found.source, (which,), (0,))
    there = expand(reshape(lt(begin, end), (found.rows, 1)), base.shape)
    return where(there, new, base)


def _count_entries(value: Scatter | ScatterAlong, found: FlatScatter, target: TargetModel) -> Value | None:
    """Add one constant for each entry, by counting the entries of each destination."""
    number = found.source
    while isinstance(number, Expand | Reshape):
        number = number.inputs[0]
    if value.fn != "add" or not isinstance(number, Fill):
        return None
    if found.rows <= MAX_COUNTED_ROWS:
        count: int = found.to.shape[0]  # type: ignore[assignment]
        parts = max(1, min(target.min_instances, count // ENTRIES_PER_INSTANCE, MAX_COUNTERS // found.rows))
        many = reduce_sum(PartialHistograms(found.to, found.rows, parts), 0)
    else:
        starts = SegmentStarts(stable_order(found.to, found.rows), found.rows)
        many = sub(*(narrow(starts, 0, n, found.rows) for n in (1, 0)))
    base = widened(_base(value, found))
    total = reshape(mul(cast(many, base.dtype), number.value), (found.rows, 1))
    return cast(add(base, expand(total, base.shape)), value.dtype)


def _exact_sums(value: Scatter | ScatterAlong, found: FlatScatter, target: TargetModel) -> Value | None:
    """Add entries with few destinations by exact integer sums, which may be added in any order."""
    if value.fn != "add" or value.dtype not in (float32, float16, bfloat16) or found.columns > 1:
        return None
    if found.rows > MAX_SUMMED_ROWS:
        return None
    count: int = found.to.shape[0]  # type: ignore[assignment]
    parts = max(
        1, min(target.min_instances, count // ENTRIES_PER_INSTANCE, MAX_COUNTERS // (WORDS_PER_ROW * found.rows))
    )
    source = value.source if value.source.shape == (count,) else reshape(found.source, (count,))
    total = reshape(exact_total(ExactSums(found.to, widened(source), found.rows, parts)), (found.rows, 1))
    return cast(add(cast(_base(value, found), float64), total), value.dtype)


def _base(value: Scatter | ScatterAlong, found: FlatScatter) -> Value:
    return reshape(expand(value.base, value.sizes), (found.rows, found.columns))


def _reduce_entries(base: Value, found: FlatScatter, order: Value, starts: Value, fn: str) -> Value:
    """Reduce the sorted entries of each destination."""
    sorted_source = Gather(found.source, (select(order, 0, 0),), (0,))
    total = RangeReduce(starts, block_levels(widened(sorted_source), fn), fn)
    return cast(COMBINE[fn](widened(base), total), base.dtype)


def _flat_scatter(value: Scatter) -> FlatScatter | None:
    """Flatten the index tensors of the first axes to destination rows."""
    sizes: tuple[int, ...] = value.sizes  # type: ignore[assignment]
    count = len(value.axes)
    if value.axes != tuple(range(count)):
        return None
    indices = value.checked_indices
    to = clamp_indices(indices[0], sizes[0])
    for index, extent in zip(indices[1:], sizes[1:], strict=False):
        to = add(mul(to, extent), clamp_indices(index, extent))
    shape: tuple[int, ...] = to.shape  # type: ignore[assignment]
    entries, columns = prod(shape), prod(sizes[count:])
    source = reshape(value.source, (entries, columns))
    return FlatScatter(cast(reshape(to, (entries,)), int32), prod(sizes[:count]), columns, source, entries)


def _flat_scatter_along(value: ScatterAlong) -> FlatScatter:
    """Flatten a scatter along one axis: each element of the result is a destination."""
    sizes: tuple[int, ...] = value.sizes  # type: ignore[assignment]
    shape: tuple[int, ...] = value.index.shape  # type: ignore[assignment]
    to: Value | None = None
    for n, extent in enumerate(sizes):
        if n == value.axis:
            here = clamp_indices(with_check(value.index, extent, value.check), extent)
        else:
            line = reshape(positions(shape[n], value.device), tuple([d if k == n else 1 for k, d in enumerate(shape)]))
            here = expand(line, shape)
        to = here if to is None else add(mul(to, extent), here)
    assert to is not None
    entries = prod(shape)
    flat = cast(reshape(to, (entries,)), int32)
    return FlatScatter(flat, prod(sizes), 1, reshape(value.source, (entries, 1)), shape[value.axis])
