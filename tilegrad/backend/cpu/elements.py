"""Access single elements of memory from Python, at any address."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from ...ir.dtype import DType

ADDRESS_SPACE_BYTES = 1 << 62
"""More than any address."""
ELEMENT_FORMATS = {
    "bool": "?", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int8": "b", "int16": "h", "int32": "i",
    "int64": "q", "float32": "f", "float64": "d",
}  # fmt: skip
"""The names that memoryviews have for dtypes."""


@cache
def elements(dtype: DType) -> memoryview | None:
    """Return the address space as elements of a dtype, the fastest access to single ones from Python.

    >>> from tilegrad.ir.dtype import float32
    >>> pair = (ctypes.c_float * 2)(1, 2)
    >>> elements(float32)[ctypes.addressof(pair) // 4 + 1]
    2.0
    """
    format = ELEMENT_FORMATS.get(dtype.name)
    if format is None:
        return None
    bytes: Any = memoryview((ctypes.c_ubyte * ADDRESS_SPACE_BYTES).from_address(0)).cast("B")
    found: memoryview = bytes.cast(format)
    return found
