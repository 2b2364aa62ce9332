"""Operators that change the element type."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from ... import functional as tg
from ...ir.dtype import DType
from ...tensor import Tensor
from ..problems import OnnxError
from ..rules import Function
from ..tensors import ELEMENT_TYPES, ElementType, element_type
from ..values import Narrow, as_tensor

BY_NAME = {kind.name: kind for kind in ELEMENT_TYPES.values()}
SMALL_FLOATS = {
    "float8_e4m3fn": (3, -6, 448.0),
    "float8_e4m3fnuz": (3, -7, 240.0),
    "float8_e5m2": (2, -14, 57344.0),
    "float8_e5m2fnuz": (2, -15, 57344.0),
    "float4_e2m1fn": (1, 0, 6.0),
}
"""Bits of the mantissa, the smallest exponent, and the largest number."""
INFINITE = ("float8_e5m2",)
"""Types with infinities."""


def cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return converted(x, element_type(to), bool(saturate), round_mode)


def cast_like(x: Any, target: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    return converted(x, type_of(target), bool(saturate), round_mode)


def type_of(value: Any) -> ElementType:
    """Return the element type of a value."""
    if isinstance(value, Narrow):
        return BY_NAME[value.name]
    if isinstance(value, Tensor):
        return BY_NAME[value.dtype.name]
    return BY_NAME[np.dtype(value.dtype).name]


def converted(x: Any, kind: ElementType, saturate: bool = True, round_mode: str = "up") -> Any:
    """Convert elements to a type, which may be one that only ONNX has."""
    if kind.held is None:
        raise OnnxError(f"conversion to {kind.name} is not supported")
    from_narrow = isinstance(x, Narrow) and not kind.is_own
    given = as_tensor(x)
    if from_narrow and isinstance(x, Narrow) and x.name == kind.name:
        return x
    if kind.name == "float8_e8m0fnu":
        return Narrow(_power_of_two(given.float(), saturate, round_mode), kind.name)
    if kind.name in SMALL_FLOATS:
        rounded = round_to(given.float(), kind.name, saturate)
        return rounded.to(kind.held) if kind.is_own else Narrow(rounded, kind.name)
    if kind.is_own:
        return given if given.dtype is kind.held else _to(given, kind.held)
    return _narrow_integers(given, kind)


def _narrow_integers(given: Tensor, kind: ElementType) -> Narrow:
    """Convert to integers of less than eight bits, which wrap around."""
    assert kind.held is not None
    signed = kind.held.kind == "int"
    whole = (tg.trunc(given) if given.is_floating_point() else given).to(tg_int64())
    kept = whole & ((1 << kind.bits) - 1)
    sign = 1 << (kind.bits - 1)
    return Narrow(((kept ^ sign) - sign if signed else kept).to(kind.held), kind.name)


def tg_int64() -> DType:
    found = BY_NAME["int64"].held
    assert found is not None
    return found


def _to(x: Tensor, dtype: DType) -> Tensor:
    """Convert between types of ours; floats become integers by way of int64, as in C."""
    if x.is_floating_point() and dtype.is_integer and dtype.bits < 64:
        return x.to(tg_int64()).to(dtype)
    return x.to(dtype)


def round_to(x: Tensor, name: str, saturate: bool) -> Tensor:
    """Round float32 numbers to those of a smaller type, ties to even."""
    bits, smallest, largest = SMALL_FLOATS[name]
    magnitude = tg.abs(x)
    exponent = tg.clamp(_exponent(magnitude), min=float(smallest))
    step = tg.exp2(exponent - bits)
    rounded = tg.round(magnitude / step) * step
    overflow = rounded > largest
    if saturate or name == "float4_e2m1fn":
        beyond = largest
    else:
        beyond = inf if name in INFINITE else float("nan")
    bounded = tg.where(overflow, tg.full_like(x, beyond), rounded)
    if name in INFINITE and not saturate:
        bounded = tg.where(tg.isinf(magnitude), magnitude, bounded)
    if name.endswith("fnuz") and not saturate:
        bounded = tg.where(tg.isinf(magnitude), tg.full_like(x, float("nan")), bounded)
    signed = tg.copysign(bounded, x)
    if name == "float4_e2m1fn":
        return tg.where(tg.isnan(x), tg.full_like(x, -0.0), signed)
    signed = tg.where(signed == 0, tg.zeros_like(x), signed) if name.endswith("fnuz") else signed
    return tg.where(tg.isnan(x), x, signed)


def _exponent(magnitude: Tensor) -> Tensor:
    """Return the exponent of the leading bit, also next to powers of two, where a logarithm is rounded."""
    safe = tg.clamp(magnitude, min=1e-37, max=3e38)
    near = tg.floor(tg.log2(safe))
    near = tg.where(tg.exp2(near) > safe, near - 1, near)
    return tg.where(tg.exp2(near + 1) <= safe, near + 1, near)


def _power_of_two(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    magnitude = tg.abs(x)
    below = _exponent(magnitude)
    power = tg.exp2(below)
    if round_mode == "up":
        up = magnitude > power
    elif round_mode == "nearest":
        up = magnitude >= 1.5 * power
    else:
        up = tg.zeros_like(magnitude) > 0
    found = tg.where(up, 2 * power, power)
    largest, least = 2.0**127, 2.0**-127
    if saturate:
        found = tg.clamp(found, least, largest)
        return tg.where(tg.isnan(x), x, found)
    return tg.where(tg.isnan(x) | (found > largest), tg.full_like(x, float("nan")), tg.clamp(found, min=least))


def bit_cast(x: Any, *, to: int) -> Any:
    """Read the bits of the elements as another type of the same size."""
    kind = element_type(to)
    if isinstance(x, Narrow) or not kind.is_own or kind.held is None:
        raise OnnxError("BitCast is only supported between types of whole bytes")
    given = as_tensor(x)
    return given.to(kind.held) if given.dtype.kind == "bool" else given.view(kind.held)


RULES: dict[str, Function] = {"Cast": cast, "CastLike": cast_like, "BitCast": bit_cast}
