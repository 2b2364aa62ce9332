"""Tensor maps: descriptors for the tensor memory accelerator (sm_90 on), which are parameters of kernels.

The driver encodes 128 bytes for an address. A tensor is described as a matrix of unlimited height, since kernels never
leave it.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from ...ir.dtype import FLOAT8, DType, bfloat16, dtype_named, float16, float32, int8, uint8

BYTES = 128
"""Bytes of an encoded tensor map."""
ALIGNED = 64
"""Alignment of an encoded tensor map, in bytes."""
_CODES = {float16: 6, bfloat16: 9, float32: 11, **dict.fromkeys((uint8, int8, *FLOAT8), 0)}
"""Type codes. float32 becomes tf32 when copied: such copies are only operands of products."""
_SWIZZLE_128 = 3
"""`CU_TENSOR_MAP_SWIZZLE_128B`."""
_PROMOTE_128, _PROMOTE_256 = 2, 3
"""L2 promotion sizes: the longer one is slower where lines are not aligned to 128 bytes."""
_MAX_BYTES, _MAX_EXTENT = 1 << 40, (1 << 31) - 1
MATRIX_ALIGNMENT = 16
"""Alignment, in bytes, of a matrix that may begin anywhere."""


class TensorMap(NamedTuple):
    """Boxes of `box` (columns, lines) of a matrix with a pitch in elements, in a parameter's memory."""

    parameter: int
    dtype: DType
    pitch: int
    box: tuple[int, int]
    columns: int = 0
    """Readable columns of a line if fewer than the pitch: a box is zero-filled beyond."""
    lines: int = 0
    """Number of lines, if it matters."""
    anywhere: bool = False
    """Whether a matrix may begin at any multiple of 16 bytes, given by the third coordinate of a box; lines may overlap
    then.
    """

    def packed(self) -> list[Any]:
        """Return the fields for JSON.

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
        """Return the arguments of cuTensorMapEncodeTiled after the first.

        >>> [TensorMap(0, bfloat16, pitch, (64, 64)).arguments(0)[-2] for pitch in (1024, 1000)]
        [3, 2]
        """
        pitch = self.pitch * self.dtype.bytes
        lines = self.lines or min(_MAX_EXTENT, _MAX_BYTES // pitch)
        rank = 3 if self.anywhere else 2
        promoted = _PROMOTE_256 if self.anywhere or pitch % 128 == 0 else _PROMOTE_128
        return (
            _CODES[self.dtype],
            rank,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * 3)(self.columns or self.pitch, lines, _MAX_EXTENT),
            (ctypes.c_uint64 * 2)(pitch, MATRIX_ALIGNMENT),
            (ctypes.c_uint32 * 3)(*self.box, 1),
            (ctypes.c_uint32 * 3)(1, 1, 1),
            0,  # not interleaved
            _SWIZZLE_128,
            promoted,
            0,  # zeros where a box leaves the matrix
        )
