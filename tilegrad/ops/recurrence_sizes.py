"""Kinds and sizes of recurrent layers, and the constants of their kernels."""

from __future__ import annotations

from math import gcd
from typing import Literal, NamedTuple

from ..ir.dtype import DType
from ..ir.node import Structure
from ..ir.program import Tiles
from ..ir.size import Dim

CellKind = Literal["tanh", "relu", "lstm", "gru"]
TangentKind = CellKind | Literal["scan"]
GATES: dict[str, int] = {"tanh": 1, "relu": 1, "lstm": 4, "gru": 3, "scan": 1}
SAVED_PER_UNIT: dict[str, int] = {"tanh": 0, "relu": 0, "lstm": 5, "gru": 4}
"""Numbers that a unit stores at each step for the gradient: gates, and the cells of an LSTM or m of a GRU."""
FACTORS: dict[str, int] = {"tanh": 1, "relu": 1, "lstm": 6, "gru": 5, "scan": 1}
"""Factors of a linear recurrence, see `recurrence_tangent.py`."""
VECTOR_LANES = 8
"""Sequences of a batch in a vector of 256 bits."""
MAX_GROUP_ROWS = 16
"""Rows of weights in a group: one cache line."""


def group_rows(units: int) -> int:
    """Return the number of rows in a group of weights.

    >>> group_rows(256), group_rows(200), group_rows(3)
    (16, 8, 1)
    """
    return gcd(units, MAX_GROUP_ROWS)


class RecurrenceSizes(NamedTuple):
    length: Dim
    units: int
    batch: int


class RecurrenceLayer(Structure):
    """The constants of a kernel."""

    length: Dim
    units: int
    batch: int
    gates: int
    saved: int
    """Numbers that a unit stores at each step."""
    states: Dim
    """States in front of these numbers."""
    reverse: bool
    dtype: DType

    @property
    def lanes(self) -> int:
        """Lanes of an instance: two vectors of sequences if there are enough, so that both use each scalar of the
        weights.
        """
        return 2 * VECTOR_LANES if self.batch > VECTOR_LANES else VECTOR_LANES

    @property
    def size(self) -> int:
        return self.units * self.batch

    @property
    def kept(self) -> Dim:
        """Position of the numbers that are stored for the gradient."""
        return self.states * self.size

    @property
    def group(self) -> int:
        return group_rows(self.units)

    @property
    def grid(self) -> tuple[Tiles]:
        return (Tiles(self.batch, self.lanes),)


def layer(kind: TangentKind, sizes: RecurrenceSizes, reverse: bool, dtype: DType) -> RecurrenceLayer:
    """Return the constants of the kernels of a layer."""
    states = sizes.length + int(kind == "lstm")
    return RecurrenceLayer(*sizes, GATES[kind], SAVED_PER_UNIT.get(kind, 0), states, reverse, dtype)
