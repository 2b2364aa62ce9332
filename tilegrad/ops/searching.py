"""Search values in sorted rows by bisection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import ShapeError
from ..ir.dtype import int64
from ..ir.graph import TensorType, Value
from ..ir.size import product
from .bits import logical_not
from .broadcasting import reduce_sum, reshape, shown
from .cast import cast
from .comparison import ge, gt
from .opaque import Opaque

if TYPE_CHECKING:
    from .tile_code import TileCode

MAX_COMPARED_EDGES = 64
"""Edges up to which all are compared, which fuses with other kernels."""
VALUES_PER_INSTANCE = 256
"""Values that an instance searches for."""


@final
class SearchSorted(Opaque):
    """Number of edges of its row below a value (or equal to it, if `right`); NaN is greater than all.

    `edges` are one vector, or have the shape of the values except for the last axis.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input
    >>> given = Input(TensorType(float32, (3,))), Input(TensorType(float32, (2,)))
    >>> SearchSorted(*given, False).reference(np.array([1.0, 2.0, 2.0]), np.array([2.0, 5.0])).tolist()
    [1, 3]
    """

    differentiable = False
    edges: Value
    values: Value
    right: bool

    def infer(self) -> TensorType:
        if self.edges.type.rank != 1 and self.edges.shape[:-1] != self.values.shape[:-1]:
            raise ShapeError(f"searchsorted: edges {shown(self.edges.shape)} for values {shown(self.values.shape)}")
        return self.values.type.with_dtype(int64)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return None, None

    def reference(self, edges: Any, values: Any) -> Any:
        e, x = edges[..., None, :], values[..., None]
        with np.errstate(invalid="ignore"):
            return np.sum(~(e > x if self.right else e >= x), -1, dtype=np.int64)

    def kernel(self) -> TileCode:
        from .kernels.searching import searchsorted
        from .tile_code import Tiles

        length = self.edges.shape[-1]
        assert isinstance(length, int)
        count, steps = product(self.values.shape), length.bit_length()
        columns = self.values.shape[-1] if self.values.shape else 1
        sizes = {"COUNT": count, "LENGTH": length, "COLUMNS": columns, "STEPS": steps, "FIRST_STEP": 1 << steps >> 1}
        inputs, grid = {"edges": self.edges.type, "values": self.values.type}, (Tiles(count, VALUES_PER_INSTANCE),)
        in_rows = self.edges.type.rank > 1
        return searchsorted.code(
            inputs, self.type, grid, LANES=VALUES_PER_INSTANCE, **sizes, RIGHT=self.right, IN_ROWS=in_rows
        )


def search_sorted(edges: Value, values: Value, right: bool = False) -> Value:
    """Return the number of edges below each value, or equal to it, as int64; rows are sorted."""
    length = edges.shape[-1]
    known = all(isinstance(d, int) for d in (*edges.shape, *values.shape))
    if known and isinstance(length, int) and length > MAX_COMPARED_EDGES and values.type.rank:
        return SearchSorted(edges, values, right)
    each = reshape(values, (*values.shape, 1))
    row_edges = edges if edges.type.rank == 1 else reshape(edges, (*edges.shape[:-1], 1, length))
    return reduce_sum(cast(logical_not((gt if right else ge)(row_edges, each)), int64), -1)
