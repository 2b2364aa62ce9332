"""Read files of tensors within their bounds, and write files atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from mmap import ACCESS_COPY, mmap
from typing import IO, Any, TypeAlias

import numpy as np

from ..errors import ArgumentError, CheckpointError, MissingFileError
from ..runtime.atomic_write import replacing as whole

File: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
"""A path, or an object with `read` and `seek`, or with `write`."""


class Source:
    """A file with random access; nothing is allocated that the file does not hold."""

    def __init__(self, file: File | bytes, mapped: bool = False) -> None:
        self.name = named(file)
        self.map: mmap | None = None
        self._owned = isinstance(file, (str, os.PathLike, bytes))
        self.file: IO[bytes] = _opened(file, self.name)
        try:
            self.start = self.file.tell()
            """Position from which a file object is read."""
            self.size = self.file.seek(0, os.SEEK_END) - self.start
            self.file.seek(self.start)
        except OSError as why:
            self.close()
            raise self.fault(f"can only be read from begin to end, and places in it are wanted: {why}") from None
        if mapped and not isinstance(file, (str, os.PathLike)):
            raise ArgumentError(f"mmap=True needs the path of a file, not {self.name}")
        if mapped and self.size:
            self.map = mmap(self.file.fileno(), 0, access=ACCESS_COPY)

    def fault(self, reason: str) -> CheckpointError:
        return CheckpointError(f"{self.name}: {reason}")

    def array(self, offset: int, count: int) -> np.ndarray[Any, Any]:
        """Return bytes as a writable array; the file is not changed."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise self.fault(f"ends at byte {self.size:,}, but bytes {offset:,} to {offset + count:,} are asked for")
        if self.map is not None and count:
            return np.frombuffer(self.map, np.uint8, count, offset)
        found = np.empty(count, np.uint8)
        self.file.seek(self.start + offset)
        view, filled = found.data, 0
        while filled < count:
            more = self.file.readinto(view[filled:])  # type: ignore[attr-defined]
            if not more:
                raise self.fault(f"became shorter while it was read: byte {offset + filled:,} is missing")
            filled += more
        return found

    def read(self, offset: int, count: int) -> bytes:
        return self.array(offset, count).tobytes()

    def close(self) -> None:
        if self._owned:
            self.file.close()  # a map stays as long as somebody has an array on it

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def named(file: object) -> str:
    """Return the name of a file in errors."""
    if isinstance(file, (str, os.PathLike)):
        return os.fspath(file)
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else f"the given {type(file).__name__}"


def _opened(file: File | bytes, name: str) -> IO[bytes]:
    if isinstance(file, bytes):
        return BytesIO(file)
    if not isinstance(file, (str, os.PathLike)):
        if hasattr(file, "readinto") and hasattr(file, "seek"):
            return file
        raise ArgumentError(f"a path, or a file that is open for reading bytes, is wanted, not {file!r:.60}")
    try:
        return open(file, "rb")
    except FileNotFoundError:
        raise MissingFileError(f"there is no file {name}") from None
    except OSError as why:
        raise CheckpointError(f"{name} cannot be read: {why.strerror or why}") from None


@contextmanager
def replacing(file: File) -> Iterator[IO[bytes]]:
    """Open a file to write. A path gets its new contents at once at the end, or keeps the old ones."""
    if not isinstance(file, (str, os.PathLike)):
        if not hasattr(file, "write"):
            raise ArgumentError(f"a path, or a file that is open for writing bytes, is wanted, not {file!r:.60}")
        yield file
        return
    path = os.fspath(file)
    try:
        with whole(path) as new:
            yield new
    except OSError as why:
        raise CheckpointError(f"{path} cannot be written: {why.strerror or why}") from why
