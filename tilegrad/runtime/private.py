"""Folders whose files are believed: only this user (or root) can ever have written them.

A folder is opened once for each use, and everything in it is reached through its descriptor, so that it does not matter
where its path leads a moment later. Links are never followed, names that are written aside are random and new.

Whether a folder is believed stands in the folder itself: a file `MARK`, which is written when the folder is made
(aside, so that it appears with its mark), or when it is taken over: then all entries are removed first, as somebody
else could have written them. A folder in which others may write is taken over by the next one who writes to it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SUFFIX = ".entry"
ASIDE = ".aside"
"""Suffix of files that are being written, and of libraries that are being loaded."""
MARK = "private"
ABANDONED = 86_400.0
"""Seconds after which a file that was being written aside belongs to a process that has died."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
BY_DESCRIPTOR = os.open in os.supports_dir_fd
"""Not on Windows, where the folders of a user are closed to others."""
_DIRECTORY, _PLAIN = (
    getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | more
    for more in (getattr(os, "O_DIRECTORY", 0), getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
)


def is_ours(status: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user or to root, and nobody else may write to it."""
    return not BY_DESCRIPTOR or (status.st_uid in (0, os.geteuid()) and not status.st_mode & OTHERS_WRITE)


class PrivateFolder:
    """An open folder; names are those of files in it."""

    def __init__(self, path: str, descriptor: int | None) -> None:
        self.path = path
        self.descriptor = descriptor
        self._before = "" if descriptor is not None else path + os.sep

    def is_believed(self) -> bool:
        """Whether what is in it was written by this user or root."""
        return is_ours(self._status()) and self._marked() is not None

    def read(self, name: str, used: bool = False) -> bytes | None:
        """The contents of a file, or None unless there is one that is ours. `used` sets its time to now."""
        try:
            file = os.open(self._before + name, os.O_RDONLY | _PLAIN, dir_fd=self.descriptor)
        except OSError:
            return None
        try:
            status = os.fstat(file)
            if not is_ours(status) or not stat.S_ISREG(status.st_mode):
                return None
            if used and os.utime in os.supports_fd:
                with suppress(OSError):  # root's
                    os.utime(file)
            return _contents(file, status.st_size)
        except OSError:
            return None
        finally:
            os.close(file)

    def write(self, name: str, data: bytes) -> None:
        """Puts a file in place of what has its name, at once."""
        aside = self.put(name, data)
        try:
            os.replace(
                self._before + aside, self._before + name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor
            )
        except OSError:
            self.remove(aside)
            raise

    def put(self, name: str, data: bytes, mode: int = 0o600) -> str:
        """Writes a file under a name that nobody knows beforehand: it begins with the given one."""
        aside = f"{name}.{os.urandom(8).hex()}{ASIDE}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN
        file = os.open(self._before + aside, flags, mode, dir_fd=self.descriptor)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError:
            self.remove(aside)
            raise
        finally:
            os.close(file)
        return aside

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._before + name, dir_fd=self.descriptor)

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """List the files of this package: entries, and unfinished ones."""
        with os.scandir(self.path if self.descriptor is None else self.descriptor) as found:
            for file in found:
                if file.name.endswith((SUFFIX, ASIDE)):
                    with suppress(OSError):  # another process was faster
                        yield file.name, file.stat(follow_symlinks=False)

    def place(self, name: str) -> str:
        """A path to a file for those who open it by one: through the descriptor, where the system has that."""
        through = f"/proc/self/fd/{self.descriptor}"
        return os.path.join(through if self.descriptor is not None and os.path.isdir(through) else self.path, name)

    def take_over(self) -> None:
        """Makes the folder private and removes what others could have put there; nothing is done if it was private.

        Once a day files are removed that were left aside.
        """
        status, marked = self._status(), self._marked()
        if not is_ours(status) or marked is None:
            self.remove(MARK)
            if BY_DESCRIPTOR:
                if status.st_uid != os.geteuid():
                    raise PermissionError(f"{self.path} belongs to somebody else")
                os.fchmod(self.descriptor, stat.S_IMODE(status.st_mode) & ~OTHERS_WRITE)  # type: ignore[arg-type]
            for name, _ in self.files():
                self.remove(name)
            self.write(MARK, b"")
        elif time.time() - marked > ABANDONED:
            self.write(MARK, b"")
            for name, found in self.files():
                if name.endswith(ASIDE) and time.time() - found.st_mtime > ABANDONED:
                    self.remove(name)

    def _status(self) -> os.stat_result:
        return os.stat(self.path) if self.descriptor is None else os.fstat(self.descriptor)

    def _marked(self) -> float | None:
        """When the folder was looked through last; None unless it has a mark of ours."""
        try:
            status = os.stat(self._before + MARK, dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return None
        return status.st_mtime if is_ours(status) and stat.S_ISREG(status.st_mode) else None


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[PrivateFolder]:
    """A folder that is there; OSError if there is none, or a link in its place."""
    name = os.fspath(path)
    descriptor = os.open(name, os.O_RDONLY | _DIRECTORY) if BY_DESCRIPTOR else None
    try:
        yield PrivateFolder(name, descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def owned(path: str | os.PathLike[str]) -> Iterator[PrivateFolder]:
    """A private folder to write to, made if there is none; OSError if it cannot be had."""
    try:
        os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        _made(Path(path))
    with opened(path) as folder:
        folder.take_over()
        yield folder


def _made(path: Path) -> None:
    """Makes a folder that has its mark from the first moment; the folders above it are private, too."""
    import tempfile

    for above in reversed([above for above in path.parents if not above.exists()]):
        with suppress(FileExistsError):
            above.mkdir(mode=0o700)
    new = tempfile.mkdtemp(prefix=f"{path.name}.", dir=path.parent)
    with suppress(OSError), opened(new) as folder:  # by its descriptor: somebody may put a link in its place
        folder.write(MARK, b"")
        try:
            os.rename(new, path)
        except OSError:  # somebody else was faster
            folder.remove(MARK)
            os.rmdir(new)


def _contents(file: int, size: int) -> bytes:
    data = os.read(file, size)
    while len(data) < size:
        more = os.read(file, size - len(data))
        if not more:
            break
        data += more
    return data
