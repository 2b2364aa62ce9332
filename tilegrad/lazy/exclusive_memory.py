"""Give storages memory that they own, to be updated in place.

Values recorded earlier and not yet computed must see the old elements, so memory that anyone else holds is copied
before it is written to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from ..ir.graph import Value
from ..ops.broadcasting import Fill
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import device
from ..runtime.sole_owner import take_memory
from .evaluation import constant_memory, in_memory
from .handle import handle_on
from .storage import NEVER


def placeholder_value() -> None:
    """Return a placeholder for a value that nobody holds any more."""


def own_memory(x: Any, is_copied: bool = False) -> Callable[[], Value | None]:
    """Give a storage exclusive memory, reusing that of its old value if nobody else holds it, unless it is copied."""
    base = x.base()
    if base.storage.free() is not None:
        return placeholder_value
    before, memory = ref(base.current()), None
    if base.storage.owned is None and not base.is_tracked() and not is_copied:
        memory = _exclusive_memory(x, base)
    if memory is None:
        memory = _copied(base.current())
    give_memory(x, memory)
    return before


def _copied(value: Value) -> DeviceBuffer:
    if isinstance(value, Fill) and value.buffer is None:
        return constant_memory(value)
    return device(value.type.device).copy(in_memory(handle_on(value)).buffer)


def give_memory(x: Any, memory: DeviceBuffer) -> None:
    """Let the storage of a tensor own memory that has its elements."""
    base = x.base()
    base.own(memory)
    if not x._moves:
        x._value, x._seen = base.value, NEVER


def _exclusive_memory(x: Any, base: Any) -> DeviceBuffer | None:
    """Return the memory of a value if nobody else holds the value or its memory, else None.

    Ownership is tested by dropping the references to the value.
    """
    value = base.current()
    own_copy = value.copied()
    before, whole, held = ref(value), base.storage.value, x._value
    base.value = own_copy
    base.storage.value = own_copy if whole is value else whole
    x._value = own_copy if held is value else held
    del value, whole, held
    kept = before()
    if kept is not None:  # another reader needs the old elements
        base.value = kept
        base.storage.value = kept if base.storage.value is own_copy else base.storage.value
        x._value = kept if x._value is own_copy else x._value
        return None
    if own_copy.buffer is None:
        if isinstance(own_copy, Fill):
            return constant_memory(own_copy)
        from .realize import realize  # loads the compiler

        realize([own_copy])
    return take_memory(own_copy)
