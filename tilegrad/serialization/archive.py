"""Read and write the zip container of `.pt` files: named entries, uncompressed, each in its own range of the file.

Compressed entries are refused: PyTorch writes none, and a few bytes of them may stand for terabytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, Any, NamedTuple, Self
from zipfile import ZipFile, ZipInfo
from zlib import crc32

import numpy as np

from ..errors import CheckpointError
from .files import Source

ALIGNMENT = 64
"""Alignment of the data of entries, in bytes, for mapped tensors; PyTorch's number."""
LOCAL = struct.Struct("<4s5H3I2H")
"""Header before the name and the data of an entry."""
MIN_ZIP64_BYTES = ((1 << 31) - 1) / 1.05
"""Size of an entry, in bytes, from which the zip module writes a longer header."""
END = struct.Struct("<4s4H2IH")
"""Record after the directory; a comment may follow it."""
MAX_COMMENT_BYTES = 0xFFFF
LOCATOR, LONG_END = struct.Struct("<4sIQI"), struct.Struct("<4sQ2H2I4Q")
"""Locator of the 64-bit end record, and that record."""
LISTED = struct.Struct("<4s6H3I5H2I")
"""Record before the name of an entry in the directory."""
ELSEWHERE = 0xFFFFFFFF
"""Marks a number of more than 32 bits, which is in the field `ZIP64_FIELD`."""
ZIP64_FIELD = 1
UTF8, ENCRYPTED = 0x800, 1


class Entry(NamedTuple):
    """The range of an entry's data."""

    offset: int
    bytes: int
    checksum: int


class Listed(NamedTuple):
    """The directory's record of an entry."""

    name: str
    flags: int
    method: int
    checksum: int
    packed: int
    bytes: int
    offset: int
    """Position of the header before the data, in the file."""


def listed(source: Source) -> Iterator[Listed]:
    """Parse the directory of a zip file, in linear time."""
    begin = max(0, source.size - END.size - MAX_COMMENT_BYTES)
    tail = source.read(begin, source.size - begin)
    place = tail.rfind(b"PK\5\6", 0, len(tail) - END.size + 4)
    if place < 0:
        raise source.fault("is a damaged or truncated zip file: its end is missing")
    *_, count, size, offset, _ = END.unpack_from(tail, place)
    end = begin + place
    count, size, offset, end = _long_end(source, end) or (count, size, offset, end)
    moved, offset = end - size - offset, end - size
    """Offsets may refer to a file that contains the archive."""
    if offset < 0:
        raise source.fault("is a damaged or truncated zip file: its directory is longer than it")
    directory, place = source.read(offset, size), 0
    for _ in range(count):
        if place + LISTED.size > size:
            raise source.fault("is a damaged or truncated zip file: its directory ends too early")
        mark, _, _, flags, method, _, _, checksum, packed, bytes, name, extra, comment, *_, at = LISTED.unpack_from(
            directory, place
        )
        place += LISTED.size
        if mark != b"PK\1\2" or place + name + extra + comment > size:
            raise source.fault(
                f"is a damaged or truncated zip file: its directory is damaged at byte {offset + place:,}"
            )
        text = directory[place : place + name].decode("utf-8" if flags & UTF8 else "cp437", "replace")
        if ELSEWHERE in (packed, bytes, at):
            fields = directory[place + name : place + name + extra]
            packed, bytes, at = _long_numbers(
                fields, packed, bytes, at, source.fault(f"entry {text!r:.60} has no size")
            )
        place += name + extra + comment
        yield Listed(text, flags, method, checksum, packed, bytes, at + moved)


def _long_end(source: Source, end: int) -> tuple[int, int, int, int] | None:
    """Return the number of entries, size and offset of the directory, and its end; PyTorch always writes the 64-bit
    record.
    """
    if end >= LOCATOR.size:
        mark, _, place, _ = LOCATOR.unpack(source.read(end - LOCATOR.size, LOCATOR.size))
        if mark == b"PK\6\7" and place + LONG_END.size <= end:
            mark, *_, count, size, offset = LONG_END.unpack(source.read(place, LONG_END.size))
            if mark == b"PK\6\6":
                return count, size, offset, place
    return None


