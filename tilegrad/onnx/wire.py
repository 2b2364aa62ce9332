"""Read and write the wire format of Protocol Buffers, for messages that are declared as dataclasses.

    message   (key value)*                      key = field number << 3 | wire type, a varint
    value     varint          (wire type 0)     seven bits a byte, least significant first; the last byte is below 128
            | eight bytes     (1)
            | length bytes    (2)               text, bytes, a message, or packed numbers
            | four bytes      (5)

What a file says is checked before it is believed: lengths against the bytes that are there, nesting against
`MAX_DEPTH`, the number of messages and texts against `MAX_VALUES`. Nothing is allocated for a length that the file
does not hold. Fields that a message does not declare are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

import numpy as np

from .problems import OnnxError

MAX_DEPTH = 64
"""Messages within messages: a graph in a graph takes three levels."""
MAX_VALUES = 4_000_000
"""Messages and texts in one file: an empty one takes two bytes in a file, and some hundred in memory."""
MAX_VARINT_BYTES = 10
INT, FLOAT, DOUBLE, TEXT, BYTES = "int", "float", "double", "text", "bytes"
NUMBERS: dict[str, np.dtype[Any]] = {FLOAT: np.dtype("<f4"), DOUBLE: np.dtype("<f8")}
WIRE_TYPES = {INT: 0, DOUBLE: 1, TEXT: 2, BYTES: 2, FLOAT: 5}
LENGTH = 2
"""The wire type of what has a length."""
Kind = str | Callable[[], "type[Message]"]


class WireField(NamedTuple):
    """A field of a message: its number, its kind, and whether it is there many times, also as one array."""

    number: int
    kind: Kind
    many: bool = False
    array: bool = False

    @property
    def of_messages(self) -> bool:
        return not isinstance(self.kind, str)


def one(number: int, kind: Kind) -> Any:
    """Declare a field with a default: 0, or an empty text. A message is None if it is not there."""
    default: Any = {INT: 0, FLOAT: 0.0, DOUBLE: 0.0, TEXT: "", BYTES: b""}.get(kind) if isinstance(kind, str) else None
    return field(default=default, metadata={"wire": WireField(number, kind)})


def maybe(number: int, kind: Kind) -> Any:
    """Declare a field that is None if it is not there."""
    return field(default=None, metadata={"wire": WireField(number, kind)})


def several(number: int, kind: Kind) -> Any:
    """Declare a list."""
    return field(default_factory=list, metadata={"wire": WireField(number, kind, many=True)})


def numbers(number: int, kind: Kind) -> Any:
    """Declare many numbers, which are read into one array, or None."""
    return field(default=None, metadata={"wire": WireField(number, kind, many=True, array=True)})


@dataclass(eq=False)
class Message:
    """The base class of messages."""

    @classmethod
    def parse(cls, data: bytes | memoryview) -> Self:
        """Read a message."""
        found: Self = WireReader(memoryview(data).cast("B")).message(cls, 0, len(data), 0)
        return found

    def encoded(self) -> bytes:
        """Write the message."""
        return b"".join(_encoded(self, 0))


_DECLARED: dict[type[Message], dict[int, tuple[str, WireField]]] = {}


def declared(kind: type[Message]) -> dict[int, tuple[str, WireField]]:
    """Return the fields of a class of messages by their numbers."""
    if kind not in _DECLARED:
        _DECLARED[kind] = {f.metadata["wire"].number: (f.name, f.metadata["wire"]) for f in fields(kind)}
    return _DECLARED[kind]


class WireReader:
    """Read messages out of bytes, within their bounds."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.values = 0

    def fault(self, place: int, words: str) -> OnnxError:
        return OnnxError(f"byte {place:,}: {words}: the file is damaged, or of another kind")

    def count(self, place: int) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            raise self.fault(place, f"more than {MAX_VALUES:,} values")

    def message(self, kind: type[Any], start: int, stop: int, depth: int) -> Any:
        """Read a message that fills the bytes from `start` to `stop`."""
        if depth > MAX_DEPTH:
            raise self.fault(start, f"messages are nested more than {MAX_DEPTH} deep")
        self.count(start)
        found = kind()
        known = declared(kind)
        arrays: dict[str, list[np.ndarray]] = {}
        place = start
        while place < stop:
            at = place
            key, place = self.varint(place, stop)
            number, wire_type = key >> 3, key & 7
            begin, place = self.extent(wire_type, number, at, place, stop)
            if number not in known:
                continue
            name, what = known[number]
            if what.of_messages:
                self.expect(wire_type == LENGTH, at, name)
                inner = self.message(what.kind(), begin, place, depth + 1)  # type: ignore[operator]
                _put(found, name, what.many, inner)
            elif what.many and what.kind in (INT, FLOAT, DOUBLE):
                made = self.several_numbers(what.kind, wire_type, begin, place, at, name)
                arrays.setdefault(name, []).append(made)
            else:
                self.expect(wire_type == WIRE_TYPES[str(what.kind)], at, name)
                value = self.scalar(str(what.kind), begin, place, at)
                _put(found, name, what.many, value)
        for name, parts in arrays.items():
            joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
            setattr(found, name, joined if getattr(found, name) is None else joined.tolist())
        return found

    def expect(self, right: bool, place: int, name: str) -> None:
        if not right:
            raise self.fault(place, f"the field {name} has another wire type")

    def extent(self, wire_type: int, number: int, at: int, place: int, stop: int) -> tuple[int, int]:
        """Return the bytes of a value."""
        if not number:
            raise self.fault(at, "a field has the number 0")
        length = {1: 8, 5: 4}.get(wire_type, -1)
        if wire_type == 0:
            return place, self.varint(place, stop)[1]
        if wire_type == LENGTH:
            length, place = self.varint(place, stop)
        if length < 0:
            raise self.fault(at, f"there is no wire type {wire_type}")
        if length > stop - place:
            raise self.fault(at, f"{length:,} bytes are announced where {stop - place:,} are left")
        return place, place + length

    def varint(self, place: int, stop: int) -> tuple[int, int]:
        """Read an unsigned number; return what stands behind it, too."""
        value = 0
        for n in range(MAX_VARINT_BYTES):
            if place + n >= stop:
                raise self.fault(place, "a number is cut off")
            byte = self.data[place + n]
            value |= (byte & 0x7F) << 7 * n
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, place + n + 1
        raise self.fault(place, f"a number has more than {MAX_VARINT_BYTES} bytes")

    def scalar(self, kind: str, begin: int, stop: int, at: int) -> Any:
        if kind == INT:
            return _signed(self.varint(begin, stop)[0])
        if kind in NUMBERS:
            return struct.unpack("<f" if kind == FLOAT else "<d", self.data[begin:stop])[0]
        self.count(at)
        if kind == BYTES:
            return self.data[begin:stop]
        try:
            return str(self.data[begin:stop], "utf-8")
        except UnicodeDecodeError:
            raise self.fault(at, "a text is not UTF-8") from None

    def several_numbers(self, kind: str, wire_type: int, begin: int, stop: int, at: int, name: str) -> np.ndarray:
        """Read packed numbers, or a single one."""
        self.expect(wire_type in (LENGTH, WIRE_TYPES[kind]), at, name)
        if wire_type != LENGTH:
            self.count(at)
            return np.array([self.scalar(kind, begin, stop, at)], NUMBERS.get(kind, np.int64))
        view = np.frombuffer(self.data, np.uint8, stop - begin, begin) if stop > begin else np.zeros(0, np.uint8)
        if kind == INT:
            return self.varints(view, begin)
        self.expect(view.size % NUMBERS[kind].itemsize == 0, at, name)
        made: np.ndarray = view.view(NUMBERS[kind])
        return made

    def varints(self, packed: np.ndarray, at: int) -> np.ndarray:
        """Read packed varints as int64."""
        if not packed.size:
            return np.zeros(0, np.int64)
        last = packed < 0x80
        if not last[-1]:
            raise self.fault(at, "a number is cut off")
        starts = np.flatnonzero(np.concatenate([[True], last[:-1]]))
        lengths = np.diff(starts, append=packed.size)
        if lengths.max() > MAX_VARINT_BYTES:
            raise self.fault(at, f"a number has more than {MAX_VARINT_BYTES} bytes")
        within = np.arange(packed.size) - np.repeat(starts, lengths)
        parts = (packed & 0x7F).astype(np.uint64) << (7 * within).astype(np.uint64)
        return np.bitwise_or.reduceat(parts, starts).view(np.int64)


