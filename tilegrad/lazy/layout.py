"""Where the elements of a tensor lie in its storage: what `stride`, `is_contiguous` and `view` ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..ir.graph import Input, Value
from ..ir.position import row_major
from ..ir.size import Dim, Shape
from ..ops.broadcasting import Expand, Reshape
from ..ops.movement import Permute, Slice
from ..ops.windows import Diagonal, Unfold
from .handle import Handle


class Layout(NamedTuple):
    """Element (i, j, ...) lies at offset + i * strides[0] + j * strides[1] + ..., counted in elements."""

    strides: Shape
    offset: Dim


def layout(x: Handle) -> Layout:
    """The layout of a tensor; one that is no view is dense, unless other strides are noted."""
    if not x._moves:
        return Layout(x._strides or dense(x._value.shape), 0)
    if x._layout is None:
        whole = Input(x.base().value.type)
        cut: Value = whole
        for move in x._moves:
            cut = move(cut)
        x._layout = _of(cut, whole, x._strides or dense(whole.shape))
    found: Layout = x._layout
    return found


def is_dense(x: Handle) -> bool:
    """Whether the elements lie one after the other, in row-major order."""
    if not x._moves and x._strides is None:
        return True
    shape, strides = x._value.shape, layout(x).strides
    wide = [n for n, extent in enumerate(shape) if extent != 1]
    return 0 in shape or tuple([strides[n] for n in wide]) == dense(tuple([shape[n] for n in wide]))


def dense(shape: Shape) -> Shape:
    """The strides of elements one after the other; an axis of none counts as if it had one, as in PyTorch."""
    return row_major(tuple([1 if extent == 0 else extent for extent in shape]))


def _of(view: Value, whole: Value, own: Shape) -> Layout:
    if view is whole:
        return Layout(own, 0)
    x: Value = view.inputs[0]
    strides, offset = _of(x, whole, own)
    match view:
        case Permute(_, axes):
            return Layout(tuple([strides[axis] for axis in axes]), offset)
        case Slice(_, starts, steps):
            for start, stride in zip(starts, strides, strict=True):
                offset = offset + start * stride
            return Layout(tuple([s * step for s, step in zip(strides, steps, strict=True)]), offset)
        case Expand(_, sizes):
            new = len(sizes) - len(x.shape)
            kept = [0 if a != b else s for a, b, s in zip(x.shape, sizes[new:], strides, strict=True)]
            return Layout((0,) * new + tuple(kept), offset)
        case Reshape(_, sizes):
            found = reshaped(x.shape, strides, sizes)
            assert found is not None, "a reshape that copies is no view"
            return Layout(found, offset)
        case Diagonal(_, shift, axis1, axis2):
            rest = [s for n, s in enumerate(strides) if n not in (axis1, axis2)]
            first = strides[axis2] * shift if shift > 0 else strides[axis1] * -shift
            return Layout((*rest, strides[axis1] + strides[axis2]), offset + first)
        case Unfold(_, axis, _, step):
            along = strides[axis]
            return Layout((*strides[:axis], along * step, *strides[axis + 1 :], along), offset)
    return Layout(strides, offset)


def reshaped(shape: Shape, strides: Shape, sizes: Sequence[Dim]) -> Shape | None:
    """The strides with which elements can be seen in another shape without being moved, or None.

    >>> reshaped((2, 6), (12, 1), (2, 3, 2)), reshaped((2, 6), (12, 1), (12,))
    ((12, 2, 1), None)
    """
    if 0 in shape:
        return dense(tuple(sizes))
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result: list[Dim] = []
    waiting = [extent for extent in sizes if extent != 1]
    for extent, stride in _runs(old):
        taken: list[Dim] = []
        count: Dim = 1
        while count != extent:
            if not waiting:
                return None
            taken.append(waiting.pop(0))
            count = count * taken[-1]
            if isinstance(count, int) and isinstance(extent, int) and count > extent:
                return None
        result.extend([inner * stride for inner in row_major(tuple(taken))])
    complete: list[Dim] = []
    behind: Dim = 1
    for extent in reversed(sizes):
        complete.append(behind if extent == 1 else result.pop())
        behind = complete[-1] * extent
    return tuple(reversed(complete))


def _runs(axes: Sequence[tuple[Dim, Dim]]) -> list[tuple[Dim, Dim]]:
    """Neighbouring axes that lie in memory like one: its extent, and the stride of its elements."""
    runs: list[tuple[Dim, Dim]] = []
    for extent, stride in axes:
        if runs and runs[-1][1] == stride * extent:
            runs[-1] = (runs[-1][0] * extent, stride)
        else:
            runs.append((extent, stride))
    return runs
