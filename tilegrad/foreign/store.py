"""Machine code on disk: only what this user's tilegrad wrote is taken, and only if it is what was written.

An entry is a file of the cache (`runtime/cache.py`: a key, a checksum, the code). Before it is read, the file and its
folder must belong to this user and be writable by nobody else; before the code is loaded, its checksum must fit. What
is loaded is a copy of the bytes that were checked, in a file that nobody else can open.
"""

from __future__ import annotations

import ctypes
import os
import stat
from itertools import count
from pathlib import Path

from ..config import settings
from ..runtime.cache import SUFFIX, Cache, shared

FOLDER = "foreign"
_numbers = count()


def cache() -> Cache:
    """Where machine code is kept."""
    return shared(FOLDER)


def read(key: str) -> bytes | None:
    """What was written under a key; None if there is nothing, or if somebody else could have written it."""
    store = cache()
    if store.folder is None or not (_ours(store.folder) and _ours(store.folder / (key + SUFFIX))):
        return None
    return store.read(key)


def write(key: str, payload: bytes) -> None:
    """Keeps machine code."""
    store = cache()
    folder = store.folder
    if folder is None:
        return
    try:
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True)
        if not _ours(folder):
            return
        store.write(key, payload)
        os.chmod(folder / (key + SUFFIX), 0o600)
    except OSError:
        return


def _ours(path: Path) -> bool:
    """Whether this user owns a file or folder (no link to one), and nobody else may write to it."""
    if not hasattr(os, "geteuid"):
        return path.exists()
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return not stat.S_ISLNK(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def loaded(image: bytes, name: str) -> ctypes.CDLL:
    """A shared library from its bytes. Its symbols are its own: others may have the same names."""
    folder = cache().folder
    place = folder if folder is not None and _ours(folder) else Path(_private())
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
