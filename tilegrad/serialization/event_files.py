"""Write and read TensorBoard's event files: records with checksums, each with a message encoded as protocol buffers.

file    ::= record* record  ::= length (8 bytes), checksum of it (4), message, checksum of it (4) message ::= (number of
a field and how it is encoded, contents)*
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

VERSION = b"brain.Event:2"
POLYNOMIAL = 0x82F63B78
"""The polynomial of CRC-32C with its bits reversed."""
MASK = 0xA282EAD8
_numbers = count()


@cache
def _table() -> list[int]:
    made = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        made.append(byte)
    return made


def checksum(data: bytes) -> int:
    """Compute the CRC-32C of data, rotated and masked as in TensorFlow's records.

    >>> hex(checksum(b"123456789"))
    '0xc78ab0e5'
    """
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 255] ^ value >> 8
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + MASK) & 0xFFFFFFFF


def record(message: bytes) -> bytes:
    """Frame a message as a record of a file."""
    length = struct.pack("<Q", len(message))
    return length + struct.pack("<I", checksum(length)) + message + struct.pack("<I", checksum(message))


def varint(number: int) -> bytes:
    """Encode an integer in as few bytes as it needs.

    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    number &= (1 << 64) - 1
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def field(number: int, value: int | float | str | bytes) -> bytes:
    """Encode one field: an integer, a double, or a text or a message after its length."""
    match value:
        case int():
            return varint(number << 3) + varint(value)
        case float():
            return varint(number << 3 | 1) + struct.pack("<d", value)
        case str():
            value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def single(number: int, value: float) -> bytes:
    """Encode a field with a float of 32 bits."""
    return varint(number << 3 | 5) + struct.pack("<f", value)


def doubles(number: int, values: Iterable[float]) -> bytes:
    """Encode a field with a list of doubles."""
    return field(number, b"".join(struct.pack("<d", x) for x in values))


class EventFile:
    """A file of events in a folder, under a name that TensorBoard looks for."""

    def __init__(self, folder: str | os.PathLike[str], suffix: str = "") -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}{suffix}"
        self.path = self.folder / name
        self.file = open(self.path, "ab")  # noqa: SIM115 - until it is closed
        self._write(field(1, now) + field(3, VERSION))

    def add(self, contents: bytes, step: int | None, wall_time: float | None = None) -> None:
        """Append an event with a summary or a graph."""
        at = field(1, float(time.time() if wall_time is None else wall_time))
        self._write(at + (field(2, int(step)) if step is not None else b"") + contents)

    def _write(self, message: bytes) -> None:
        self.file.write(record(message))

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()


class Damaged(Exception):
    """Raised for bytes that are no record, or no message."""


def records(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the message of each whole record with the offset behind it, up to one that is still being written."""
    at = 0
    while at + 12 <= len(data):
        size, check = struct.unpack_from("<QI", data, at)
        if check != checksum(data[at : at + 8]):
            raise Damaged(f"the length at byte {at:,} does not fit its checksum")
        end = at + 12 + size
        if end + 4 > len(data):
            return
        at, message = end + 4, data[at + 12 : end]
        if struct.unpack_from("<I", data, end)[0] != checksum(message):
            raise Damaged(f"the record before byte {at:,} does not fit its checksum")
        yield message, at


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the contents of each field: an integer, a float, or bytes.

    >>> list(fields(field(1, 0.5) + field(2, 300) + single(3, 2.0) + field(4, "x")))
    [(1, 0.5), (2, 300), (3, 2.0), (4, b'x')]
    """
    at = 0
    try:
        while at < len(message):
            key, at = _read_varint(message, at)
            match key & 7:
                case 0:
                    value, at = _read_varint(message, at)
                    yield key >> 3, value
                case 1:
                    yield key >> 3, struct.unpack_from("<d", message, at)[0]
                    at += 8
                case 2:
                    size, at = _read_varint(message, at)
                    if at + size > len(message):
                        raise Damaged("a field is longer than its message")
                    yield key >> 3, message[at : at + size]
                    at += size
                case 5:
                    yield key >> 3, struct.unpack_from("<f", message, at)[0]
                    at += 4
                case other:
                    raise Damaged(f"a field is encoded as {other}, which nothing is")
    except (IndexError, struct.error):
        raise Damaged("a message ends within a field") from None


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode an integer, and return it with the offset behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise Damaged("an integer has more than 64 bits")
