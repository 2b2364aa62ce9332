"""Backends: one folder for each kind of device. Each is found by its folder, and imported when first asked for."""

from __future__ import annotations

from functools import cache
from pkgutil import iter_modules


@cache
def kinds() -> tuple[str, ...]:
    """Return the kinds of devices that tilegrad has code for.

    >>> "cpu" in kinds(), "reference" in kinds()
    (True, True)
    """
    return tuple(sorted(folder.name for folder in iter_modules(__path__) if folder.ispkg))
