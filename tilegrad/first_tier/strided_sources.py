"""Follow views down to what is in memory: a view of a stored value is its elements at other strides."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..ir.graph import Value
from ..ir.position import row_major
from ..ops.broadcasting import StridedView, repeated_strides
from ..ops.cast import Detach
from ..ops.joint import JointOutput, Recompute

IDENTITIES = (Detach, JointOutput, Recompute)
"""Ops with the elements of their first input, at the same positions."""


class StridedSource(NamedTuple):
    """Elements of a stored value: element (i, j, ..) is at `offset + i * strides[0] + j * strides[1] + ..`."""

    source: int
    """The number of the stored value."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    item_bytes: int = 4

    def broadcast(self, shape: tuple[int, ...]) -> StridedSource:
        """Repeat the elements to a shape."""
        if self.shape == shape:
            return self
        return self._replace(shape=shape, strides=repeated_strides(self.shape, self.strides, shape))  # type: ignore[arg-type]


def stored_source(number: int, value: Value) -> StridedSource:
    """Return all elements of a stored value."""
    shape: Any = value.shape
    strides: Any = row_major(shape)
    return StridedSource(number, shape, strides, 0, value.dtype.bytes)


def view_of(value: Value, x: StridedSource) -> StridedSource | None:
    """Apply a view to the strides of its input; None if its elements are at no strides."""
    if isinstance(value, IDENTITIES):
        return x
    found: Any = value.strided(x.strides) if isinstance(value, StridedView) else None
    shape: Any = value.shape
    return None if found is None else x._replace(shape=shape, strides=found[0], offset=x.offset + found[1])
