"""Conversion of element types, and detaching from the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ..errors import DTypeError
from ..ir.dtype import DType, bfloat16, bool_, float16, float32
from ..ir.graph import Reader, TensorType, Value
from ..ir.scalar import Expr, Position
from ..ir.scalar import bitcast as bitcast_element
from ..ir.scalar import cast as cast_element
from .base import Unary


@final
class Cast(Unary):
    """Elements converted to another type; to bool by `!= 0`."""

    cost = "free"
    takes = "bifn"
    to: DType

    def infer(self) -> TensorType:
        return self.x.type.with_dtype(self.to)

    def scalar(self, *elements: Expr) -> Expr:
        return cast_element(elements[0], self.to)

    def share_x(self, upstream: Value) -> Value | None:
        return cast(upstream, self.x.dtype)

    def __str__(self) -> str:
        return f"cast[{self.to}]"


@final
class Bitcast(Unary):
    """Bits of elements read as another type of the same width."""

    cost = "free"
    takes = "bifn"
    differentiable = False
    to: DType

    def infer(self) -> TensorType:
        if self.to.bits != self.x.dtype.bits:
            raise DTypeError(f"bitcast: {self.x.dtype.name} and {self.to.name} have different widths")
        return self.x.type.with_dtype(self.to)

    def scalar(self, *elements: Expr) -> Expr:
        return bitcast_element(elements[0], self.to)

    def share_x(self, upstream: Value) -> Value | None:
        return None

    def __str__(self) -> str:
        return f"bitcast[{self.to}]"


@final
class Detach(Value):
    """The same elements, without a gradient."""

    cost = "free"
    differentiable = False
    x: Value

    def infer(self) -> TensorType:
        return self.x.type

    def element(self, position: Position, read: Reader) -> Expr:
        return read(self.x, position)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)


def cast(x: Value, to: DType) -> Value:
    return x if x.dtype is to else Cast(x, to)


def bitcast(x: Value, to: DType) -> Value:
    return x if x.dtype is to else Bitcast(x, to)


def detach(x: Value) -> Value:
    return Detach(x) if x.tracked else x


def to_bool(x: Value) -> Value:
    return cast(x, bool_)


def widened(x: Value) -> Value:
    """Convert half precision to float32 for sums and exponentials."""
    return cast(x, float32) if x.dtype is float16 or x.dtype is bfloat16 else x
