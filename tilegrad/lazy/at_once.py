"""Index, read, write and combine elements at once, without recording: those in memory that need no gradient.

A recorded program of one element costs a thousand times what its arithmetic does. So an item of a tensor in memory is
read when it is indexed, an assignment writes to the memory that the storage owns, and arithmetic of items is Python's.
Whatever else there is to think of (gradients, traces, placeholders, other devices and dtypes, memory that others may
write to) is recorded, with the same results.
"""

from __future__ import annotations

from ctypes import c_float
from math import isfinite
from operator import add, mul, sub, truediv
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ..errors import TraceError
from ..ir.dtype import bool_, float32
from ..ir.graph import Input, Value
from ..ir.location import current_location
from ..ops.broadcasting import Fill, dense
from ..ops.movement import select, slice_axis
from ..runtime.buffer import DeviceBuffer
from ..runtime.exposure import Exposures
from . import deferred_value  # noqa: F401 - tensors without values
from .elements import MAX_COMBINED_ELEMENTS, ElementAccess, MemoryPart, Region, element_access, few_elements, new_tuple
from .evaluation import compute
from .exclusive_memory import own_memory
from .handle import Handle, result_class, state
from .layout import layout
from .storage import Base, Storage, WriteRecord, cut, one_writer, path_to, write_listeners

if TYPE_CHECKING:
    from ..tensor import Tensor

MAX_COPIED_BYTES = 1 << 20
"""Bytes of a storage that a write copies because recorded work reads the old elements; in larger ones it is recorded.
"""
MAX_COMPUTED_BYTES = 1 << 28
"""Bytes of a recorded tensor up to which all of it is computed when an item is asked for."""
MAX_EXACT_INTEGER = 1 << 53
"""Magnitude up to which every integer is a Python float."""

IN_PLACE = {"add_": add, "sub_": sub, "mul_": mul, "div_": truediv}

_new: Any = object.__new__


class MemorySource(NamedTuple):
    """Elements to assign: a part of the memory of another tensor."""

    memory: DeviceBuffer
    part: MemoryPart


class Selection(NamedTuple):
    """The move that cuts the part which integers and slices select."""

    key: Any

    def __call__(self, x: Value) -> Value:
        axis = 0
        for index in self.key if self.key.__class__ is tuple else (self.key,):
            if index.__class__ is int:
                x = select(x, axis, index)
            else:
                x = slice_axis(x, axis, index.start, index.stop, index.step)
                axis += 1
        return x


def region_of(x: Handle) -> Region | None:
    """Return the place of a tensor in the memory of its storage; None if elements are not to be accessed at once."""
    found = x._region
    if found is not None and found.base is x._base and found.moves is x._moves:
        return found
    value = x._value
    if value.tracked or x._strides is not None or x.stands_for is not None:
        return None
    type = value.type
    own = element_access(type.dtype, type.device)
    if own is None or not all(extent.__class__ is int for extent in type.shape):
        return None
    base = x.base()
    if base.__class__ is not Base or x._strides is not None or base.storage.value.type.dtype is not type.dtype:
        return None
    strides, offset = layout(x)
    region = x._region = Region(base, x._moves, MemoryPart(type.shape, strides, offset), own, _is_assignable(x))  # type: ignore[arg-type]
    return region


def _is_assignable(x: Handle) -> bool:
    """Whether a view has each element of its base at most once."""
    if not x._moves:
        return True
    from ..ops.indexing import is_assignable  # loads the kernels of scatter

    whole = Input(x.base().value.type)
    return all(map(is_assignable, path_to(cut(whole, x._moves), whole)))


