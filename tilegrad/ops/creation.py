"""Constants: fills, positions, ranges, sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

from ..errors import ArgumentError
from ..ir.dtype import DType, float32, float64, int64
from ..ir.graph import Reader, TensorType, Value
from ..ir.scalar import Expr, Position, size
from ..ir.scalar import cast as cast_element
from ..ir.size import Dim, Shape
from .arithmetic import add, mul, sub
from .broadcasting import Fill, fill, fill_like, reshape
from .cast import cast
from .comparison import eq, lt
from .control import where
from .exponential import power

__all__ = [
    "Fill",
    "Iota",
    "SizeValue",
    "arange",
    "eye",
    "fill",
    "fill_like",
    "linspace",
    "logspace",
    "size_number",
    "ones",
    "positions",
    "zeros",
]


@final
class Iota(Value):
    """0, 1, 2, ... as int64."""

    cost = "free"
    differentiable = False
    extent: Dim
    place: str = "cpu"

    def infer(self) -> TensorType:
        return TensorType(int64, (self.extent,), self.place)

    def element(self, position: Position, read: Reader) -> Expr:
        return position[0]

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return ()

    def __str__(self) -> str:
        return f"iota[{self.extent}]"


@final
class SizeValue(Value):
    """A symbolic size as a scalar."""

    cost = "free"
    differentiable = False
    extent: Dim
    to: DType
    place: str = "cpu"

    def infer(self) -> TensorType:
        return TensorType(self.to, (), self.place)

    def element(self, position: Position, read: Reader) -> Expr:
        return cast_element(size(self.extent), self.to)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return ()

    def __str__(self) -> str:
        return f"size[{self.extent}]"


def size_number(extent: Dim, dtype: DType, device: str = "cpu") -> Value:
    """Return a size as a scalar of a type."""
    if isinstance(extent, int):
        return fill(float(extent) if dtype.is_float else extent, (), dtype, device)
    return SizeValue(extent, dtype, device)


def zeros(shape: Shape, dtype: DType = float32, device: str = "cpu") -> Value:
    return fill(0.0 if dtype.is_float else 0, shape, dtype, device)


def ones(shape: Shape, dtype: DType = float32, device: str = "cpu") -> Value:
    return fill(1.0 if dtype.is_float else 1, shape, dtype, device)


def positions(extent: Dim, device: str = "cpu") -> Value:
    """Return 0, 1, 2, ... as int64."""
    return Iota(extent, device)


def arange(start: float, stop: float, step: float = 1, dtype: DType = int64, device: str = "cpu") -> Value:
    """Return start, start + step, ... up to but without stop, computed in float64 or int64."""
    if step == 0 or (stop - start) * step < 0:
        raise ArgumentError(f"arange: a step of {step} does not lead from {start} to {stop}")
    if all(isinstance(x, int) for x in (start, stop, step)):
        count = -((int(start) - int(stop)) // int(step))
        return cast(_line(start, step, positions(count, device)), dtype)
    count = math.ceil((stop - start) / step)
    return cast(_line(float(start), float(step), cast(positions(count, device), float64)), dtype)


def _line(start: float, step: float, n: Value) -> Value:
    steps = n if step == 1 else mul(n, step)
    return steps if start == 0 else add(steps, start)


def linspace(start: float, stop: float, count: int, dtype: DType = float32, device: str = "cpu") -> Value:
    """Return `count` evenly spaced numbers from start to stop, both included."""
    return cast(_spaced(start, stop, count, device), dtype)


def _spaced(start: float, stop: float, count: int, device: str) -> Value:
    if count < 0:
        raise ArgumentError(f"linspace: {count} numbers")
    step = (stop - start) / (count - 1) if count > 1 else 0.0
    n = cast(positions(count, device), float64)
    from_end = sub(float(stop), mul(sub(float(count - 1), n), step))
    return where(lt(n, count / 2), add(mul(n, step), float(start)), from_end)


def logspace(
    start: float, stop: float, count: int, base: float = 10.0, dtype: DType = float32, device: str = "cpu"
) -> Value:
    """Return powers of `base` with evenly spaced exponents."""
    return cast(power(float(base), _spaced(start, stop, count, device)), dtype)


def eye(rows: Dim, columns: Dim | None = None, dtype: DType = float32, device: str = "cpu") -> Value:
    """Return the identity matrix."""
    wide = positions(rows if columns is None else columns, device)
    return cast(eq(reshape(positions(rows, device), (rows, 1)), wide), dtype)
