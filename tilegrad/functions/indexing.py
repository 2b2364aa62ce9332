"""Implement square brackets: reading `x[...]` and writing `x[...] = y`, as in PyTorch.

Integers, slices, `...` and `None` make a view. Tensors, lists and arrays of integers or bools pick elements: after the
view has been cut they stand at some of its dimensions, and make a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import AxisError, DTypeError, IndexRangeError, ShapeError
from ..ir.dtype import bool_, int64
from ..ir.graph import Value
from ..ir.size import Dim
from ..lazy.at_once import assign, part_read
from ..lazy.evaluation import check_index
from ..lazy.handle import Handle, state, view, wrap
from ..lazy.layout import Lying, computed, is_dense, lay, layout, lying
from ..lazy.storage import kept_separate
from ..ops import movement
from ..ops.broadcasting import broadcast_shapes, expand, repeated_strides, reshape, shown
from ..ops.cast import cast
from ..ops.control import where
from .creation import tensor as made_tensor
from .pointwise import Ops
from .promotion import as_number, constant, kind_of

if TYPE_CHECKING:
    from ..tensor import Tensor


_ops = Ops("indexing")
_index, _index_put, _indexed_shape = _ops.index, _ops.index_put, _ops.indexed_shape
"""Picking elements by tensors: most keys are integers and slices, and need none of it."""


class Step(NamedTuple):
    """One dimension of the result of basic indexing, and its source."""

    kind: str
    """One of: at, range, new, whole, nothing (a new dimension of size 0)."""
    axis: int
    index: Any = None


class Parsed(NamedTuple):
    """A parsed key: the steps of the view, and the index tensors with their dimensions."""

    steps: tuple[Step, ...]
    picks: dict[int, Tensor]


def getitem(x: Tensor, key: Any) -> Tensor:
    """Read x[key]."""
    if state.trace is None:
        part = part_read(x, key)
        if part is not None:
            return part
    if type(key) is int and x._value.type.shape:
        return view(x, partial(movement.select, axis=0, index=key))
    steps, picks = parsed(x, key)
    cut = view(x, partial(_basic, steps=steps))
    if not picks:
        return cut
    made = wrap(_index(cut.value, _indices(cut, picks), list(picks)))
    return (
        made if is_dense(cut) and all(map(is_dense, picks.values())) else lay(made, _picked_strides(made, cut, picks))
    )


def _picked_strides(made: Tensor, cut: Tensor, picks: dict[int, Tensor]) -> Any:
    """Return the strides that PyTorch gives to elements picked by index tensors: those of the tensor along dimensions
    that are not indexed, those of the indices along the others.
    """
    shape, strides = made._value.shape, layout(cut).strides
    axes = sorted(picks)
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    rest = [strides[n] for n in range(len(strides)) if n not in picks]
    met = len(shape) - len(rest)
    end = len(shape) - first - met
    given = [Lying(shape, (*rest[:first], *(0,) * met, *rest[first:]))]
    for pick in picks.values():
        own = repeated_strides(*lying(pick), shape[first : first + met])
        given.append(Lying(shape, (*(0,) * first, *own, *(0,) * end)))
    return computed(shape, tuple(given))


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """Write x[key] = value."""
    if state.trace is None and assign(x, key, value):
        return
    filled = _filled_by_mask(x, key, value)
    if filled is not None:
        x.write(filled, "item assignment")
        return
    steps, picks = parsed(x, key)
    cut = view(x, partial(_basic, steps=steps))
    given = _given(value, x)
    if picks:
        indices = _indices(cut, picks)
        place = _indexed_shape(cut.value.shape, _met(indices), tuple(sorted(picks)))
        cut.write(_index_put(cut.value, indices, list(picks), _without_leading(given, len(place))), "item assignment")
        return
    shape = cut.value.shape
    given = _without_leading(given, len(shape))
    try:
        given = expand(given, shape)
    except ShapeError:
        raise ShapeError(
            f"item assignment: a value of shape {shown(given.shape)} does not fit places of shape {shown(shape)}"
        ) from None
    same = isinstance(value, Handle) and given is value.value
    cut.write(kept_separate(given) if same else given, "item assignment")


def _met(indices: Sequence[Value]) -> Any:
    return broadcast_shapes(*(i.shape for i in indices), op="indexing")


def _given(value: Any, like: Tensor) -> Value:
    """Convert an assigned value to the dtype of the tensor."""
    target = like.value
    if isinstance(value, Handle):
        return cast(value.to(device=target.device).value, target.dtype)  # type: ignore[attr-defined]
    number = as_number(value)
    if number is not None:
        converted = int(number) if target.dtype.is_integer and isinstance(number, float) else number
        return constant(converted, target.dtype, target.device)
    return cast(made_tensor(value, device=target.device).value, target.dtype)


def _without_leading(value: Value, rank: int) -> Value:
    """Drop surplus leading dimensions of size 1."""
    shape = value.shape
    while len(shape) > rank and shape[0] == 1:
        shape = shape[1:]
    return reshape(value, shape)


def _filled_by_mask(x: Tensor, key: Any, value: Any) -> Value | None:
    """Fill with a number where a mask is true, without counting the true elements first."""
    if not isinstance(key, Handle) or key.value.dtype is not bool_ or not key.value.shape:
        return None
    given = None if isinstance(value, Handle) and value.value.shape else _given(value, x)
    if given is None or given.shape:
        return None
    mask, shape = key.value, x.value.shape
    _check_mask(mask.shape, shape, 0)
    return where(reshape(mask, (*mask.shape, *(1,) * (len(shape) - len(mask.shape)))), given, x.value)


# --- the parts of a key ------------------------------------------------------------------------


def parsed(x: Tensor, key: Any) -> Parsed:
    """Parse a key."""
    shape = x.value.shape
    items, used = _items(key, x)
    steps: list[Step] = []
    picks: dict[int, Tensor] = {}
    axis = 0
    for item in items:
        if item is Ellipsis:
            rest = len(shape) - used
            steps.extend(Step("whole", axis + n) for n in range(rest))
            axis += rest
        elif item is None or isinstance(item, bool):
            steps.append(Step("nothing" if item is False else "new", axis))
        elif isinstance(item, slice):
            steps.append(Step("range", axis, item))
            axis += 1
        elif isinstance(item, int):
            _check_inside(item, shape, axis)
            steps.append(Step("at", axis, item))
            axis += 1
        elif not item.value.shape and item.value.dtype is bool_:
            picks[sum(step.kind != "at" for step in steps)] = item.reshape(1).nonzero(as_tuple=True)[0]
            steps.append(Step("new", axis))  # one entry if it is true, none if not
        else:
            for pick in _picks(item, shape, axis):
                picks[sum(step.kind != "at" for step in steps)] = pick
                steps.append(Step("whole", axis))
                axis += 1
    return Parsed(tuple(steps), picks)


def _items(key: Any, x: Tensor) -> tuple[list[Any], int]:
    """Return the parts of a key, with one `...` among them, and the number of dimensions that they index."""
    items = [_item(i, x) for i in (key if isinstance(key, tuple) else (key,))]
    shape = x.value.shape
    used = sum(_consumed(i) for i in items)
    if used > len(shape):
        advice = "" if shape else "; x.item() is its number"
        raise AxisError(
            f"indexing: {used} indices for a tensor of {len(shape)} dimensions, of shape {shown(shape)}{advice}"
        )
    if sum(i is Ellipsis for i in items) > 1:
        raise AxisError("indexing: `...` may stand only once in an index")
    if not any(i is Ellipsis for i in items):
        items.append(Ellipsis)
    return items, used


def _item(item: Any, x: Tensor) -> Any:
    """Convert a part of a key to an int, bool, slice, None, ... or tensor."""
    if item is None or item is Ellipsis or isinstance(item, (bool, int)):
        return item
    if isinstance(item, slice):
        return slice(*[None if n is None else _whole(n) for n in (item.start, item.stop, item.step)])
    if isinstance(item, Handle):
        return int(item) if _is_known_integer(item.value) else item  # type: ignore[call-overload]
    if isinstance(item, (list, tuple, range, np.ndarray)):
        array = np.asarray(item)
        if array.size == 0 and not isinstance(item, np.ndarray):
            array = array.astype(np.int64)
        return made_tensor(array, device=x.value.device)
    number = as_number(item)
    if isinstance(number, (bool, int)):
        return number
    if hasattr(item, "__index__"):
        return item.__index__()
    raise DTypeError(
        f"indexing takes integers, slices, `...`, None and tensors of integers or bools, not {kind_of(item)}"
    )


def _is_known_integer(value: Value) -> bool:
    """Whether a value is one integer in memory that no trace has to see."""
    return not value.shape and value.dtype.is_integer and value.buffer is not None and state.trace is None


def _whole(n: Any) -> int:
    if not hasattr(n, "__index__"):
        raise DTypeError(f"indexing: the parts of a slice are integers, not {kind_of(n)}")
    return int(n.__index__())


def _consumed(item: Any) -> int:
    """Count the dimensions that a part of a key indexes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, Handle) and item.value.dtype is bool_:
        return len(item.value.shape)
    return 1


