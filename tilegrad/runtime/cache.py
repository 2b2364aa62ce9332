"""Compiled code and measurements on disk, found again by what they were made from.

A key is the sha256 of everything that matters (`key`); a file holds a header, the key, a checksum and the payload.
Files appear whole (written aside, then renamed), so that processes may share a folder; a file that is torn, foreign
or of another version counts as absent and is written anew. When a folder grows over its size the entries that were
not used for longest go. A folder that cannot be written is no error: the work is done again in the next process.

What is in an entry is executed. So one counts as absent, too, if anybody but this user (or root) could have written it:
the file and its folder belong to them, are no links, and others may not write there.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import time
from itertools import count
from pathlib import Path

from ..config import settings

HEADER = b"tilegrad cache 1\n"
SUFFIX = ".entry"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
ABANDONED = 3600.0
"""Seconds after which a file that was being written aside belongs to a process that has died."""


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
        path = self.folder / (key + SUFFIX)
        if not (is_ours(self.folder) and is_ours(path)):
            return None
        try:
            data = path.read_bytes()
            os.utime(path)  # used now: the last to go
        except OSError:
            return None
        start = len(HEADER) + 64
        payload = data[start:]
        if data[:start] != HEADER + bytes.fromhex(key) + hashlib.sha256(payload).digest():
            return None
        return payload

    def write(self, key: str, payload: bytes) -> None:
        """Keeps a payload under a key, in place of what was there."""
        if self.folder is None:
            return
        data = HEADER + bytes.fromhex(key) + hashlib.sha256(payload).digest() + payload
        aside = ""
        try:
            self._made(self.folder)
            aside = str(self.folder / f"{key}.{os.getpid()}.{next(_writes)}.aside")
            with open(aside, "xb", opener=_private) as file:
                file.write(data)
            os.replace(aside, self.folder / (key + SUFFIX))
            self._until_scan -= len(data)
            if self._until_scan < 0:
                self._evict()
        except OSError:
            if aside:
                _remove(aside)

    @staticmethod
    def _made(folder: Path) -> None:
        """Makes the folder, or takes from others the right to write to ours."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name != "nt" and not is_ours(folder):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~OTHERS_WRITE)

    def _evict(self) -> None:
        """Removes the entries that were not used for longest, until a tenth of the room is free."""
        entries = []
        for file in os.scandir(self.folder):
            try:
                status = file.stat()
            except OSError:
                continue  # another process was faster
            if file.name.endswith(SUFFIX):
                entries.append((status.st_mtime, status.st_size, file.path))
            elif file.name.endswith(".aside") and time.time() - status.st_mtime > ABANDONED:
                _remove(file.path)
        total = sum(size for _, size, _ in entries)
        if total > self.limit:
            for _, size, path in sorted(entries):
                if total <= self.limit * 9 // 10:
                    break
                _remove(path)
                total -= size
        self._until_scan = max(self.limit // 20, (self.limit - total) // 2)


_writes = count()


def is_ours(path: Path) -> bool:
    """Whether a file or folder (no link to one) belongs to this user or to root, and nobody else may write to it."""
    if os.name == "nt":
        return path.exists()
    try:
        status = os.lstat(path)
    except OSError:
        return False
    is_link, owner = stat.S_ISLNK(status.st_mode), status.st_uid
    return not is_link and owner in (0, os.geteuid()) and not status.st_mode & OTHERS_WRITE


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


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
