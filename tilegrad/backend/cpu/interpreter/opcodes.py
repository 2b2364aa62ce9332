"""Name the block interpreter's instructions: one function of native code for each operation and dtype."""

from __future__ import annotations

from typing import NamedTuple

from ....ir.dtype import DType, float32, float64
from ....ir.functions import accumulation_dtype

FIRST_SLOT = 24
"""Words of a state before its slots."""
GROUP_LANES = 64
"""Lanes that registers are multiples of."""


class Opcode(NamedTuple):
    """What an instruction does: `apply` a function, `reduce` or `scan` lanes, or find the position of an `extreme`."""

    kind: str
    fn: str
    source: DType
    target: DType

    @property
    def name(self) -> str:
        return f"block_{self.kind}_{self.fn}_{self.source.short}_{self.target.short}"


def total_dtype(fn: str, dtype: DType) -> DType:
    """Return the dtype in which sums along lanes are kept from block to block: blocks of float32 add up in float64."""
    wide = accumulation_dtype(dtype)
    return float64 if wide is float32 and fn == "add" else wide
