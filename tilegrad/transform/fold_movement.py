"""Fold movements of elements that cancel or compose."""

from __future__ import annotations

from ..ir.graph import Graph, Value
from ..ir.size import Dim
from ..ops.broadcasting import Expand, Reshape, number_key
from ..ops.cast import Detach
from ..ops.movement import Cat, Pad, Permute, Slice, narrow
from .rewrite import rewrite


def fold_movement(graph: Graph) -> Graph:
    """Remove movements that undo each other and compose consecutive ones.

    Kernels would be the same without this pass, since positions are composed when values are fused. But common
    subexpressions are only found if they are written alike, and smaller graphs compile faster.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.arithmetic import add
    >>> from ..ops.movement import cat, permute, slice_axis
    >>> x = Input(TensorType(float32, (4, 6)), "x")
    >>> whole = cat([slice_axis(x, 1, 0, 2), slice_axis(x, 1, 2, 6)], 1)
    >>> print(fold_movement(Graph((x,), (add(whole, permute(permute(x, (1, 0)), (1, 0))),))))
    graph(x: f32[4,6])
      %0: f32[4,6] = add x x
      return %0
    """
    return rewrite(graph, lambda value, _: _fold(value) if type(value) in CANDIDATES else None)


CANDIDATES = {Detach, Permute, Reshape, Expand, Slice, Pad, Cat}


def _fold(value: Value) -> Value | None:
    match value:
        case Detach(x):
            return x  # gradients have been taken by now
        case Permute(x, axes):
            return x if axes == tuple(range(len(axes))) else _fold_permute(value)
        case Reshape(x, sizes) | Expand(x, sizes) if sizes == x.shape:
            return x
        case Reshape(Reshape(x), sizes):
            return Reshape(x, sizes)
        case Expand(Expand(x), sizes):
            return Expand(x, sizes)
        case Slice():
            return _fold_slice(value)
        case Pad():
            return _fold_pad(value)
        case Cat():
            return _fold_cat(value)
    return None


def _fold_permute(value: Permute) -> Value | None:
    x = value.x
    return Permute(x.x, tuple([x.axes[n] for n in value.axes])) if isinstance(x, Permute) else None


def _fold_slice(value: Slice) -> Value | None:
    x = value.x
    if value.sizes == x.shape and _is_whole(value.starts, value.steps):
        return x
    match x:
        case Slice():
            starts, steps = _composed(x, value)
            return Slice(x.x, starts, steps, value.sizes)
        case Pad() if (x.starts, x.steps, x.x.shape) == (value.starts, value.steps, value.sizes):
            return x.x
        case Cat():
            return _slice_of_part(value, x)
    return None


def _is_whole(starts: tuple[Dim, ...], steps: tuple[int, ...]) -> bool:
    return not any(starts) and all(step == 1 for step in steps)


def _composed(inner: Slice | Pad, outer: Slice | Pad) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
    """Compose the starts and steps of two movements."""
    far, near = (outer, inner) if isinstance(outer, Pad) else (inner, outer)
    axes = list(zip(far.starts, far.steps, near.starts, near.steps, strict=True))
    return tuple([a + c * b for a, b, c, _ in axes]), tuple([b * d for _, b, _, d in axes])


def _fold_pad(value: Pad) -> Value | None:
    x = value.x
    if value.sizes == x.shape and _is_whole(value.starts, value.steps):
        return x
    if isinstance(x, Pad) and number_key(x.value) == number_key(value.value):
        starts, steps = _composed(x, value)
        return Pad(x.x, starts, steps, value.sizes, value.value)
    return None


def _slice_of_part(value: Slice, x: Cat) -> Value | None:
    """Slice the one operand of a concatenation that holds all sliced elements; None if there are several."""
    axis = x.axis
    start, step, size = value.starts[axis], value.steps[axis], value.sizes[axis]
    if type(start) is not int or type(size) is not int or not size:
        return None
    last = start + (size - 1) * step
    begin: Dim = 0
    for part in x.tensors:
        end = begin + part.shape[axis]
        if type(begin) is not int or type(end) is not int:
            return None
        if begin <= min(start, last) and max(start, last) < end:
            starts = (*value.starts[:axis], start - begin, *value.starts[axis + 1 :])
            return Slice(part, starts, value.steps, value.sizes)
        begin = end
    return None


def _join_neighbours(parts: list[Value], axis: int) -> list[Value]:
    joined: list[Value] = []
    for x in parts:
        both = _neighbours(joined[-1], x, axis) if joined else None
        if both is None:
            joined.append(x)
        else:
            joined[-1] = both
    return joined


def _fold_cat(value: Cat) -> Value | None:
    axis = value.axis
    parts: list[Value] = []
    for x in value.tensors:
        if isinstance(x, Cat) and x.axis == axis:
            parts += x.tensors
        elif x.shape[axis] != 0:
            parts.append(x)
    joined = _join_neighbours(parts, axis)
    if not joined:
        return value.tensors[0]
    if len(joined) == 1:
        return joined[0]
    return Cat(tuple(joined), axis) if len(joined) < len(value.tensors) or joined != list(value.tensors) else None


def _neighbours(x: Value, y: Value, axis: int) -> Value | None:
    """Merge two adjacent slices of one tensor; None if they are not adjacent."""
    if not (isinstance(x, Slice) and isinstance(y, Slice) and x.x is y.x):
        return None
    whole = x.x.shape
    alone = (
        set(x.steps) == set(y.steps) == {1}
        and all(s == 0 for s in (*_without(x.starts, axis), *_without(y.starts, axis)))
        and _without(x.sizes, axis) == _without(y.sizes, axis) == _without(whole, axis)
    )
    if not alone or x.starts[axis] + x.sizes[axis] != y.starts[axis]:
        return None
    return narrow(x.x, axis, x.starts[axis], x.sizes[axis] + y.sizes[axis])


def _without(shape: tuple[Dim, ...], axis: int) -> tuple[Dim, ...]:
    return (*shape[:axis], *shape[axis + 1 :])
