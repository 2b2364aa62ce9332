"""Follow views down to what is in memory: a view of a stored value is its elements at other strides."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from ..ir.graph import Value
from ..ops.broadcasting import Expand, Reshape
from ..ops.cast import Detach
from ..ops.joint import JointOutput, Recompute
from ..ops.movement import Permute, Slice, StridedView

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
        kept = [0 if n == 1 else s for n, s in zip(self.shape, self.strides, strict=True)]
        return self._replace(shape=shape, strides=(*[0] * (len(shape) - len(kept)), *kept))


def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps.

    >>> row_major_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [0] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def stored_source(number: int, value: Value) -> StridedSource:
    """Return all elements of a stored value."""
    shape: Any = value.shape
    return StridedSource(number, shape, row_major_strides(shape), 0, value.dtype.bytes)


def view_of(value: Value, x: StridedSource) -> StridedSource | None:
    """Apply a view to the strides of its input; None if its elements are at no strides."""
    shape: Any = value.shape
    match value:
        case Permute(axes=axes):
            return x._replace(shape=shape, strides=tuple([x.strides[n] for n in axes]))
        case Expand():
            return x.broadcast(shape)
        case Reshape():
            strides = reshaped_strides(x.shape, x.strides, shape)
            return None if strides is None else x._replace(shape=shape, strides=strides)
        case Slice(starts=starts, steps=steps):
            first: Any = sum([start * s for start, s in zip(starts, x.strides, strict=True)])
            moved = tuple([step * s for step, s in zip(steps, x.strides, strict=True)])
            return x._replace(shape=shape, strides=moved, offset=x.offset + first)
        case StridedView():
            found: Any = value.strided(x.strides)
            return x._replace(shape=shape, strides=found[0], offset=x.offset + found[1])
    return x if isinstance(value, IDENTITIES) else None


def reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the strides of the same elements in another shape, or None if there are none.

    >>> reshaped_strides((4, 3, 2), (6, 2, 1), (12, 2)), reshaped_strides((4, 3), (1, 4), (12,))
    ((2, 1), None)
    """
    if 0 in sizes:
        return row_major_strides(sizes)
    merged: list[list[int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if merged and merged[-1][1] == extent * stride:
            merged[-1] = [merged[-1][0] * extent, stride]
        else:
            merged.append([extent, stride])
    found, axis = [0] * len(sizes), len(sizes) - 1
    for extent, stride in reversed(merged):
        while extent > 1:
            while axis >= 0 and sizes[axis] == 1:
                axis -= 1
            if axis < 0 or extent % sizes[axis]:
                return None
            found[axis] = stride
            stride *= sizes[axis]
            extent //= sizes[axis]
            axis -= 1
    return tuple(found) if prod(sizes) == prod(shape) else None
