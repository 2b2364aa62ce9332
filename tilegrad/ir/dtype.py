"""Define the element types and their promotion table."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..errors import DTypeError
from .node import Node

Kind = Literal["bool", "uint", "int", "float"]


class DType(Node):
    """An element type. There is one object for each: compare with `is`."""

    name: str
    short: str
    kind: Kind
    bits: int

    @property
    def bytes(self) -> int:
        return (self.bits + 7) // 8

    @property
    def itemsize(self) -> int:
        return self.bytes

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        """False: there are no complex numbers here."""
        return False

    @property
    def is_floating_point(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def numpy(self) -> np.dtype:
        return _NUMPY[self] if self in _NUMPY else _with_others()[self]

    @property
    def min(self) -> float | int:
        """The smallest finite value."""
        if self.is_float:
            return -self.max
        return 0 if self.kind != "int" else -(1 << (self.bits - 1))

    @property
    def max(self) -> float | int:
        """The largest finite value."""
        if self.is_float:
            return LARGEST[self]
        return 1 if self.kind == "bool" else (1 << (self.bits - (self.kind == "int"))) - 1

    def __repr__(self) -> str:
        return f"tilegrad.{self.name}"

    def __str__(self) -> str:
        return self.short

    def __reduce__(self) -> str | tuple[object, ...]:
        return dtype_named, (self.name,)


bool_ = DType("bool", "bool", "bool", 8)
uint8 = DType("uint8", "u8", "uint", 8)
uint16 = DType("uint16", "u16", "uint", 16)
uint32 = DType("uint32", "u32", "uint", 32)
uint64 = DType("uint64", "u64", "uint", 64)
int8 = DType("int8", "i8", "int", 8)
int16 = DType("int16", "i16", "int", 16)
int32 = DType("int32", "i32", "int", 32)
int64 = DType("int64", "i64", "int", 64)
float16 = DType("float16", "f16", "float", 16)
bfloat16 = DType("bfloat16", "bf16", "float", 16)
float32 = DType("float32", "f32", "float", 32)
float64 = DType("float64", "f64", "float", 64)

float8_e4m3fn = DType("float8_e4m3fn", "f8e4m3", "float", 8)
float8_e5m2 = DType("float8_e5m2", "f8e5m2", "float", 8)

DTYPES = (bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, bfloat16, float32, float64)
FLOAT8 = (float8_e4m3fn, float8_e5m2)
"""Storage-only types: they can be stored, copied, cast and multiplied (`dot`), but not computed with otherwise.
float8_e4m3fn has no infinity: values beyond its range saturate.
"""
LARGEST = {
    float8_e4m3fn: 448.0,
    float8_e5m2: 57344.0,
    float16: 65504.0,
    bfloat16: float.fromhex("0x1.fep127"),
    float32: float.fromhex("0x1.fffffep127"),
    float64: float.fromhex("0x1.fffffffffffffp1023"),
}

_OTHERS = (bfloat16, *FLOAT8)
_NUMPY = {d: np.dtype(d.name) for d in DTYPES if d not in _OTHERS}
_CATEGORIES = {"bool": 0, "int": 1, "uint": 1, "float": 2}
"""Rank of the kinds in promotion: the higher one wins, whatever the widths."""
_BY_NAME = {d.name: d for d in (*DTYPES, *FLOAT8)} | {d.short: d for d in (*DTYPES, *FLOAT8)}
_FROM_NUMPY = {n: d for d, n in _NUMPY.items()}


def _with_others() -> dict[DType, np.dtype]:
    """Add the numpy dtypes of `ml_dtypes`, which is imported when one of them is first needed."""
    import ml_dtypes

    for d in _OTHERS:
        _NUMPY[d] = np.dtype(getattr(ml_dtypes, d.name))
        _FROM_NUMPY[_NUMPY[d]] = d
    return _NUMPY


def dtype_named(name: str) -> DType:
    """Look up a dtype by its long or short name."""
    return _BY_NAME[name]


def from_numpy_dtype(dtype: object) -> DType | None:
    """Return the dtype with the same storage as a numpy dtype, or None."""
    wanted = np.dtype(dtype)  # type: ignore[call-overload]
    if bfloat16 not in _NUMPY and wanted.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        _with_others()
    return _FROM_NUMPY.get(wanted)


def promote(x: DType, y: DType) -> DType:
    """Return the common type of two operands (PyTorch's table, for two tensors).

    >>> promote(float16, bfloat16), promote(uint8, int8), promote(int64, float16)
    (tilegrad.float32, tilegrad.int16, tilegrad.float16)
    """
    if x is y:
        return x
    for narrow, other in ((x, y), (y, x)):
        if narrow in FLOAT8:
            raise DTypeError(f"{narrow.name} does not meet {other.name}: convert it, as in x.to({other.name})")
    if _CATEGORIES[x.kind] != _CATEGORIES[y.kind]:
        return x if _CATEGORIES[x.kind] > _CATEGORIES[y.kind] else y
    if x.kind == y.kind:
        if x.bits == y.bits:
            return float32  # float16 with bfloat16
        return x if x.bits > y.bits else y
    signed, unsigned = (x, y) if x.kind == "int" else (y, x)
    if signed.bits > unsigned.bits:
        return signed
    return _BY_NAME[f"int{min(64, unsigned.bits * 2)}"]
