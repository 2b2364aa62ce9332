"""Compute gradients of embedding tables as segment sums over sorted indices.

A scatter that adds must add entries with the same destination in a fixed order, so one instance would process all
entries of some columns sequentially. With sorted indices each row of the table is summed independently.
"""

from __future__ import annotations

from ..ir.dtype import float32, int32
from ..ir.graph import Graph, Value
from ..ir.size import product
from ..ops.broadcasting import Expand, Fill, reshape
from ..ops.cast import cast
from ..ops.indexing import Scatter, clamp_indices
from ..ops.segment_sums import SegmentStarts, SegmentSums
from ..ops.sorting import SortedKeys
from ..runtime.target_model import TargetModel
from .rewrite import rewrite

MIN_ENTRIES, MAX_ENTRIES = 256, 1 << 17
"""Entries of an index: fewer are scattered in little time, and more take long to sort by counting."""
MIN_COLUMNS = 32
"""Columns from which sorting the entries costs less than adding them up on a GPU."""
MIN_CPU_COLUMNS = 128
"""Columns from which sorting the entries costs less than adding them up one after the other on a CPU."""


def embedding_gradient(graph: Graph, target: TargetModel = TargetModel()) -> Graph:
    """Replace scatters that add rows to a table of zeros by segment sums over sorted indices.

    >>> from ..ir.dtype import int64
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.broadcasting import fill
    >>> index = Input(TensorType(int64, (512,)), "index")
    >>> source = Input(TensorType(float32, (512, 128)), "source")
    >>> added = Scatter(fill(0.0, (), float32), (index,), source, (0,), (1000, 128), "add")
    >>> print(embedding_gradient(Graph((index, source), (added,))))
    graph(index: i64[512], source: f32[512,128])
      ...
      %10: i64[2,512] = sorted_keys %9
      %11: i64[1001] = segment_starts[rows=1000] %10
      %12: f32[1000,128] = segment_sums[columns=128] %10 %11 source
      return %12
    """
    columns = MIN_COLUMNS if target.matmul.async_copy_bytes else MIN_CPU_COLUMNS
    return rewrite(graph, lambda value, _: row_sums(value, columns), of=Scatter)


def row_sums(value: Value, least_columns: int = MIN_COLUMNS) -> Value | None:
    """Rewrite a scatter of the rows of a large enough table; None for anything else.

    >>> from ..ir.dtype import int64
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.broadcasting import fill
    >>> index, source = Input(TensorType(int64, (512,))), Input(TensorType(float32, (512, 64)))
    >>> row_sums(Scatter(fill(0.0, (), float32), (index,), source, (0,), (1000, 64), "add")).op
    'segment_sums'
    """
    if not isinstance(value, Scatter) or value.fn != "add" or value.axes != (0,) or value.dtype is not float32:
        return None
    base = value.base.inputs[0] if isinstance(value.base, Expand) else value.base
    (index,) = value.checked_indices
    entries, rows, columns = product(index.shape), value.sizes[0], product(value.sizes[1:])
    if not isinstance(entries, int) or not isinstance(rows, int) or not isinstance(columns, int):
        return None
    if not isinstance(base, Fill) or base.value != 0 or not 0 < rows <= int32.max:
        return None
    if not MIN_ENTRIES <= entries <= MAX_ENTRIES or columns < least_columns:
        return None
    order = SortedKeys(cast(reshape(clamp_indices(index, rows), (entries,)), int32))
    return reshape(SegmentSums(order, SegmentStarts(order, rows), value.source, columns), value.sizes)