def _put(message: Message, name: str, many: bool, value: Any) -> None:
    if many:
        getattr(message, name).append(value)
    else:
        setattr(message, name, value)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def varint(value: int) -> bytes:
    """Write a number; negative ones take ten bytes.

    >>> varint(300).hex()
    'ac02'
    """
    value &= 0xFFFF_FFFF_FFFF_FFFF
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _encoded(message: Message, depth: int) -> Iterator[bytes | memoryview]:
    if depth > MAX_DEPTH:
        raise OnnxError(f"messages are nested more than {MAX_DEPTH} deep")
    defaults = type(message)()
    for number, (name, what) in sorted(declared(type(message)).items()):
        value = getattr(message, name)
        if what.many:
            if value is not None and len(value):
                yield from _many(number, what, value, depth)
        elif value is not None and value != getattr(defaults, name):
            yield from _single(number, what.kind, value, depth)


def _many(number: int, what: WireField, values: Any, depth: int) -> Iterator[bytes | memoryview]:
    if what.of_messages or what.kind in (TEXT, BYTES):
        for value in values:
            yield from _single(number, what.kind, value, depth)
        return
    if what.kind == INT:
        packed = b"".join(varint(int(value)) for value in values)
    else:
        packed = np.asarray(values, NUMBERS[str(what.kind)]).tobytes()
    yield varint(number << 3 | LENGTH) + varint(len(packed))
    yield packed


def _single(number: int, kind: Kind, value: Any, depth: int) -> Iterator[bytes | memoryview]:
    key = varint(number << 3 | (WIRE_TYPES[kind] if isinstance(kind, str) else LENGTH))
    if kind == INT:
        yield key + varint(value)
    elif kind == FLOAT:
        yield key + struct.pack("<f", value)
    elif kind == DOUBLE:
        yield key + struct.pack("<d", value)
    elif isinstance(kind, str):
        text = value.encode() if kind == TEXT else value
        yield key + varint(len(text))
        yield text
    else:
        parts = list(_encoded(value, depth + 1))
        yield key + varint(sum(map(len, parts)))
        yield from parts
