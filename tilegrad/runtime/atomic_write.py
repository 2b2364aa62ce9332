"""Replace files atomically: write under a random name, then rename.

Links are resolved and stay links, a file keeps its permissions, and devices and pipes are written to directly. A file
that could not be opened for writing is not replaced. Concurrent writers each have their own temporary file; the last to
finish wins.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import IO

ASIDE = ".unfinished"
ABANDONED = 86_400.0
"""Age from which a temporary file belongs to a dead process, in seconds."""
MAX_NAME_BYTES = 200
"""Length of a base name, in bytes, that leaves room for the temporary suffix."""


@contextmanager
def replacing(path: str | os.PathLike[str], links: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` when the block ends. Without `links` it replaces a link itself."""
    given = os.fspath(path)
    before = _status(given, links)
    _permitted(given, before)
    folder, name = os.path.split(os.path.realpath(given) if links else given)
    target = os.path.join(folder if links else os.path.realpath(folder), name)
    if before is not None and not _is_file(before, target):
        with _written_to(given) as file:
            yield file
        return
    aside, number = _aside(target, 0o666 if before is None else 0o600)
    try:
        with open(number, "wb") as file:
            if before is not None and stat.S_ISREG(before.st_mode):
                _like(number, before)
            yield file
        os.replace(aside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise
    _swept(os.path.dirname(target))


def _status(path: str, links: bool) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=links)
    except FileNotFoundError:
        return None


def _permitted(path: str, before: os.stat_result | None) -> None:
    """Raise if the file could not be opened for writing: to replace it, access to its folder would suffice."""
    if before is None and not os.path.basename(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    effective = os.access in os.supports_effective_ids
    if before is not None and stat.S_ISREG(before.st_mode) and not os.access(path, os.W_OK, effective_ids=effective):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _is_file(found: os.stat_result, target: str) -> bool:
    """Whether the path is a replaceable file or a link; unlinked files (`/proc/self/fd`) are not."""
    nameless = found.st_nlink == 0 and _status(target, False) is None  # or somebody has just replaced it
    return stat.S_ISLNK(found.st_mode) or (stat.S_ISREG(found.st_mode) and not nameless)


@contextmanager
def _written_to(path: str) -> Iterator[IO[bytes]]:
    """Write to a device or a pipe, sequentially."""
    with open(path, "wb") as file:
        if file.seekable() and stat.S_ISBLK(os.fstat(file.fileno()).st_mode):
            yield file
        else:
            collected = BytesIO()
            yield collected
            file.write(collected.getbuffer())


def _aside(target: str, mode: int) -> tuple[str, int]:
    folder, name = os.path.split(target)
    short = os.fsdecode(os.fsencode(name)[:MAX_NAME_BYTES])
    aside = os.path.join(folder, f"{short}.{os.urandom(8).hex()}{ASIDE}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    return aside, os.open(aside, flags | getattr(os, "O_BINARY", 0), mode)


def _like(file: int, before: os.stat_result) -> None:
    """Copy owner and permissions of the replaced file to the new one, as far as permitted.

    If the group cannot be kept, its permissions are not granted to another group.
    """
    if not hasattr(os, "fchown"):
        return
    mode = stat.S_IMODE(before.st_mode)
    for owner in (before.st_uid, -1):  # who is no owner may keep a group that is one of theirs
        with suppress(OSError):
            os.fchown(file, owner, before.st_gid)
            break
    made = os.fstat(file)
    if made.st_gid != before.st_gid:
        mode &= ~(stat.S_IRWXG | stat.S_ISGID)
    if made.st_uid != before.st_uid:
        mode &= ~stat.S_ISUID
    os.fchmod(file, mode)


_seen: set[str] = set()


def _swept(folder: str) -> None:
    """Remove abandoned temporary files on the first write to a folder."""
    if folder in _seen:
        return
    _seen.add(folder)
    with suppress(OSError), os.scandir(folder or ".") as files:
        for file in files:
            stem = file.name.removesuffix(ASIDE)
            if stem != file.name and _is_random(stem.rpartition(".")[2]):
                with suppress(OSError):
                    status = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > ABANDONED:
                        os.unlink(file.path)


def _is_random(word: str) -> bool:
    return len(word) == 16 and set(word) <= set("0123456789abcdef")
