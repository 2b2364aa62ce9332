"""Evaluate recorded tensors when their elements are needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ..errors import ArgumentError, GradientError, TraceError
from ..ir.graph import Input, Value, topological
from ..ir.location import Location, current_location
from ..ir.node import amend
from ..ir.size import known
from ..ops.broadcasting import Fill
from ..ops.cast import Detach
from ..ops.control import checked_index
from ..ops.creation import Iota
from ..ops.joint import joint_outputs
from ..ops.movement import Permute
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import device, known_devices
from .handle import Handle, state, written
from .storage import Base

MAX_CHECKED_INDICES = 1 << 16
"""Number of indices up to which an index tensor in memory is checked at once."""


class IndexCheck(NamedTuple):
    """A deferred bounds check of indices."""

    bounds: tuple[Value, ...]
    """The smallest and largest index as tensors; empty if these are known."""
    extent: int
    axis: int
    op: str
    from_end: bool
    location: Location | None


class Pending(threading.local):
    """Per thread: checks and gradients that wait for the next evaluation."""

    def __init__(self) -> None:
        self.checks: list[IndexCheck] = []
        """Checks of indices that were not computed when they were used."""
        self.differentiated: WeakValueDictionary[int, Handle] = WeakValueDictionary()
        """Tensors whose gradients were requested, with these gradients. By identity: `==` compares elements."""


pending = Pending()
after_evaluations: list[Callable[[], None]] = []
"""Called after each evaluation (`bounded_recording.py`)."""


def compute(*tensors: Handle) -> list[Value]:
    """Compute tensors in one program and keep their elements; without tensors, run what is pending. Returns the values
    that they had: another thread may assign new ones meanwhile.
    """
    try:
        own = [x.value for x in tensors]
    except AttributeError:
        raise ArgumentError(f"compute takes tensors, not {[type(x).__name__ for x in tensors]}") from None
    if own and None not in [v.buffer for v in own]:
        return own
    checks, company, others, initial = _take_pending() if state.trace is None else ([], [], [], [])
    values = own + [b for check in checks for b in check.bounds]
    realize = realization().realize
    try:
        if initial:
            realize(initial)
        realize([*values, *(x.own_value() for x in company), *others])
    except TraceError:
        if not company and not others:
            raise
        realize(values)  # what is computed from something that vmap maps stands for nothing outside of it
    except KeyboardInterrupt:
        pending.checks[:0] = checks  # for the next evaluation
        raise
    for x in (*tensors, *company):
        drop_history(x)
    for value in others:
        forget(value)
    for after in after_evaluations:
        after()
    for check in checks:
        low, high = (int(_array(bound)) for bound in check.bounds)
        refuse_outside(low, high, check)
    return own


def _take_pending() -> tuple[list[IndexCheck], list[Handle], list[Value], list[Value]]:
    """Return what waits for an evaluation, and no longer does: checks, gradients, written values, first states."""
    checks = [check for check in pending.checks if is_known(check.bounds)]
    pending.checks.clear()
    gradients = list(pending.differentiated.values()) if pending.differentiated else []
    if gradients:
        pending.differentiated.clear()
    return checks, gradients, _written(), _initial()


@cache
def realization() -> ModuleType:
    """Import the compiler when something is first computed."""
    return import_module(".realize", __package__)


def in_memory(x: Handle) -> Value:
    """Compute a tensor and return its value."""
    value = x.value if state.trace is not None else x.own_value()
    return value if value.buffer is not None else compute(x)[0]


def _written() -> list[Value]:
    """List the written storages and the detached values that are not computed. They are computed with any evaluation,
    or they would grow by the work of each step; values with a gradient history keep those operations anyway.
    """
    if not written.storages and not written.detached:
        return []
    found, detached = [s.value for s in written.storages.values()], list(written.detached.values())
    written.storages.clear()
    written.detached.clear()
    found = [v for v in found if not v.tracked or v.provenance.is_leaf] + [v for v in detached if is_known([v])]
    return [v for v in found if v.buffer is None]


def _initial() -> list[Value]:
    """List what long-lived state was before its first update, if something still reads it."""
    if not written.initial:
        return []
    noted = list(written.initial.values())
    written.initial.clear()
    updated: set[Value] = set(noted)
    for v in topological(noted, lambda v: v.buffer is not None):
        if v.buffer is None and not updated.isdisjoint(v.inputs):
            updated.add(v)
    return [v for v in noted if v.buffer is None and updated.isdisjoint(v.inputs) and is_known([v])]


def compute_together(tensors: Iterable[Handle]) -> None:
    """Compute these tensors together when one of them is evaluated, as they share most of their work; those that are no
    longer referenced are skipped.
    """
    if state.trace is None:
        pending.differentiated.update({id(x): x for x in tensors if x._value.buffer is None})


def is_known(values: Sequence[Value]) -> bool:
    """Whether values can be computed: values of a mapped or traced function have no elements outside it."""
    reached = topological(values, lambda v: v.buffer is not None)
    return all(v.buffer is not None or not isinstance(v, Input) for v in reached)


def drop_history(x: Handle) -> None:
    """Drop the history of a computed tensor if no gradient needs it."""
    value = x._value
    if value.buffer is None or not value.inputs:
        return
    if value.provenance.is_leaf:
        forget(value)
        return
    memory = Input(value.type)
    memory.hold(value.buffer)
    if value.tracked:
        if not value.provenance.is_released:
            return
        memory = _spent(memory, value)
    x._value = memory
    if x._base is not None:
        _drop_history_of_base(x, x._base, value, memory)


def _drop_history_of_base(x: Handle, base: Base, value: Value, memory: Value) -> None:
    """Let a storage hold what a tensor on it holds, if it is of the whole of it."""
    whole = base.value
    if whole is value and not x._moves:
        base.value = memory
    elif whole.provenance.is_reordered and whole.inputs[0] is value and whole.buffer is None:
        base.value = Permute(memory, whole.axes)  # type: ignore[attr-defined]
        base.value.note().is_reordered = True
    if base.storage.value is whole:
        base.storage.value = base.value


def forget(written: Value) -> None:
    """Drop the history of a leaf, and of writes to a storage, for all tensors on it."""
    if written.buffer is not None and isinstance(written, Detach):
        memory = Input(written.type)
        memory.hold(written.buffer)
        amend(written, x=memory, inputs=(memory,))


def _spent(memory: Value, value: Value) -> Any:
    """Return the elements of a value whose history was released by a gradient."""
    placeholder = Input(value.type)
    amend(placeholder, tracked=True)
    said = (
        f"{value.op} of shape {list(value.shape)} was differentiated before, and what it saved for that was released. "
        "Call backward(retain_graph=True) the first time if you need a second"
    )

    def refuse(_: Sequence[Value | None]) -> Sequence[Value | None]:
        raise GradientError(said)

    (made,) = joint_outputs([memory], [placeholder], refuse)
    made.hold(memory.buffer)
    made.note().spent = said
    return made


def constant_memory(value: Fill) -> DeviceBuffer:
    """Fill memory with one number, as the initial state of an optimizer: cheaper than a program."""
    shape = tuple([known(extent, {}) for extent in value.shape])
    return device(value.device).from_host(np.full(shape, value.value, value.dtype.numpy))


def array_of(x: Handle) -> np.ndarray[Any, Any]:
    """Return the elements as an array, on the tensor's memory if the host can access it; not to be written to."""
    return _array(in_memory(x))


