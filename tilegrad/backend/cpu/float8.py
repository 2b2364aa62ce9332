"""Convert 8-bit floats, held as vectors of bytes, from and to float32."""

from __future__ import annotations

from typing import NamedTuple

from ...ir.dtype import DType, float8_e4m3fn, float8_e5m2
from .emit import Builder, LlvmValue, constant


class Float8Format(NamedTuple):
    """An 8-bit float format: mantissa bits, exponent bias, the largest encoding that a conversion gives, and NaN."""

    digits: int
    bias: int
    largest: int
    nan: int


FORMATS = {float8_e4m3fn: Float8Format(3, 7, 0x7E, 0x7F), float8_e5m2: Float8Format(2, 15, 0x7C, 0x7F)}
SIGN = 0x80
"""Bit of the sign."""


def widen_float8(b: Builder, x: LlvmValue, source: DType) -> LlvmValue:
    """Convert to float32: shift mantissa and exponent into place, and multiply by the difference of exponent biases."""
    format = FORMATS[source]
    bits = b.convert("zext", x, "i32")
    type = bits.type
    size = b.op("and", bits, constant(SIGN - 1, type))
    small = b.convert("bitcast", b.op("shl", size, constant(23 - format.digits, type)), "float")
    value = b.op("fmul", small, constant(2.0 ** (127 - format.bias), small.type))
    made = b.convert("bitcast", value, "i32")
    if source is float8_e5m2:
        made = b.select(b.compare("eq", size, constant(format.largest, type)), constant(0x7F800000, type), made)
        special = b.compare("ugt", size, constant(format.largest, type))
    else:
        special = b.compare("eq", size, constant(format.nan, type))
    made = b.select(special, constant(0x7FC00000, type), made)
    sign = b.op("shl", b.op("and", bits, constant(SIGN, type)), constant(24, type))
    return b.convert("bitcast", b.op("or", made, sign), "float", "wide")


def round_to_float8(b: Builder, x: LlvmValue, target: DType) -> LlvmValue:
    """Round to nearest even; overflow saturates to the largest number, or to infinity where the format has one."""
    format = FORMATS[target]
    fewer = 23 - format.digits
    bits = b.convert("bitcast", x, "i32", "bits")
    type = bits.type
    size = b.op("and", bits, constant(0x7FFFFFFF, type))
    odd = b.op("and", b.op("lshr", size, constant(fewer, type)), constant(1, type))
    nudge = (1 << (fewer - 1)) - 1 - (127 - format.bias << 23)
    usual = b.op("lshr", b.op("add", b.op("add", size, constant(nudge, type)), odd), constant(fewer, type))
    above = 151 - format.digits - format.bias << 23  # adding this rounds to the digits of denormals
    positive = b.convert("bitcast", size, "float")
    summed = b.op("fadd", positive, constant(2.0 ** (24 - format.digits - format.bias), positive.type))
    small = b.op("sub", b.convert("bitcast", summed, "i32"), constant(above, type))
    made = b.select(b.compare("ult", size, constant(128 - format.bias << 23, type)), small, usual)
    largest = constant(format.largest, type)
    made = b.select(b.compare("ugt", made, largest), largest, made)
    made = b.select(b.compare("uno", x, x), constant(format.nan, type), made)
    sign = b.op("lshr", b.op("and", bits, constant(-1 << 31, type)), constant(24, type))
    return b.convert("trunc", b.op("or", made, sign), "i8", "narrow")
