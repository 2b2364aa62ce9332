"""What the copy engine of a GPU (sm_90 on) is told about a tensor: the kernel that copies by it has it as a parameter.

A kernel's tensor maps follow its other parameters. The driver makes one of 128 bytes from an address; a tensor is taken
as a matrix of unlimited height here, since kernels are known not to leave it.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from ...ir.dtype import DType, bfloat16, dtype_named, float16, float32

BYTES = 128
ALIGNED = 64
_CODES = {float16: 6, bfloat16: 9, float32: 11}
"""Numbers of float32 are rounded to tf32 on their way: those that are copied are for products only."""
_SWIZZLE_128, _PROMOTE_256 = 3, 3
_FAR = 1 << 40


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

    def packed(self) -> list[Any]:
        """As it is written to disk.

        >>> map = TensorMap(0, bfloat16, 4096, (64, 128))
        >>> TensorMap.unpacked(map.packed()) == map
        True
        """
        return [self.parameter, self.dtype.name, self.pitch, list(self.box), self.columns, self.lines]

    @classmethod
    def unpacked(cls, fields: list[Any]) -> TensorMap:
        parameter, dtype, pitch, box, columns, lines = fields
        return cls(parameter, dtype_named(dtype), pitch, (box[0], box[1]), columns, lines)

    def arguments(self, address: int) -> tuple[Any, ...]:
        """What cuTensorMapEncodeTiled takes after the place that it writes to."""
        pitch = self.pitch * self.dtype.bytes
        lines = self.lines or min((1 << 31) - 1, _FAR // pitch)
        return (
            _CODES[self.dtype],
            2,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * 2)(self.columns or self.pitch, lines),
            (ctypes.c_uint64 * 1)(pitch),
            (ctypes.c_uint32 * 2)(*self.box),
            (ctypes.c_uint32 * 2)(1, 1),
            0,  # not interleaved
            _SWIZZLE_128,
            _PROMOTE_256,
            0,  # zeros where a box leaves the matrix
        )
