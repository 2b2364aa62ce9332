"""Cache machine code on disk; load only what this user's tilegrad wrote, unmodified.

An entry is a file of the cache (`runtime/cache.py`: key, checksum, code) in a folder that nobody else can write to
(`runtime/private_folder.py`). The checksum is verified, and a private copy of the
verified bytes is loaded.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from ..config import settings
from ..runtime.cache import Cache, shared
from ..runtime.private_folder import PrivateFolder, opened, owned

FOLDER = "foreign"


def cache() -> Cache:
    """Return the machine code cache."""
    return shared(FOLDER)


def read(key: str) -> bytes | None:
    """Read an entry; None if it is missing or others could have written it."""
    return cache().read(key)


def write(key: str, payload: bytes) -> None:
    """Write an entry."""
    cache().write(key, payload)


def loaded(image: bytes, name: str) -> ctypes.CDLL:
    """Load a shared library from bytes, with local symbols: other libraries may define the same names."""
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
    if not _folders:
        import atexit
        import shutil
        import tempfile

        _folders.append(tempfile.mkdtemp(prefix="tilegrad-"))
        atexit.register(shutil.rmtree, _folders[0], True)
    return _folders[0]


def describe() -> str:
    """Describe where the code of this process comes from."""
    folder = settings().cache_folder
    return "nowhere (TILEGRAD_CACHE=off)" if folder is None else str(folder / FOLDER)
