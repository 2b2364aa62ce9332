"""Memory that only one value has: it can be given another owner without a copy."""

from __future__ import annotations

from typing import Any
from weakref import ref

from .buffer import Buffer
from .exposed import expose, is_exposed


def alone(held: dict[str, Any]) -> Buffer | None:
    """The memory that `held["buffer"]` has, if nobody else has it: in another buffer then.

    Whether somebody has it is seen by letting go of it: a buffer that is gone is in no value, array or program. Where
    an interpreter lets go of things later than at once, the memory counts as somebody's.
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
