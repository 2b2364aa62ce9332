"""Base classes of elementwise ops: broadcasting, and numbers as operands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

from ..errors import DeviceError, DTypeError
from ..ir.dtype import DType, bool_
from ..ir.functions import FUNCTIONS
from ..ir.graph import Reader, TensorType, Value
from ..ir.scalar import Expr, Position, apply
from ..ir.size import Shape
from .broadcasting import KINDS, Fill, align, broadcast_shapes, fill_like, require, shown, sum_to

__all__ = [
    "Binary",
    "Elementwise",
    "Operand",
    "Unary",
    "align",
    "broadcast_shapes",
    "broadcast_type",
    "operand",
    "pair",
    "require_alike",
    "sum_to",
    "zeros_like",
]

Operand: TypeAlias = "Value | float"
"""Operand of the functions that build values: a value or a number."""


class Elementwise(Value):
    """Ops whose element is a function of one element of each input.

    Inputs broadcast, and have one dtype and one device.
    """

    fn: ClassVar[str] = ""
    """Name of the function in `FUNCTIONS`; an op that is more than a function overrides `scalar`."""
    takes: ClassVar[str] = "bif"
    """Element kinds accepted: b(ool), i(nteger), f(loat)."""
    predicate: ClassVar[bool] = False
    """Whether the result is a bool."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "fn" in cls.__dict__:
            cls.takes = FUNCTIONS[cls.fn].domain
            cls.predicate = FUNCTIONS[cls.fn].result == "bool"
            if FUNCTIONS[cls.fn].expensive and "cost" not in cls.__dict__:
                cls.cost = "expensive"
            cls.differentiable = cls.differentiable and not cls.predicate

    def scalar(self, *elements: Expr) -> Expr:
        """Apply the op to one element of each input."""
        return apply(self.fn, *elements)

    def infer(self) -> TensorType:
        met = broadcast_type(self.op, self.inputs)
        if KINDS[met.dtype] not in self.takes:
            require(self.takes, met.dtype, self.op)
        return met.with_dtype(bool_) if self.predicate else met

    def element(self, position: Position, read: Reader) -> Expr:
        return self.scalar(*[read(x, align(position, x.shape)) for x in self.inputs])


class Unary(Elementwise):
    """Elementwise ops with one operand."""

    x: Value

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (self.share_x(upstream),)

    @abstractmethod
    def share_x(self, upstream: Value) -> Value | None:
        """Return the gradient of x."""


class Binary(Elementwise):
    """Elementwise ops with two operands."""

    x: Value
    y: Value

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        x, y = self.x, self.y
        to_x = self.share_x(upstream) if x.tracked else None
        to_y = self.share_y(upstream) if y.tracked else None
        return (
            None if to_x is None else sum_to(to_x, x.shape),
            None if to_y is None else sum_to(to_y, y.shape),
        )

    @abstractmethod
    def share_x(self, upstream: Value) -> Value | None:
        """Return the gradient of x, before broadcast axes are summed."""

    @abstractmethod
    def share_y(self, upstream: Value) -> Value | None:
        """Return the gradient of y, before broadcast axes are summed."""


def broadcast_type(op: str, values: Sequence[Value]) -> TensorType:
    """Return the broadcast type of values of one dtype and device."""
    met = values[0].type
    for x in values[1:]:
        other = x.type
        if other is met:
            continue
        if other.dtype is not met.dtype or (other.device != met.device and other.shape and met.shape):
            require_alike(op, values)
        shape = _broadcast_pair(met.shape, other.shape, op)
        if shape is not met.shape:
            met = other if shape is other.shape else TensorType(met.dtype, shape, met.device)
        elif not shape and other.device != "cpu":
            met = other
    return met


def require_alike(op: str, values: Sequence[Value]) -> None:
    """Raise an error if values differ in dtype or device."""
    met = values[0].type
    for x in values:
        if x.dtype is not met.dtype:
            raise DTypeError(
                f"{op}: elements of two types, {_listed(values)}; convert one, as in y.to(tilegrad.{met.dtype.name})"
            )
        if x.device != met.device:
            raise DeviceError(f"{op}: tensors on two devices, {_listed(values)}; move one, as in y.to({met.device!r})")


def require_one_device(op: str, values: Sequence[Value]) -> None:
    """Raise an error if values are on different devices."""
    for x in values[1:]:
        if x.device != values[0].device:
            raise DeviceError(
                f"{op}: tensors on two devices, {_listed([values[0], x])}; move one, as in y.to({values[0].device!r})"
            )


def _broadcast_pair(x: Shape, y: Shape, op: str) -> Shape:
    """Broadcast two shapes; return one of them if it is equal to the result."""
    new = len(x) - len(y)
    if new >= 0 and x[new:] == y:
        return x
    if new < 0 and y[-new:] == x:
        return y
    return broadcast_shapes(x, y, op=op)


def _listed(values: Sequence[Value]) -> str:
    return " and ".join(f"{x.dtype.name} {shown(x.shape)} on {x.device}" for x in values)


def operand(x: Operand, like: Value) -> Value:
    """Convert a number to a scalar of the dtype and device of another value; return a value as it is."""
    if not isinstance(x, (int, float)):  # faster than isinstance(x, Value)
        return x
    dtype, device = like.type.dtype, like.type.device
    kind = dtype.kind
    if kind == "float":
        x = float(x)
    elif isinstance(x, float) or (kind == "bool" and not isinstance(x, bool)):
        raise DTypeError(f"the number {x} does not fit {dtype.name} elements; convert the tensor first")
    type = _numbers.get((dtype, device))
    if type is None:
        type = _numbers[dtype, device] = TensorType(dtype, (), device)
    return Fill(x, type)


_numbers: dict[tuple[DType, str], TensorType] = {}
"""Cached types of scalars."""


def pair(x: Operand, y: Operand) -> tuple[Value, Value]:
    """Convert two operands, at least one of which is a value, to values."""
    if not isinstance(x, (int, float)):
        return x, operand(y, x)
    assert isinstance(y, Value), "two numbers need no graph"
    return operand(x, y), y


def zeros_like(x: Value) -> Value:
    """Return the gradient of a function that is constant in x."""
    return fill_like(x, 0.0 if x.dtype.is_float else 0 if x.dtype is not bool_ else False)
