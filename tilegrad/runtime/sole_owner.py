"""Transfer memory that has a single owner to a new owner without a copy."""

from __future__ import annotations

from typing import Any
from weakref import ref

from .buffer import DeviceBuffer
from .exposure import expose, is_exposed


def alone(held: dict[str, Any]) -> DeviceBuffer | None:
    """Take the memory of `held["buffer"]` in a new buffer if nothing else refers to it, else return None.

    The test is to drop the only known reference: if the buffer is destroyed, no value, array or program used it. On an
    interpreter that destroys objects later, the memory counts as shared.
    """
    twin = held["buffer"].twin()
    if twin is None:
        return None
    exposed = is_exposed(held["buffer"])
    held["buffer"].hand_over(twin)
    watched = ref(held["buffer"])
    held["buffer"] = None
    held["buffer"] = found = watched()
    if found is not None:
        twin.hand_over(found)
        return None
    if exposed:
        expose(twin)
    return twin  # type: ignore[no-any-return]
