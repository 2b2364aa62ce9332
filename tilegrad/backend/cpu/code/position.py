"""Positions in tiles, passed down while expressions are evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..emit import LlvmValue, lane_constants


class Position(NamedTuple):
    """A position at which expressions are evaluated: one element, or a vector along the last axis."""

    indices: tuple[LlvmValue, ...]
    """An int64 for each axis; for a vector, that of its first lane."""
    lanes: int
    """Lanes of the vector; 0 for one element."""
    active: int | None
    """Lanes that exist in the last vector of a row; None: all."""
    aligned: bool
    """Whether vectors begin at multiples of their length and cross no border."""
    known: dict[Any, LlvmValue]
    """Expressions evaluated in this iteration of the innermost loop."""
    names: dict[str, LlvmValue]
    """Values that names have in this iteration only."""

    @property
    def mask(self) -> LlvmValue | None:
        """The lanes that exist, if not all do."""
        if self.active is None or not self.lanes:
            return None
        return first_lanes(self.active, self.lanes)

    def moved(self, *index: LlvmValue, lanes: int | None = None) -> Position:
        """Another position, evaluated in the same iteration."""
        _, old, *rest = self
        return tuple.__new__(Position, (index, old if lanes is None else lanes, *rest))

    @property
    def element(self) -> Position:
        """The first element of the vector."""
        return self if not self.lanes else self.moved(*self.indices, lanes=0)

    @property
    def scalar(self) -> Position:
        """The position in a number, which has no axes."""
        return self if not self.indices else self.moved(lanes=0)

    def iteration(self, *index: LlvmValue, lanes: int | None = None) -> Position:
        """Return a position inside another loop, in which nothing is known yet."""
        return self._replace(indices=index, lanes=self.lanes if lanes is None else lanes, known={})


def first_lanes(count: int, lanes: int) -> LlvmValue:
    """Return a mask of the first lanes of a vector."""
    return lane_constants([n < count for n in range(lanes)], "i1")


def position(
    index: Sequence[LlvmValue] = (), lanes: int = 0, *, active: int | None = None, aligned: bool = False
) -> Position:
    """Return a position in a new iteration."""
    return Position(tuple(index), lanes, active, aligned, {}, {})