def part_of(region: Region, key: Any) -> MemoryPart | None:
    """Return the part that integers and slices select; None for other keys, and for indices outside the axes."""
    extents, steps, offset = region[2]
    if key.__class__ is int and len(extents) == 1:
        extent = extents[0]
        index = key if key >= 0 else key + extent
        return new_tuple(MemoryPart, ((), (), offset + index * steps[0])) if 0 <= index < extent else None
    keys = key if key.__class__ is tuple else (key,)
    if len(keys) > len(extents):
        return None
    shape, strides = [], []
    for index, extent, stride in zip(keys, extents, steps):  # noqa: B905 - further axes are whole
        if index.__class__ is int:
            if index < 0:
                index += extent
            if not 0 <= index < extent:
                return None
            offset += index * stride
        elif index.__class__ is slice:
            if not _is_plain(index):
                return None
            start, stop, step = index.indices(extent)
            shape.append(max(0, -((start - stop) // step)))
            strides.append(stride * step)
            offset += start * stride
        else:
            return None
    rest = len(keys)
    return new_tuple(MemoryPart, ((*shape, *extents[rest:]), (*strides, *steps[rest:]), offset))  # type: ignore[no-any-return]


def _is_plain(index: slice) -> bool:
    """Whether a slice has integers in ascending order."""
    start, stop, step = index.start, index.stop, index.step
    return (
        (start is None or start.__class__ is int)
        and (stop is None or stop.__class__ is int)
        and (step is None or (step.__class__ is int and step > 0))
    )


def part_read(x: Handle, key: Any) -> Tensor | None:
    """Return x[key] as a view of few elements, which are read; None if it is to be recorded."""
    region = x._region
    if region is None or region.base is not x._base or region.moves is not x._moves:
        region = region_of(x)
        if region is None:
            return None
    part = part_of(region, key)
    if part is None:
        return None
    base, moves, _, access, assignable = region
    storage, shape = base.storage, part[0]
    changes = storage.changes  # asked first: what another thread writes meanwhile is seen the next time
    made = _new(result_class())
    if shape:
        memory, kind = region.memory(), few_elements(access.dtype, shape, access.name)
        numbers = None
        if memory is not None and kind is not None and kind.elements <= MAX_COMBINED_ELEMENTS:
            numbers = kind.read(memory, part)
        if numbers is not None:
            made._numbers, made._kind = numbers, kind
        elif (value := region.read(part)) is not None:
            made._value = value
        else:
            return None
    else:
        number = region.number(part[2])
        if number is None:
            changes, number = storage.changes, region.number(part[2]) if _compute(x, base) else None
            if number is None:
                return None
        made._numbers, made._kind = (number,), access.single
    made._base = base
    made._seen = region.seen(changes) if Exposures.any else changes
    moves = made._moves = (*moves, new_tuple(Selection, (key,)))
    made._region = new_tuple(Region, (base, moves, part, access, assignable))
    return made  # type: ignore[no-any-return]


def _compute(x: Handle, base: Base) -> bool:
    """Compute a recorded tensor of which an item is asked for: every item would be a program of its own."""
    storage = base.storage
    value: Any = storage.value
    if x._moves or value.buffer is not None or storage.owned is not None or value.__class__ is Fill:
        return False
    if storage.traced or value.tracked or state.stand_ins or value.type.bytes > MAX_COMPUTED_BYTES:
        return False
    try:
        compute(x)
    except TraceError:  # it depends on a placeholder
        return False
    return True


# --- numbers -----------------------------------------------------------------------------------


def number_of(x: Handle) -> Any:
    """Return the only element of a tensor without axes as a number; None if it is not known, or traced."""
    if state.trace is not None:
        return None
    numbers = present_numbers(x)
    if numbers is not None:
        return numbers[0] if len(numbers) == 1 else None
    value = x._value if x._base is None else x.own_value()
    type, memory = value.type, value.buffer
    access = element_access(type.dtype, type.device)
    if access is None or type.shape:
        return None
    return operand_number(x, access) if memory is None else access.space[memory.address // access.size]


def present_numbers(x: Handle) -> tuple[Any, ...] | None:
    """Return the numbers of a tensor that has no value; those of a view are read again after writes to its storage."""
    numbers, base = x._numbers, x._base
    if numbers is None or base is None or x._seen == base.storage.changes:
        return numbers
    region = x._region
    if region is None or region.base is not base or region.moves is not x._moves:
        return None
    return region.numbers(x._kind)


def operand_number(x: Any, own: ElementAccess) -> Any:
    """Return an operand as a number of a dtype; None if it is not there, or would be promoted."""
    if isinstance(x, Handle):
        value, base = x._value, x._base
        if base is not None and x._seen != base.storage.changes:
            if (number := _reread(x, base, own)) is not None:
                return number
            value = x.own_value()
        type, memory = value.type, value.buffer
        if type.shape or type.dtype is not own.dtype or type.device != own.name or value.tracked:
            return None
        if memory is not None:
            return own.space[memory.address // own.size]
        if value.__class__ is not Fill or base is not None:
            return None
        return own.rounded(value.value)
    dtype = own.dtype
    if dtype.kind == "float":
        if x.__class__ is not float:
            if x.__class__ is not int or not -MAX_EXACT_INTEGER <= x <= MAX_EXACT_INTEGER:
                return None
            x = float(x)
        return c_float(x).value if dtype is float32 else x
    return x if x.__class__ is int and dtype.is_integer and dtype.min <= x <= dtype.max else None


def _reread(x: Handle, base: Base, own: ElementAccess) -> Any:
    """Return the present number of an item whose storage was written to; None if it is to be asked for otherwise."""
    region = x._region
    if region is None or region.base is not base or region.moves is not x._moves or region.part.shape:
        return None
    memory = region.memory() if region.access is own else None
    return None if memory is None else own.space[memory.address // own.size + region.part.offset]


# --- writes ------------------------------------------------------------------------------------


def assign(x: Handle, key: Any, value: Any) -> bool:
    """Write x[key] = value to the memory of the storage; False if the assignment is to be recorded."""
    region = x._region
    if region is None or region.base is not x._base or region.moves is not x._moves:
        region = region_of(x)
        if region is None:
            return False
    part = part_of(region, key)
    return part is not None and write(x, region, part, value, "item assignment")


def write(x: Handle, region: Region, part: MemoryPart, value: Any, op: str) -> bool:
    """Write a number, or a tensor in memory, to a part of the region of x; False if the write is to be recorded."""
    base, _, _, own, assignable = region
    is_tensor = isinstance(value, Handle)
    given = _given(value, part, own) if is_tensor else _converted(value, own, part)
    if given is None or not assignable or not _is_writable(x, base):
        return False
    storage = base.storage
    with one_writer:
        memory = storage.owned if storage.lent is None else storage.free()
        before = None if memory is not None else own_memory(x, _is_borrowed(storage))
        memory = storage.owned
        if memory is None:
            return False
        if part[0]:
            source = own.array(given.memory, given.part) if isinstance(given, MemorySource) else given
            own.array(memory, part)[...] = source
        else:
            own.space[memory.address // own.size + part[2]] = given
        _note(base, op, None if before is None else before())
    return True


def _given(value: Handle, part: MemoryPart, own: ElementAccess) -> Any:
    """Return an assigned tensor as a number of the dtype or the place of elements; None if it is to be recorded."""
    numbers = present_numbers(value)
    if numbers is not None and not value._kind.shape and value._kind.access.name == own.name:
        return _converted(numbers[0], own, part)
    known = value.own_value()
    type = known.type
    if known.tracked or type.device != own.type.device:
        return None
    if not type.shape:
        number = number_of(value)
        return None if number is None else _converted(number, own, part)
    if type.dtype is not own.dtype or not _fits(type.shape, part.shape):
        return None
    if known.buffer is not None:
        return MemorySource(known.buffer, MemoryPart(type.shape, dense(type.shape), 0))
    region = region_of(value)
    memory = None if region is None else region.memory()
    return None if region is None or memory is None else MemorySource(memory, region.part)


def _fits(shape: Any, wanted: Any) -> bool:
    """Whether elements of a shape can be repeated to another one."""
    behind = wanted[len(wanted) - len(shape) :]
    return len(shape) <= len(wanted) and all(map(_repeats, shape, behind))


def _repeats(extent: int, wanted: int) -> bool:
    return extent in (1, wanted)


def _converted(number: Any, own: ElementAccess, part: MemoryPart) -> Any:
    """Convert a number to a dtype as assignments do; None if that is to be recorded."""
    kind, dtype = number.__class__, own.dtype
    if kind is not float and kind is not int and kind is not bool:
        return None
    if dtype.kind == "float":
        if kind is int and not -MAX_EXACT_INTEGER <= number <= MAX_EXACT_INTEGER:
            return None
        if part.shape and dtype is float32 and isfinite(number) and not dtype.min <= number <= dtype.max:
            return None
        return number
    if dtype is bool_:
        return bool(number)
    if kind is float:
        if not isfinite(number):
            return None
        number = int(number)
    return number if dtype.min <= number <= dtype.max else None


def _is_writable(x: Handle, base: Base) -> bool:
    """Whether elements of a storage may be written to without recording."""
    storage = base.storage
    if base.hidden or base.unrecorded or base.keeper is not None or base.value.tracked:
        return False
    if storage.traced or storage.common or write_listeners or state.stand_ins or x.stands_for is not None:
        return False
    value = storage.value
    if value.tracked or value.provenance.severed:
        return False
    if storage.owned is None:
        memory = value.buffer  # that of an array is copied: the array keeps its numbers
        return isinstance(value, Fill) if memory is None else memory.shared or Region.is_private(memory)
    if not Region.is_private(storage.owned):
        return False
    return storage.lent is None or storage.free() is not None or _is_only_reader(base, storage)


def _is_borrowed(storage: Storage) -> bool:
    """Whether the memory of a storage is that of an array."""
    memory = storage.value.buffer
    return storage.owned is None and memory is not None and memory.shared


def _is_only_reader(base: Base, storage: Storage) -> bool:
    """Whether the memory of a storage is lent to a value of this history, and is to be copied before it is written."""
    reader = None if base.reader is None else base.reader()
    return reader is not None and storage.owned is not None and storage.owned.bytes <= MAX_COPIED_BYTES


def _note(base: Base, op: str, old: Value | None) -> None:
    """Note that elements have changed, for views and for the check of saved values."""
    storage = base.storage
    if old is not None or storage.epoch is not None:
        base.wrote(op)
        if old is not None and not old.provenance.is_interned:
            old.note().change = storage.change
        return
    storage.change = new_tuple(WriteRecord, (op, current_location(), ref(base.value)))
    storage.version += 1
    storage.changes += 1
    base.seen = storage.changes
