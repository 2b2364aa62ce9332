"""Access trusted folders: only this user (or root) can ever have written their files.

A folder is opened once for each use, and everything in it is accessed through its descriptor, so that a change of its
path has no effect. Links are never followed, temporary names are random and new.

Trust is recorded in the folder itself: a file `MARK`, written when the folder is created (under a temporary name, so
that it appears with its mark) or taken over: then all entries are removed first, as somebody else could have written
them. A folder that others may write to is taken over by the next writer.
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
"""Suffix of temporary files, and of libraries that are being loaded."""
MARK = "private"
ABANDONED = 86_400.0
"""Age from which a temporary file belongs to a dead process, in seconds."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
BY_DESCRIPTOR = os.open in os.supports_dir_fd
"""Whether files are accessed by descriptor. Not on Windows, where a user's folders are closed to others."""
_DIRECTORY, _PLAIN = (
    getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | more
    for more in (getattr(os, "O_DIRECTORY", 0), getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
)


def is_ours(status: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user or root and nobody else may write to it."""
    return not BY_DESCRIPTOR or (status.st_uid in (0, os.geteuid()) and not status.st_mode & OTHERS_WRITE)


class PrivateFolder:
    """An open folder; names are those of files in it."""

    def __init__(self, path: str, descriptor: int | None) -> None:
        self.path = path
        self.descriptor = descriptor
        self._before = "" if descriptor is not None else path + os.sep

    def is_believed(self) -> bool:
        """Whether its contents were written by this user or root."""
        return is_ours(self._status()) and self._marked() is not None

    def read(self, name: str, used: bool = False) -> bytes | None:
        """Read a file; None if it is missing or not ours. `used` updates its time."""
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
        """Replace a file atomically."""
        aside = self.put(name, data)
        try:
            os.replace(
                self._before + aside, self._before + name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor
            )
        except BaseException:  # an interrupt, too, leaves no file behind
            self.remove(aside)
            raise

    def put(self, name: str, data: bytes, mode: int = 0o600) -> str:
        """Write a file under a random name with the given prefix."""
        aside = f"{name}.{os.urandom(8).hex()}{ASIDE}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN
        file = os.open(self._before + aside, flags, mode, dir_fd=self.descriptor)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
        except BaseException:  # an interrupt, too, leaves no file behind
            self.remove(aside)
            raise
        finally:
            os.close(file)
        return aside

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._before + name, dir_fd=self.descriptor)

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """List the files of this package: entries and temporary files."""
        with os.scandir(self.path if self.descriptor is None else self.descriptor) as found:
            for file in found:
                if file.name.endswith((SUFFIX, ASIDE)):
                    with suppress(OSError):  # another process was faster
                        yield file.name, file.stat(follow_symlinks=False)

    def place(self, name: str) -> str:
        """Return a path to a file: through the descriptor, where the system supports it."""
        through = f"/proc/self/fd/{self.descriptor}"
        return os.path.join(through if self.descriptor is not None and os.path.isdir(through) else self.path, name)

    def take_over(self) -> None:
        """Make the folder private and remove what others could have written; no-op if it was private.

        Once a day abandoned temporary files are removed.
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
        """Return the time of the last clean-up; None unless the mark is ours."""
        try:
            status = os.stat(self._before + MARK, dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return None
        return status.st_mtime if is_ours(status) and stat.S_ISREG(status.st_mode) else None


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[PrivateFolder]:
    """Open an existing folder; OSError if it is missing or a link."""
    name = os.fspath(path)
    descriptor = os.open(name, os.O_RDONLY | _DIRECTORY) if BY_DESCRIPTOR else None
    try:
        yield PrivateFolder(name, descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def owned(path: str | os.PathLike[str]) -> Iterator[PrivateFolder]:
    """Open a private folder for writing, created if missing; OSError if that fails."""
    try:
        os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        _made(Path(path))
    with opened(path) as folder:
        folder.take_over()
        yield folder


def _made(path: Path) -> None:
    """Create a folder that has its mark from the start; missing parents are private, too."""
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
