"""Machine code on disk: only what this user's tilegrad wrote is taken, and only if it is what was written.

An entry is a file of the cache (`runtime/cache.py`: a key, a checksum, the code). Before it is read, the file and its
folder must belong to this user and be writable by nobody else; before the code is loaded, its checksum must fit. What
is loaded is a copy of the bytes that were checked, in a file that nobody else can open.
"""

from __future__ import annotations

import ctypes
import os
from itertools import count
from pathlib import Path

from ..config import settings
from ..runtime.cache import Cache, is_ours, shared

FOLDER = "foreign"
_numbers = count()


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
    folder = cache().folder
    place = folder if folder is not None and is_ours(folder) else Path(_private())
    path = place / f"{name}.{os.getpid()}.{next(_numbers)}.aside"
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o700)) as file:
        file.write(image)
    try:
        return ctypes.CDLL(str(path))
    finally:
        if os.name != "nt":  # there a file in use cannot be removed
            os.unlink(path)


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