def _long_numbers(fields: bytes, packed: int, bytes: int, at: int, fault: CheckpointError) -> tuple[int, int, int]:
    """Return the sizes and offset of an entry, some of which are in the 64-bit field."""
    place = 0
    while place + 4 <= len(fields):
        kind, size = struct.unpack_from("<2H", fields, place)
        if kind == ZIP64_FIELD:
            numbers = iter(struct.unpack_from(f"<{size // 8}Q", fields[: place + 4 + size], place + 4))
            found = [next(numbers, None) if n == ELSEWHERE else n for n in (bytes, packed, at)]
            if None not in found:
                bytes, packed, at = found  # type: ignore[assignment]
                return packed, bytes, at
            break
        place += 4 + size
    raise fault


class Archive:
    """The entries of a zip file, by their names inside its only folder."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.entries: dict[str, Entry] = {}
        infos = [info for info in listed(source) if not info.name.endswith("/")]
        folders = {info.name.partition("/")[0] for info in infos}
        if len(folders) != 1 or any("/" not in info.name for info in infos):
            raise source.fault("is a zip file, but none that PyTorch or tilegrad wrote: not all is in one folder")
        end = 0
        for info in sorted(infos, key=lambda info: info.offset):
            name = info.name.partition("/")[2]
            if name in self.entries:
                raise source.fault(f"has the entry {name!r} twice")
            entry = self._checked(info, end)
            self.entries[name], end = entry, entry.offset + entry.bytes

    def _checked(self, info: Listed, before: int) -> Entry:
        source, name, start = self.source, info.name, info.offset
        if info.method != 0 or info.packed != info.bytes:
            raise source.fault(f"entry {name!r} is compressed, which PyTorch never does; pack the file anew without it")
        if info.flags & ENCRYPTED:
            raise source.fault(f"entry {name!r} is encrypted")
        if start < before or start + LOCAL.size > source.size:
            raise source.fault(f"entry {name!r} lies over another, or outside the file")
        mark, *_, name_bytes, extra_bytes = LOCAL.unpack(source.read(start, LOCAL.size))
        offset = start + LOCAL.size + name_bytes + extra_bytes
        if mark != b"PK\3\4" or offset + info.bytes > source.size:
            raise source.fault(
                f"entry {name!r} should have {info.bytes:,} bytes from {offset:,} on; there are {source.size:,}"
            )
        return Entry(offset, info.bytes, info.checksum)

    def entry(self, name: str) -> Entry:
        if name not in self.entries:
            raise self.source.fault(f"has no entry {name!r}")
        return self.entries[name]

    def read(self, name: str) -> bytes:
        """Return the whole data of an entry."""
        entry = self.entry(name)
        data = self.source.read(entry.offset, entry.bytes)
        self.check(name, data)
        return data

    def check(self, name: str, data: Any) -> None:
        """Raise unless the checksum of an entry's data matches. A checksum of 0 was omitted."""
        expected = self.entry(name).checksum
        if expected and crc32(data) != expected:
            raise self.source.fault(f"entry {name!r} is damaged: its checksum is wrong")


class ArchiveWriter:
    """Write entries one after the other, the same bytes for the same contents; the directory comes at the end."""

    def __init__(self, file: IO[bytes], folder: str = "archive") -> None:
        self.zip = ZipFile(file, "w")
        self.folder = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.zip.fp = None  # else the zip module writes to the file some time later, when it is collected
        self.zip.close()

    def add(self, name: str, data: bytes | np.ndarray[Any, Any]) -> None:
        content = data if isinstance(data, bytes) else data.tobytes() if not len(data) else data.data
        info = ZipInfo(f"{self.folder}/{name}", (1980, 1, 1, 0, 0, 0))
        begin = self.zip.fp.tell() + LOCAL.size + len(info.filename) + 4  # type: ignore[union-attr]
        begin += 20 if len(content) > MIN_ZIP64_BYTES else 0
        padding = -begin % ALIGNMENT
        info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        self.zip.writestr(info, content)
