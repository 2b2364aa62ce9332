"""Machine code on disk: only what this user's tilegrad wrote is taken, and only if it is what was written.

An entry is a file of the cache (`runtime/cache.py`: a key, a checksum, the code) in a folder of which nobody else could
ever write a file (`runtime/private.py`); before the code is loaded, its checksum must fit. What is loaded is a copy of
the bytes that were checked, in a file that nobody else can open.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from ..config import settings
from ..runtime.cache import Cache, shared
from ..runtime.private import PrivateFolder, opened, owned

FOLDER = "foreign"


def cache() -> Cache:
    """Where machine code is kept."""
    return shared(FOLDER)


def read(key: str) -> bytes | None:
    """What was written under a key; None if there is nothing, or if somebody else could have written it."""
    return cache().read(key)


def write(key: str, payload: bytes) -> None:
    """Keeps machine code."""
    cache().write(key, payload)


def loaded(image: bytes, name: str) -> ctypes.CDLL:
    """A shared library from its bytes. Its symbols are its own: others may have the same names."""
    place = cache().folder
    if place is not None:
        with suppress(OSError), owned(place) as folder:
            return _loaded(image, name, folder)
    with opened(_private()) as folder:
        return _loaded(image, name, folder)


def _loaded(image: bytes, name: str, folder: PrivateFolder) -> ctypes.CDLL:
    file = folder.put("".join(c for c in name if c.isalnum() or c in "_-"), image, 0o700)
    try:
        return ctypes.CDLL(folder.place(file))
    finally:
        if os.name != "nt":  # there a file in use cannot be removed
            folder.remove(file)


_folders: list[str] = []


def _private() -> str:
    """A folder of this process, for when there is no cache."""
    if not _folders:
        import atexit
        import shutil
        import tempfile

        _folders.append(tempfile.mkdtemp(prefix="tilegrad-"))
        atexit.register(shutil.rmtree, _folders[0], True)
    return _folders[0]


def describe() -> str:
    """Where the code of this process comes from, in words."""
    folder = settings().cache_folder
    return "nowhere (TILEGRAD_CACHE=off)" if folder is None else str(folder / FOLDER)
