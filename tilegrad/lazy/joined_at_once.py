"""Concatenate and stack many tensors in memory at once, without recording: as few elements (`few_elements.py`).

A recorded concatenation of a thousand pieces is a graph of a thousand leaves, all of which are visited when it is
recorded, looked up, planned and run. Copying a piece takes less than one of these visits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .at_once import region_of
from .elements import ElementAccess, MemoryPart, dense_strides, element_access
from .few_elements import is_observed
from .handle import Handle, result_class, state

if TYPE_CHECKING:
    from ..tensor import Tensor

MAX_JOINED_BYTES = 1 << 26
"""Bytes of a result up to which this thread copies it; more are worth all threads."""

_new: Any = object.__new__


def joined(tensors: Sequence[Any], axis: Any, is_stack: bool = False) -> Tensor | None:
    """Concatenate tensors along an axis, or stack them along a new one; None: it is to be recorded."""
    if (
        not isinstance(tensors[0], Handle)
        or axis.__class__ is not int
        or state.trace is not None
        or state.stand_ins
        or is_observed()
    ):
        return None
    like = tensors[0]._value.type
    access, rank = element_access(like.dtype, like.device), len(like.shape)
    axis += (rank + is_stack) * (axis < 0)
    if access is None or not 0 <= axis < rank + is_stack:
        return None
    shape = _shape([x._value.type.shape for x in tensors if isinstance(x, Handle)], axis, is_stack)
    if shape is None or not 0 < prod(shape) * access.size <= MAX_JOINED_BYTES:
        return None
    parts = _contiguous(tensors, access) if prod(shape[:axis]) == 1 else None
    if parts is not None:
        return _tensor(access, shape, memoryview(b"".join(parts)))
    arrays = _arrays(tensors, access)
    if arrays is None:
        return None
    join: Callable[..., Any] = np.stack if is_stack else np.concatenate
    return _tensor(access, shape, memoryview(join(arrays, axis).reshape(-1)).cast("B"))


def _shape(shapes: Sequence[tuple[Any, ...]], axis: int, is_stack: bool) -> tuple[int, ...] | None:
    """Return the shape of the result; None if the pieces do not fit together, or sizes vary."""
    first = shapes[0]
    if any(extent.__class__ is not int for extent in first):
        return None
    if is_stack:
        return (*first[:axis], len(shapes), *first[axis:]) if shapes.count(first) == len(shapes) else None
    before, after, rank = first[:axis], first[axis + 1 :], len(first)
    count = 0
    for shape in shapes:
        if len(shape) != rank or shape[:axis] != before or shape[axis + 1 :] != after:
            return None
        if shape[axis].__class__ is not int:
            return None
        count += shape[axis]
    return (*before, count, *after)


def _contiguous(tensors: Iterable[Any], access: ElementAccess) -> list[memoryview] | None:
    """Return the elements of tensors, each in row-major order in one memory; None if those of one are not."""
    found, space, size, dtype, name = [], access.space, access.size, access.dtype, access.name
    for x in tensors:
        if not isinstance(x, Handle) or x._strides is not None or x.stands_for is not None:
            return None
        value = x._value if x._base is None else x.own_value()
        type, memory = value.type, value.buffer
        if memory is None or type.dtype is not dtype or type.device != name or value.tracked:
            return None
        start = memory.address // size
        found.append(space[start : start + type.count])
    return found


def _arrays(tensors: Iterable[Any], access: ElementAccess) -> list[Any] | None:
    """Return tensors as arrays on their memory; None if one is not in memory, or needs a gradient."""
    found = []
    for x in tensors:
        if not isinstance(x, Handle) or x._strides is not None or x.stands_for is not None:
            return None
        value = x._value if x._base is None else x.own_value()
        type, memory = value.type, value.buffer
        if type.dtype is not access.dtype or type.device != access.name or value.tracked:
            return None
        part = MemoryPart(type.shape, dense_strides(type.shape), 0)
        if memory is None:
            region = region_of(x)
            memory = None if region is None else region.memory()
            if region is None or memory is None or region.base.storage.value.provenance.severed:
                return None  # if a gradient is asked for, the error names the kernel that stored the elements
            part = region.part
        found.append(access.array(memory, part))
    return found


def _tensor(access: ElementAccess, shape: tuple[int, ...], bytes: memoryview) -> Tensor:
    made, format = _new(result_class()), access.space.format
    made._value = access.filled(shape, bytes.cast(format))  # type: ignore[call-overload]
    return made  # type: ignore[no-any-return]
