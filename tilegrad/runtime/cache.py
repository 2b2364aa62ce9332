"""Cache compiled code and measurements on disk, keyed by the hash of what they were made from.

A key is the sha256 of all inputs (`key`); a file holds a header, the key, a checksum and the payload. Files are written
under a temporary name and renamed, so that processes may share a folder; a file that is truncated, foreign or of
another version counts as absent and is rewritten. When a folder exceeds its size, the least recently used entries are
evicted. A folder that cannot be written is no error: the work is repeated in the next process.

Entries are executed. So an entry counts as absent, too, if anybody but this user (or root) could have written it
(`private_folder.py`).
"""

from __future__ import annotations

import functools
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ..config import settings
from .private_folder import SUFFIX, PrivateFolder, opened, owned

HEADER = b"tilegrad cache 2\n"


def key(*parts: object) -> str:
    """Hash the parts that an entry is made from.

    >>> key("ab", "c") == key("a", "bc"), len(key())
    (False, 64)
    """
    digest = hashlib.sha256(HEADER)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    made = digest.hexdigest()
    if collected is not None:
        collected[made] = parts
    return made


collected: dict[str, tuple[object, ...]] | None = None
"""The parts of all keys, where `saved/machine_code.py` collects what a network is compiled to."""
provided: dict[str, bytes] = {}
"""Payloads by key from files whose code the user trusts, as if they were in all folders."""


class Cache:
    """A folder of entries."""

    def __init__(self, folder: Path | None, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self._until_scan = int.from_bytes(os.urandom(4)) % (limit // 20 + 1)
        """Bytes to write before the folder is measured again. Initially random: if every process began with measuring,
        a large folder would delay each of them.
        """

    def read(self, key: str) -> bytes | None:
        """Read the payload under a key, or None."""
        if self.folder is None or key in provided:
            return provided.get(key)
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
        """Write a payload under a key, replacing an existing one."""
        if self.folder is None:
            return
        data = HEADER + bytes.fromhex(key) + hashlib.sha256(payload).digest() + payload
        with suppress(OSError), owned(self.folder) as folder:
            folder.write(key + SUFFIX, data)
            self._until_scan -= len(data)
            if self._until_scan < 0:
                self._evict(folder)

    def _evict(self, folder: PrivateFolder) -> None:
        """Evict least recently used entries until a tenth of the limit is free."""
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
    """Hash source files of the package, so that a change of the source invalidates entries."""
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
    """Return the cache for one kind of entry, in its own folder under the configured one."""
    folder = settings().cache_folder
    return _opened(folder / name if folder else None, settings().cache_bytes)


@functools.cache
def _opened(folder: Path | None, limit: int) -> Cache:
    return Cache(folder, limit)
