"""Report out-of-bounds indices that kernels meet while they run.

Kernels do not check indices beforehand. A kernel clamps the index, so that no other memory is damaged, and stores the
first bad index in a record of the device; the next synchronisation with the device raises the error.
"""

from __future__ import annotations

import ctypes
from binascii import crc32
from typing import NamedTuple

from ..errors import IndexRangeError
from ..ir.location import Location
from ..ir.size import Dim

BYTES = 32
"""Size of a record, in bytes: the site number plus 1 (0: no fault), the index, the extent of its axis."""
SYMBOL = "tilegrad_index_faults"
"""Symbol of the record in machine code that is linked with it."""
MAX_LINES = 3
"""Number of the user's lines that a message names at most."""


class IndexSite(NamedTuple):
    """An operation that indexes an axis."""

    op: str
    axis: int
    from_end: bool
    """Whether negative indices count from the end."""
    lines: dict[Location, None]
    """The user's lines, as an ordered set."""


_places: dict[int, IndexSite] = {}


def number_of(op: str, axis: int, from_end: bool, extent: Dim, location: Location | None) -> int:
    """Return the number of an operation in reports of kernels: the same in all processes, and for all lines.

    >>> first, again, other = [number_of("gather", axis, False, 5, None) for axis in (0, 0, 1)]
    >>> first == again != other
    True
    """
    number = crc32(f"{op}:{axis}:{from_end}:{extent}".encode()) >> 1
    place = _places.setdefault(number, IndexSite(op, axis, from_end, {}))
    if location:
        place.lines.pop(location, None)
        place.lines[location] = None
    return number


def outside_axis(op: str, index: int, extent: int, axis: int, from_end: bool, lines: str) -> IndexRangeError:
    """Build the error for an index out of bounds; `lines` are the user's lines of the operation."""
    least = -extent if from_end else 0
    allowed = f"indices {least} to {extent - 1}" if extent else "none is inside"
    return IndexRangeError(
        f"{op}: index {index} is outside axis {axis}, which has {extent} elements ({allowed})"
        + (f"; recorded at {lines}" if lines else "")
    )


class IndexFaults:
    """The record of a device: `BYTES` of zeros that both its kernels and the host can access."""

    def __init__(self, address: int = 0) -> None:
        words = ctypes.c_int64 * (BYTES // 8)
        self.words = words.from_address(address) if address else words()
        self.address = ctypes.addressof(self.words)

    def look(self) -> None:
        """Raise an error for a recorded fault, and clear the record."""
        if self.words[0]:
            raise self._taken()

    def report(self, number: int, index: int, extent: int) -> None:
        """Record an out-of-bounds index, as kernels do, unless a fault is recorded already."""
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
        lines = " or ".join(dict.fromkeys(str(line) for line in list(place.lines)[-MAX_LINES:]))
        return outside_axis(place.op, index, extent, place.axis, place.from_end, lines)
