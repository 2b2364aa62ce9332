"""Writes files whole or not at all: aside under a random name, then renamed over what was there.

What is replaced is the file that a path leads to: links stay links, a file keeps who may read it, and devices and pipes
are written to. A file that could not be opened for writing is not replaced. Whoever writes at the same time has a file
of their own; the last one to finish wins.
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
"""Seconds after which a file that was being written aside belongs to a process that has died."""
LONGEST = 200
"""Bytes of a name, so that there is room for what is added to it."""


@contextmanager
def replacing(path: str | os.PathLike[str], links: bool = True) -> Iterator[IO[bytes]]:
    """A file to write to, put at the path when all is written. Without `links` it takes the place of a link."""
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
    """Raise where a file could not be opened for writing: to replace it, its folder's permission would be enough."""
    if before is None and not os.path.basename(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    effective = os.access in os.supports_effective_ids
    if before is not None and stat.S_ISREG(before.st_mode) and not os.access(path, os.W_OK, effective_ids=effective):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _is_file(found: os.stat_result, target: str) -> bool:
    """Whether there is a file that can be replaced, or a link; not what has no name any longer (`/proc/self/fd`)."""
    nameless = found.st_nlink == 0 and _status(target, False) is None  # or somebody has just replaced it
    return stat.S_ISLNK(found.st_mode) or (stat.S_ISREG(found.st_mode) and not nameless)


@contextmanager
def _written_to(path: str) -> Iterator[IO[bytes]]:
    """A device or a pipe; what comes to it comes from begin to end."""
    with open(path, "wb") as file:
        if file.seekable() and stat.S_ISBLK(os.fstat(file.fileno()).st_mode):
            yield file
        else:
            collected = BytesIO()
            yield collected
            file.write(collected.getbuffer())


def _aside(target: str, mode: int) -> tuple[str, int]:
    folder, name = os.path.split(target)
    short = os.fsdecode(os.fsencode(name)[:LONGEST])
    aside = os.path.join(folder, f"{short}.{os.urandom(8).hex()}{ASIDE}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    return aside, os.open(aside, flags | getattr(os, "O_BINARY", 0), mode)


def _like(file: int, before: os.stat_result) -> None:
    """Give a new file the owner and the permissions of the one that it replaces, as far as that is permitted.

    Where the group cannot be kept, what the group could do is not permitted to another one.
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
    """Removes what processes left behind that died while they wrote, when this one first writes to a folder."""
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
