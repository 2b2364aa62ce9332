"""Run small ops on numpy arrays, so that nothing is compiled or translated for what is met seldom: opaque ones by their
definition, and those that move elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..ir.graph import Input, Value
from ..ir.position import row_major
from ..ops.broadcasting import Fill, Reshape, StridedView
from ..ops.creation import Iota
from ..ops.indexing import Gather, TakeAlong
from ..ops.movement import Pad
from ..ops.opaque import Opaque
from ..ops.scatter import clamp_positions
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import Device
from ..runtime.executable import Runner
from .node_groups import RecordedStructure, is_view
from .strided_sources import IDENTITIES, StridedSource

MAX_REFERENCE_BYTES = 1 << 18
"""Bytes of operands and result up to which an op runs so: they stay in the second cache."""
MAX_MOVED_BYTES = 1 << 18
"""Bytes of the result up to which elements are moved so."""
Operand: TypeAlias = "Callable[[Sequence[DeviceBuffer]], np.ndarray[Any, Any]]"
"""Makes the array of an operand from the buffers of a group's sources."""


def runs_by_reference(value: Value) -> bool:
    """Whether an op is small, its definition takes few calls of numpy, and numpy has its dtypes."""
    if not (isinstance(value, Opaque) and value.quick_reference):
        return False
    types: Any = [value.type, *[x.type for x in value.inputs]]
    if sum([t.bytes for t in types]) > MAX_REFERENCE_BYTES:
        return False
    return all(not t.dtype.is_float or t.dtype.bits >= 32 for t in types)


def reference_runner(
    recorded: RecordedStructure, root: int, number_of: Mapping[int, int], place: Device
) -> Runner | None:
    """Return a runner for an op; None if it is large, or an operand is neither in memory nor a constant."""
    value = recorded.values[root]
    operation = _operation(value)
    if operation is None:
        return None
    operands = [_operand(recorded, x, number_of, place) for x in recorded.inputs[root]]
    if None in operands:
        return None
    shape: Any = value.shape
    dtype = value.dtype.numpy

    def run(buffers: Sequence[DeviceBuffer]) -> tuple[DeviceBuffer, ...]:
        with np.errstate(all="ignore"):
            made = np.ascontiguousarray(operation(*[make(buffers) for make in operands if make]), dtype)
        return (place.from_host(made.reshape(shape)),)

    return run


def _operation(value: Value) -> Callable[..., Any] | None:
    """Return the function of arrays that computes a small op; it holds no memory."""
    if runs_by_reference(value):
        op: Any = value.with_inputs([Input(x.type) for x in value.inputs])
        return op.reference  # type: ignore[no-any-return]
    bytes: Any = value.type.bytes
    if bytes > MAX_MOVED_BYTES:
        return None
    match value:
        case Gather():
            return partial(_gathered, value.axes, value.x.shape)
        case TakeAlong():
            return partial(_taken_along, value.axis, value.x.shape)
        case Pad():
            return _padding(value)
    return None


def _gathered(axes: Sequence[int], shape: Sequence[Any], x: Any, *indices: Any) -> Any:
    """Return the elements at positions along some axes."""
    at: list[Any] = [slice(None)] * len(shape)
    for axis, index in zip(axes, indices, strict=True):
        at[axis] = clamp_positions(index, shape[axis])
    return x[tuple(at)]


def _taken_along(axis: int, shape: Sequence[Any], x: Any, index: Any) -> Any:
    """Return the elements at positions along one axis."""
    at: list[Any] = list(np.indices(index.shape, sparse=True))
    at[axis] = clamp_positions(index, shape[axis])
    return x[tuple(at)]


def _padding(value: Pad) -> Callable[..., Any] | None:
    """Return the function that embeds an array in a constant one; None if some elements lie outside."""
    region: list[slice] = []
    sizes: Any = value.sizes
    placed: Any = zip(value.x.shape, value.starts, value.steps, sizes, strict=True)
    for extent, start, step, size in placed:
        last = start + step * (extent - 1)
        if not (extent and 0 <= start < size and 0 <= last < size):
            return None
        stop = last + (1 if step > 0 else -1)
        region.append(slice(start, stop if stop >= 0 else None, step))
    number, dtype, at = value.value, value.dtype.numpy, tuple(region)

    def padded(x: Any) -> Any:
        made = np.full(sizes, number, dtype)
        made[at] = x
        return made

    return padded


def _operand(recorded: RecordedStructure, number: int, number_of: Mapping[int, int], place: Device) -> Operand | None:
    value, source = recorded.values[number], recorded.sources[number]
    shape: Any = value.shape
    if 0 in shape:  # strides of a reversed axis begin before the memory of no elements
        nothing = np.empty(shape, value.dtype.numpy)
        return lambda buffers: nothing
    if source is not None:
        return _at_strides(recorded, source, number_of[source.source], place)
    if isinstance(value, (Fill, Iota)):
        start = value.value if isinstance(value, Fill) else np.arange(*shape)
        constant = np.broadcast_to(np.asarray(start, value.dtype.numpy), shape)
        return lambda buffers: constant
    if not is_view(value):
        return None
    inner = _operand(recorded, recorded.inputs[number][0], number_of, place)
    return None if inner is None else _viewed(value, inner)


def _viewed(value: Value, inner: Operand) -> Operand | None:
    """Return a view of an operand that is at no strides: of a copy of its elements."""
    shape: Any = value.shape
    given = value.inputs[0].shape
    if isinstance(value, (Reshape, *IDENTITIES)):
        return lambda buffers: np.reshape(inner(buffers), shape)
    found: Any = value.strided(row_major(given)) if isinstance(value, StridedView) else None
    if found is None:
        return None
    item = value.dtype.bytes
    strides, first = tuple([step * item for step in found[0]]), found[1] * item

    def made(buffers: Sequence[DeviceBuffer]) -> np.ndarray[Any, Any]:
        memory = np.ascontiguousarray(inner(buffers))
        return np.ndarray(shape, memory.dtype, memory, first, strides)

    return made


def _at_strides(recorded: RecordedStructure, source: StridedSource, place_of: int, place: Device) -> Operand:
    stored = recorded.values[source.source]
    dtype = stored.dtype
    whole: Any = stored.shape
    strides = tuple([step * dtype.bytes for step in source.strides])
    first, shape = source.offset * dtype.bytes, source.shape

    def made(buffers: Sequence[DeviceBuffer]) -> np.ndarray[Any, Any]:
        memory: Any = place.view(buffers[place_of], dtype, whole)
        return np.ndarray(shape, memory.dtype, memory, first, strides)

    return made
