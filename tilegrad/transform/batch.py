"""Batch a graph over a leading axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.graph import Value
from ..ops.batched import BatchedValue, rebuilt
from ..ops.broadcasting import expand


def batch(outputs: Sequence[Value], inputs: Mapping[Value, Value]) -> list[Value]:
    """Vectorise: return the outputs with a leading axis, for inputs that are replaced by values with a leading axis.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Graph, Input, TensorType
    >>> from ..ops.broadcasting import reduce_sum
    >>> row = Input(TensorType(float32, (4,)), "row")
    >>> rows = Input(TensorType(float32, (3, 4)), "rows")
    >>> print(Graph((rows,), tuple(batch([reduce_sum(row)], {row: rows}))))
    graph(rows: f32[3,4])
      %0: f32[3] = sum[axes=(1), keepdim=False] rows
      return %0
    """
    entries = next(iter(inputs.values())).shape[0]
    parts = rebuilt(outputs, {one: BatchedValue(many, True) for one, many in inputs.items()})
    return [p.value if p.mapped else expand(p.value, (entries, *p.value.shape)) for p in parts]


def substitute(outputs: Sequence[Value], changes: Mapping[Value, Value]) -> list[Value]:
    """Recompute the outputs from other inputs of the same types."""
    return [p.value for p in rebuilt(outputs, {old: BatchedValue(new, False) for old, new in changes.items()})]
