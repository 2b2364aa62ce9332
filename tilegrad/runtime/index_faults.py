"""Report indices outside of their axes that kernels meet while they run.

Within a compiled program nobody looks at indices beforehand. A kernel takes the nearest element that there is, so that
nothing else is damaged, and leaves the first wrong index in a record of the device; whoever next waits for the device
raises for it.
"""

from __future__ import annotations

import ctypes
from binascii import crc32
from typing import NamedTuple

from ..errors import IndexRangeError
from ..ir.location import Location
from ..ir.size import Dim

BYTES = 32
"""The size of a record: the number of the place plus 1 (0: nothing was wrong), the index, the extent of its axis."""
SYMBOL = "tilegrad_index_faults"
"""The record in machine code that is linked with it."""
MOST_LINES = 3
"""Lines of a place that a message names."""


class Place(NamedTuple):
    """An operation that takes indices along an axis."""

    op: str
    axis: int
    from_end: bool
    """Whether negative indices count from the end."""
    lines: dict[Location, None]
    """The user's lines; used as a set that keeps its order."""


_places: dict[int, Place] = {}


def number_of(op: str, axis: int, from_end: bool, extent: Dim, location: Location | None) -> int:
    """Give an operation the number by which a kernel reports it: the same in all processes, and on all lines.

    >>> first, again, other = [number_of("gather", axis, False, 5, None) for axis in (0, 0, 1)]
    >>> first == again != other
    True
    """
    number = crc32(f"{op}:{axis}:{from_end}:{extent}".encode()) >> 1
    place = _places.setdefault(number, Place(op, axis, from_end, {}))
    if location:
        place.lines.pop(location, None)
        place.lines[location] = None
    return number


def outside_axis(op: str, index: int, extent: int, axis: int, from_end: bool, lines: str) -> IndexRangeError:
    """The error for an index outside of its axis; `lines` says where the user wrote the operation."""
    least = -extent if from_end else 0
    allowed = f"indices {least} to {extent - 1}" if extent else "none is inside"
    return IndexRangeError(
        f"{op}: index {index} is outside axis {axis}, which has {extent} elements ({allowed})"
        + (f"; recorded at {lines}" if lines else "")
    )


class IndexFaults:
    """The record of a device: `BYTES` of zeros that its kernels and the host reach, at an address or anywhere."""

    def __init__(self, address: int = 0) -> None:
        words = ctypes.c_int64 * (BYTES // 8)
        self.words = words.from_address(address) if address else words()
        self.address = ctypes.addressof(self.words)

    def look(self) -> None:
        """Raise for an index that was outside, and clear the record."""
        if self.words[0]:
            raise self._taken()

    def report(self, number: int, index: int, extent: int) -> None:
        """Note an index that is outside, if none is noted: what kernels do."""
        if not self.words[0]:
            self.words[0], self.words[1], self.words[2] = number + 1, index, extent

    def _taken(self) -> IndexRangeError:
        number, index, extent = self.words[0] - 1, self.words[1], self.words[2]
        self.words[0] = 0
        place = _places.get(number)
        if place is None:  # a program that was saved by another process
            return IndexRangeError(f"index {index} is outside an axis of {extent} elements")
        if place.from_end and index < 0:
            index -= extent
        lines = " or ".join(dict.fromkeys(str(line) for line in list(place.lines)[-MOST_LINES:]))
        return outside_axis(place.op, index, extent, place.axis, place.from_end, lines)
