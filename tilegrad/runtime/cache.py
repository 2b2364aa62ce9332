"""Compiled code and measurements on disk, found again by what they were made from.

A key is the sha256 of everything that matters (`key`); a file holds a header, the key, a checksum and the payload.
Files appear whole (written aside, then renamed), so that processes may share a folder; a file that is torn, foreign
or of another version counts as absent and is written anew. When a folder grows over its size the entries that were
not used for longest go. A folder that cannot be written is no error: the work is done again in the next process.

What is in an entry is executed. So one counts as absent, too, if anybody but this user (or root) could have written it
(`private.py`).
"""

from __future__ import annotations

import functools
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ..config import settings
from .private import SUFFIX, PrivateFolder, opened, owned

HEADER = b"tilegrad cache 2\n"


def key(*parts: object) -> str:
    """The name of what is made from these parts.

    >>> key("ab", "c") == key("a", "bc"), len(key())
    (False, 64)
    """
    digest = hashlib.sha256(HEADER)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


class Cache:
    """A folder of entries."""

    def __init__(self, folder: Path | None, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self._until_scan = int.from_bytes(os.urandom(4)) % (limit // 20 + 1)
        """Bytes that may be written before the folder is measured again. At first a number drawn by lot: if every
        process began with measuring, a large folder would make each of them wait."""

    def read(self, key: str) -> bytes | None:
        """The payload that was written under this key, or None."""
        if self.folder is None:
            return None
        try:
            with opened(self.folder) as folder:
                data = folder.read(key + SUFFIX, used=True) if folder.is_believed() else None  # used: the last to go
        except OSError:
            return None
        start = len(HEADER) + 64
        if data is None or data[: len(HEADER) + 32] != HEADER + bytes.fromhex(key):
            return None
        payload = data[start:]
        return payload if data[start - 32 : start] == hashlib.sha256(payload).digest() else None

    def write(self, key: str, payload: bytes) -> None:
        """Keeps a payload under a key, in place of what was there."""
        if self.folder is None:
            return
        data = HEADER + bytes.fromhex(key) + hashlib.sha256(payload).digest() + payload
        with suppress(OSError), owned(self.folder) as folder:
            folder.write(key + SUFFIX, data)
            self._until_scan -= len(data)
            if self._until_scan < 0:
                self._evict(folder)

    def _evict(self, folder: PrivateFolder) -> None:
        """Removes the entries that were not used for longest, until a tenth of the room is free."""
        entries = sorted(
            (status.st_mtime, status.st_size, name) for name, status in folder.files() if name.endswith(SUFFIX)
        )
        total = sum(size for _, size, _ in entries)
        if total > self.limit:
            for _, size, name in entries:
                if total <= self.limit * 9 // 10:
                    break
                folder.remove(name)
                total -= size
        self._until_scan = max(self.limit // 20, (self.limit - total) // 2)


@functools.cache
def sources(*parts: str) -> str:
    """Which source stands in some folders and files of the package: what other source made is not taken for its own."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found: list[tuple[str, int, int]] = []
    waiting = [os.path.join(package, part) for part in parts]
    while waiting:
        path = waiting.pop()
        if path.endswith(".py"):
            status = os.stat(path)
            found.append((path[len(package) :], status.st_size, status.st_mtime_ns))
        else:
            inside = (e for e in os.scandir(path) if e.name != "__pycache__")
            waiting += [e.path for e in inside if e.name.endswith(".py") or e.is_dir()]
    return key(*sorted(found))


def shared(name: str) -> Cache:
    """The cache for one kind of thing, in a folder of its own under the one that the knobs name."""
    folder = settings().cache_folder
    return _opened(folder / name if folder else None, settings().cache_bytes)


@functools.cache
def _opened(folder: Path | None, limit: int) -> Cache:
    return Cache(folder, limit)