def _check_inside(index: int, shape: Sequence[Dim], axis: int) -> None:
    extent = shape[axis]
    if isinstance(extent, int) and not -extent <= index < extent:
        raise IndexRangeError(
            f"indexing: index {index} is outside axis {axis} of a tensor of shape {shown(tuple(shape))}, which has "
            f"{extent} elements"
        )


def _check_mask(mask: Sequence[Dim], shape: Sequence[Dim], axis: int) -> None:
    if tuple(mask) != tuple(shape[axis : axis + len(mask)]):
        raise ShapeError(
            f"indexing: a mask of shape {shown(tuple(mask))} does not fit a tensor of shape {shown(tuple(shape))} at "
            f"dimension {axis}: the sizes must be equal"
        )


def _picks(item: Tensor, shape: Sequence[Dim], axis: int) -> list[Tensor]:
    """Return the integer tensors, one per dimension, that a tensor in a key means."""
    value = item.value
    if value.dtype is bool_:
        _check_mask(value.shape, shape, axis)
        return list(item.nonzero(as_tuple=True))
    if not value.dtype.is_integer:
        raise DTypeError(
            f"indexing: a tensor of {value.dtype.name} is no index; integers and bools are: x[i.long()], or x[i > 0]"
        )
    checked = check_index(value, shape[axis], axis, "indexing")
    return [item if checked is value else wrap(checked)]


# --- cutting -----------------------------------------------------------------------------------


def _basic(x: Value, steps: Sequence[Step]) -> Value:
    """Return the view that integers, slices and None select."""
    shape: list[Dim] = []
    for kind, axis, index in steps:
        if kind == "range":
            x = movement.slice_axis(x, axis, index.start, index.stop, index.step)
        elif kind == "at":
            x = movement.narrow(x, axis, index if index >= 0 else x.shape[axis] + index, 1)
    for kind, axis, _ in steps:
        if kind in ("range", "whole"):
            shape.append(x.shape[axis])
        elif kind in ("new", "nothing"):
            shape.append(1)
    x = reshape(x, shape)
    places = [step.kind for step in steps if step.kind != "at"]
    for n, kind in enumerate(places):
        if kind == "nothing":
            x = movement.narrow(x, n, 0, 0)
    return x


def _indices(cut: Tensor, picks: dict[int, Tensor]) -> list[Value]:
    """Convert index tensors to int64 on the device of the tensor."""
    place = cut.value.device
    found = []
    for pick in picks.values():
        value = pick.value
        if value.device != place:
            pick = pick.to(place)
            value = pick.value
        found.append(value if value.dtype.bits >= 32 else cast(value, int64))
    return found
