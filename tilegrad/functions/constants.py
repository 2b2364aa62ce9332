"""Define named constants, the ranges of dtypes, and PyTorch's older constructors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import DTypeError
from ..ir.dtype import (
    DType,
    bfloat16,
    bool_,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint8,
)
from .creation import empty, tensor
from .declared import publish
from .pointwise import named
from .promotion import get_default_dtype

if TYPE_CHECKING:
    from ..tensor import Tensor

e, pi, inf, nan = math.e, math.pi, math.inf, math.nan
newaxis = None
Size: type[tuple[int, ...]] = tuple
"""Shapes are tuples here."""

DIGITS = {float8_e4m3fn: 3, float8_e5m2: 2, float16: 10, bfloat16: 7, float32: 23, float64: 52}
"""Bits of the mantissa."""
SMALLEST = {
    float8_e4m3fn: 2.0**-6,
    float8_e5m2: 2.0**-14,
    float16: 2.0**-14,
    bfloat16: 2.0**-126,
    float32: 2.0**-126,
    float64: 2.0**-1022,
}


class finfo:
    """The range and precision of a floating-point dtype.

    >>> finfo(float16)
    finfo(resolution=0.001, min=-65504.0, max=65504.0, eps=0.0009765625, smallest_normal=6.103515625e-05, dtype=float16)
    """

    def __init__(self, type: DType | None = None) -> None:
        dtype = get_default_dtype() if type is None else type
        if not isinstance(dtype, DType) or not dtype.is_float:
            raise DTypeError(f"finfo is of floating-point types, not of {dtype!r}; use iinfo for integers")
        self.dtype = dtype.name
        self.bits = dtype.bits
        self.min, self.max = float(dtype.min), float(dtype.max)
        self.eps = 2.0 ** -DIGITS[dtype]
        self.tiny = self.smallest_normal = SMALLEST[dtype]
        self.resolution = 10.0 ** -int(DIGITS[dtype] * math.log10(2))

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution}, min={self.min}, max={self.max}, eps={self.eps}, "
            f"smallest_normal={self.smallest_normal}, dtype={self.dtype})"
        )


class iinfo:
    """The range of an integer dtype.

    >>> iinfo(uint8)
    iinfo(min=0, max=255, dtype=uint8)
    """

    def __init__(self, type: DType) -> None:
        if not isinstance(type, DType) or not type.is_integer:
            raise DTypeError(f"iinfo is of integer types, not of {type!r}; use finfo for floating-point types")
        self.dtype = type.name
        self.bits = type.bits
        self.min, self.max = int(type.min), int(type.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


def _constructor(name: str, dtype: DType) -> Callable[..., Tensor]:
    """Return one of PyTorch's older constructors.

    >>> _constructor("LongTensor", int64)([1, 2]), _constructor("LongTensor", int64)(2, 3).shape
    (tensor([1, 2]), (2, 3))
    """

    def construct(*data: Any) -> Tensor:
        if not data or isinstance(data[0], int):
            return empty(*data or (0,), dtype=dtype)
        return tensor(data[0], dtype=dtype)

    return named(construct, name, f"Make a tensor as `tensor(data, dtype={dtype.name})`; integers are sizes.")


FloatTensor, DoubleTensor = _constructor("FloatTensor", float32), _constructor("DoubleTensor", float64)
IntTensor, LongTensor = _constructor("IntTensor", int32), _constructor("LongTensor", int64)
ByteTensor, BoolTensor = _constructor("ByteTensor", uint8), _constructor("BoolTensor", bool_)

publish(globals(), others=("Size", "e", "finfo", "iinfo", "inf", "nan", "newaxis", "pi"))
