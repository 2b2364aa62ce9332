"""Transfer memory that has a single owner to a new owner without a copy."""

from __future__ import annotations

from weakref import ref

from ..ir.graph import Value
from .buffer import DeviceBuffer
from .exposure import expose, is_exposed


def take_memory(value: Value) -> DeviceBuffer | None:
    """Take the memory of a value in a new buffer if nothing else refers to it, else return None.

    The test is to drop the only known reference: if the buffer is destroyed, no value, array or program used it. On an
    interpreter that destroys objects later, the memory counts as shared.
    """
    twin = value.buffer.twin()
    if twin is None:
        return None
    exposed = is_exposed(value.buffer)
    value.buffer.hand_over(twin)
    watched = ref(value.buffer)
    value.hold(None)
    found = watched()
    if found is not None:
        value.hold(found)
        twin.hand_over(found)
        return None
    if exposed:
        expose(twin)
    return twin  # type: ignore[no-any-return]
