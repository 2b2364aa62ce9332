"""Type rules: promotion in operations, and conversion in assignments."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..ir.dtype import DType, bool_, float32, float64, int32, int64, promote, uint64
from .thread_ir import Array, Conversion, Expression, NumberLiteral

Constant = int | float | bool


class UnsupportedCode(Exception):
    """Raised for unsupported code; a caller adds the source location."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NameType(NamedTuple):
    """The type of a name; `open` while only Python numbers were assigned, so that it may still change."""

    dtype: DType
    open: bool = False


def number_kind(x: Constant) -> NameType:
    """Return the default type of a Python number."""
    if isinstance(x, bool):
        return NameType(bool_)
    if isinstance(x, float):
        return NameType(float32, True)
    found = next((d for d in (int32, int64, uint64) if d.min <= x <= d.max), None)
    if found is None:
        raise UnsupportedCode(f"the number {x} does not fit in 64 bits")
    return NameType(found, True)


def kind_of(x: Expression | Constant) -> NameType:
    return NameType(x.dtype) if isinstance(x, Expression) else number_kind(x)


def join_types(name: str, old: NameType, new: NameType) -> NameType:
    """Return the type of a name assigned values of both types.

    >>> join_types("x", NameType(int32, True), NameType(float64)).dtype
    tilegrad.float64
    """
    if old.dtype is new.dtype:
        return old if new.open else new
    for one, other in ((old, new), (new, old)):
        if one.open and (other.dtype.is_float or not one.dtype.is_float) and other.dtype is not bool_:
            return NameType(max(one.dtype, other.dtype, key=lambda d: d.bits)) if one.dtype is int64 else other
    x, y = old.dtype, new.dtype
    if x.kind == y.kind and x is not bool_:
        return NameType(x if x.bits > y.bits else y, old.open and new.open)
    raise UnsupportedCode(
        f"`{name}` is {x.name} elsewhere in the kernel, and here it is given {y.name}: a name has one type; use "
        f"another name, "
        f"or say which: {name}: simt.{(x if x.is_float else y).name} = ..."
    )


def convert_to(x: Expression | Constant, dtype: DType) -> Expression:
    """Convert an expression to a type; Python numbers adopt it."""
    if isinstance(x, Expression):
        return x if x.dtype is dtype else Conversion(dtype, x)
    if dtype is bool_:
        return NumberLiteral(dtype, bool(x))
    if dtype.is_float:
        return NumberLiteral(dtype, float(x))
    if isinstance(x, float) and x != int(x):
        raise UnsupportedCode(f"{x} is no number of {dtype.name}")
    if not dtype.min <= int(x) <= dtype.max:
        raise UnsupportedCode(f"{x} is no number of {dtype.name}, which goes from {dtype.min} to {dtype.max}")
    return NumberLiteral(dtype, int(x))


def common_dtype(x: Expression | Constant, y: Expression | Constant) -> DType:
    """Return the common type of two operands; a Python number adopts that of the other."""
    if isinstance(x, Expression) == isinstance(y, Expression):
        return promote(kind_of(x).dtype, kind_of(y).dtype)
    known, number = (x, y) if isinstance(x, Expression) else (y, x)
    assert isinstance(known, Expression)
    if known.dtype is bool_:
        return number_kind(number).dtype  # type: ignore[arg-type]
    if isinstance(number, float) and not known.dtype.is_float:
        return float32 if known.dtype.bits <= 32 else float64
    if isinstance(number, int) and known.dtype.is_integer and not known.dtype.min <= number <= known.dtype.max:
        return number_kind(number).dtype
    return known.dtype


def is_half(dtype: DType) -> bool:
    """Whether a dtype is a 16-bit float, stored rounded and computed in float32."""
    return dtype.is_float and dtype.bits == 16


def element_type(dtype: Any, what: str) -> DType:
    """Return a dtype that arrays may have."""
    if not isinstance(dtype, DType):
        raise UnsupportedCode(f"{what} is an element type, such as simt.float32, and not {dtype!r}")
    return dtype


def supported(dtype: Any, what: str) -> DType:
    """Return a dtype that kernels compute with."""
    if is_half(found := element_type(dtype, what)):
        raise UnsupportedCode(
            f"{what} is {found.name}: kernels per thread compute with float32 and float64, and elements of "
            f"{found.name} are read as float32; simt.{found.name}(x) rounds as storing does"
        )
    return found


def rounded(x: Expression | Constant, dtype: DType) -> Expression:
    """Round a number to a 16-bit dtype and back."""
    return Conversion(float32, Conversion(dtype, convert_to(x, float32)))


def describe(x: Any) -> str:
    """Describe a value for error messages."""
    if isinstance(x, Expression):
        return x.dtype.name
    if isinstance(x, Array):
        where = f"{list(x.shape)} in {x.space} memory" if x.shape else f"in {x.space} memory"
        return f"the array `{x.name}` ({x.dtype.name}, {where})"
    return repr(x)