def _array(value: Value) -> np.ndarray[Any, Any]:
    place = device(value.type.device)
    shape: Any = value.type.shape
    found = place.view(value.buffer, value.type.dtype, shape)
    return place.to_host(value.buffer, value.type.dtype, shape) if found is None else found


def check_index(index: Value, extent: Any, axis: int, op: str, *, from_end: bool = True) -> Value:
    """Check that indices are inside an axis, now if they are known, else when they are computed; return the indices to
    use, which the kernels of a traced function check themselves.

    `from_end`: whether negative indices count from the end.
    """
    if state.trace is not None:
        return checked_index(index, extent, axis, op, from_end) if index.type.count != 0 else index
    count = index.type.count
    if not isinstance(extent, int) or not isinstance(count, int) or not count:
        return index
    check = IndexCheck((), extent, axis, op, from_end, current_location())
    own = index.__dict__
    known = own.get("index_bounds")
    if known is None and own.get("buffer") is not None and count <= MAX_CHECKED_INDICES:
        array = _array(index)
        known = int(array.min()), int(array.max())
        amend(index, index_bounds=known)
    elif known is None and isinstance(index, Iota):
        known = 0, count - 1
    if known is None:
        from ..ops.indexing import index_bounds

        pending.checks.append(check._replace(bounds=index_bounds(index)))
    else:
        low, high = known
        refuse_outside(low, high, check)
    return index


def refuse_outside(low: int, high: int, check: IndexCheck) -> None:
    """Raise unless all indices from low to high are inside an axis."""
    extent = check.extent
    least = -extent if check.from_end else 0
    if low < least or high >= extent:
        wrong, lines = low if low < least else high, str(check.location) if check.location else ""
        from ..runtime.index_faults import outside_axis

        raise outside_axis(check.op, wrong, extent, check.axis, check.from_end, lines)


def live_bytes() -> int:
    """Count the bytes that live tensors hold, on all devices in use."""
    return sum([place.live_bytes for place in known_devices()])
