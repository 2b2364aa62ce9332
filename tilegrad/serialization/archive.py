"""The zip container of `.pt` files: named entries, not compressed, each in its own bytes of the file.

Compressed entries are refused: PyTorch writes none, and a few bytes of them may stand for terabytes.
"""

from __future__ import annotations

import struct
from typing import IO, Any, NamedTuple
from zipfile import LargeZipFile, ZipFile, ZipInfo
from zlib import crc32

import numpy as np

from .files import Source

ALIGNMENT = 64
"""Of the data of entries, so that mapped tensors are aligned; PyTorch's number."""
LOCAL = struct.Struct("<4s5H3I2H")
"""What stands before the name and the data of an entry."""
LARGE = ((1 << 31) - 1) / 1.05
"""Bytes of an entry from which on the zip module writes a longer header."""
DAMAGE = (OSError, EOFError, ValueError, ArithmeticError, LookupError, NotImplementedError, struct.error, LargeZipFile)
"""What the zip module raises for files that are none; BadZipFile is caught with them."""


class Entry(NamedTuple):
    """Where the data of an entry is."""

    offset: int
    bytes: int
    checksum: int


class Archive:
    """The entries of a zip file, by the names that they have inside its only folder."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.entries: dict[str, Entry] = {}
        infos = self._listed()
        folders = {info.filename.partition("/")[0] for info in infos if "/" in info.filename}
        if len(folders) != 1 or any("/" not in info.filename for info in infos):
            raise source.fault("is a zip file, but none that PyTorch or tilegrad wrote: not all is in one folder")
        end = 0
        for info in sorted(infos, key=lambda info: info.header_offset):
            name = info.filename.partition("/")[2]
            if name in self.entries:
                raise source.fault(f"has the entry {name!r} twice")
            entry = self._checked(info, end)
            self.entries[name], end = entry, entry.offset + entry.bytes

    def _listed(self) -> list[ZipInfo]:
        from zipfile import BadZipFile

        try:
            self.source.file.seek(self.source.start)
            with ZipFile(self.source.file) as archive:
                return [info for info in archive.infolist() if not info.is_dir()]
        except (*DAMAGE, BadZipFile) as damage:
            raise self.source.fault(f"is a damaged or truncated zip file: {damage}") from damage

    def _checked(self, info: ZipInfo, before: int) -> Entry:
        source, name = self.source, info.filename
        if info.compress_type != 0 or info.compress_size != info.file_size:
            raise source.fault(f"entry {name!r} is compressed, which PyTorch never does; pack the file anew without it")
        if info.flag_bits & 1:
            raise source.fault(f"entry {name!r} is encrypted")
        start = info.header_offset - source.start
        if start < before or start + LOCAL.size > source.size:
            raise source.fault(f"entry {name!r} lies over another, or outside the file")
        mark, *_, name_bytes, extra_bytes = LOCAL.unpack(source.read(start, LOCAL.size))
        offset = start + LOCAL.size + name_bytes + extra_bytes
        if mark != b"PK\3\4" or offset + info.file_size > source.size:
            raise source.fault(
                f"entry {name!r} should have {info.file_size:,} bytes from {offset:,} on; there are {source.size:,}"
            )
        return Entry(offset, info.file_size, info.CRC)

    def entry(self, name: str) -> Entry:
        if name not in self.entries:
            raise self.source.fault(f"has no entry {name!r}")
        return self.entries[name]

    def read(self, name: str) -> bytes:
        """All of an entry."""
        entry = self.entry(name)
        data = self.source.read(entry.offset, entry.bytes)
        self.check(name, data)
        return data

    def check(self, name: str, data: Any) -> None:
        """Raises unless the data of an entry are those that were written. A checksum of 0 was left out."""
        expected = self.entry(name).checksum
        if expected and crc32(data) != expected:
            raise self.source.fault(f"entry {name!r} is damaged: its checksum is wrong")


class ArchiveWriter:
    """Writes entries one after the other, the same bytes for the same contents."""

    def __init__(self, file: IO[bytes], folder: str = "archive") -> None:
        self.zip = ZipFile(file, "w")
        self.folder = folder

    def add(self, name: str, data: bytes | np.ndarray[Any, Any]) -> None:
        content = data if isinstance(data, bytes) else data.tobytes() if not len(data) else data.data
        info = ZipInfo(f"{self.folder}/{name}", (1980, 1, 1, 0, 0, 0))
        begin = self.zip.fp.tell() + LOCAL.size + len(info.filename) + 4  # type: ignore[union-attr]
        begin += 20 if len(content) > LARGE else 0
        padding = -begin % ALIGNMENT
        info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        self.zip.writestr(info, content)

    def close(self) -> None:
        self.zip.close()
