"""What the copy engine of a GPU (sm_90 on) is told about a tensor: the kernel that copies by it has it as a parameter.

A kernel's tensor maps follow its other parameters. The driver makes one of 128 bytes from an address; a tensor is taken
as a matrix of unlimited height here, since kernels are known not to leave it.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from ...ir.dtype import FLOAT8, DType, bfloat16, dtype_named, float16, float32, int8, uint8

BYTES = 128
ALIGNED = 64
_CODES = {float16: 6, bfloat16: 9, float32: 11, **dict.fromkeys((uint8, int8, *FLOAT8), 0)}
"""Numbers of float32 are rounded to tf32 on their way: those that are copied are for products only."""
_SWIZZLE_128 = 3
_PROMOTE_128, _PROMOTE_256 = 2, 3
"""How much the second cache fetches for a piece: where lines do not begin at 128 bytes, the longer one took products a
seventh longer."""
_FAR, _MOST = 1 << 40, (1 << 31) - 1
START = 16
"""Bytes of which the beginning of a matrix is a multiple, where it may be anywhere."""


class TensorMap(NamedTuple):
    """Boxes of `box` (columns, lines) of a matrix whose lines have `pitch` elements, in the memory of a parameter."""

    parameter: int
    dtype: DType
    pitch: int
    box: tuple[int, int]
    columns: int = 0
    """How far lines are read, if not whole: what a box has beyond is 0."""
    lines: int = 0
    """How many lines there are, if that matters."""
    anywhere: bool = False
    """Whether a matrix may begin at any multiple of 16 bytes: how many of them is the third number of a box. Lines may
    overlap then."""

    def packed(self) -> list[Any]:
        """As it is written to disk.

        >>> map = TensorMap(0, bfloat16, 4096, (64, 128))
        >>> TensorMap.unpacked(map.packed()) == map
        True
        """
        numbers = self.columns, self.lines, int(self.anywhere)
        return [self.parameter, self.dtype.name, self.pitch, list(self.box), *numbers]

    @classmethod
    def unpacked(cls, fields: list[Any]) -> TensorMap:
        parameter, dtype, pitch, box, columns, lines, anywhere = fields
        return cls(parameter, dtype_named(dtype), pitch, (box[0], box[1]), columns, lines, bool(anywhere))

    def arguments(self, address: int) -> tuple[Any, ...]:
        """What cuTensorMapEncodeTiled takes after the place that it writes to.

        >>> [TensorMap(0, bfloat16, pitch, (64, 64)).arguments(0)[-2] for pitch in (1024, 1000)]
        [3, 2]
        """
        pitch = self.pitch * self.dtype.bytes
        lines = self.lines or min(_MOST, _FAR // pitch)
        rank = 3 if self.anywhere else 2
        promoted = _PROMOTE_256 if self.anywhere or pitch % 128 == 0 else _PROMOTE_128
        return (
            _CODES[self.dtype],
            rank,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * 3)(self.columns or self.pitch, lines, _MOST),
            (ctypes.c_uint64 * 2)(pitch, START),
            (ctypes.c_uint32 * 3)(*self.box, 1),
            (ctypes.c_uint32 * 3)(1, 1, 1),
            0,  # not interleaved
            _SWIZZLE_128,
            promoted,
            0,  # zeros where a box leaves the matrix
        )
