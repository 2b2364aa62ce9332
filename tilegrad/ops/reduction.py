"""Reductions: products, extremes, any, all and positions of extremes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

from ..errors import ShapeError
from ..ir.dtype import DType, bool_, int64, uint8
from ..ir.graph import Value
from .arithmetic import div, mul
from .bits import bitwise_or
from .broadcasting import Axes, Reduction, Sum, normal_axes, normal_axis, reduce_sum, reshape, shown
from .cast import cast, to_bool
from .comparison import eq, isnan, ne
from .control import masked
from .creation import positions, zeros
from .movement import flip, inverse, narrow, pad, permute

__all__ = [
    "All",
    "Any",
    "Argmax",
    "Argmin",
    "Max",
    "Min",
    "Prod",
    "Reduction",
    "Sum",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "count_nonzero",
    "max_along",
    "min_along",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
]

Ties = Literal["share", "share or nan", "first"]
"""Gradient of an extreme: shared by all equal elements (if it is NaN, by all NaN), or given to the first."""


@final
class Prod(Reduction):
    """Product; half precision is multiplied in float32."""

    fn = "mul"
    takes = "if"

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        """Each element's gradient has the product of all others as factor, computed without dividing: elements may be
        0.
        """
        kept = [n for n in range(self.x.type.rank) if n not in self.axes]
        order = (*kept, *self.axes)
        moved = permute(self.x, order)
        line = reshape(moved, (*moved.shape[: len(kept)], self.count))
        others = mul(_product_before(line), flip(_product_before(flip(line, -1)), -1))
        return (mul(self.spread(upstream), permute(reshape(others, moved.shape), inverse(order))),)


def _product_before(x: Value) -> Value:
    """Return for each element along the last axis the product of those before it."""
    if x.shape[-1] == 0:
        return x
    shifted = pad(narrow(x, -1, 0, x.shape[-1] - 1), [*[(0, 0)] * (x.type.rank - 1), (1, 0)], 1.0)
    from .scan import Cumprod

    return Cumprod(shifted, x.type.rank - 1)


class Extremum(Reduction):
    """Maximum or minimum, NaN if there is one."""

    empty = False
    x: Value
    axes: tuple[int, ...]
    keepdim: bool = False
    ties: Ties = "share"

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        kept = self.kept(upstream)
        if self.ties == "first":
            (axis,) = self.axes
            place = (Argmax if isinstance(self, Max) else Argmin)(self.x, self.axes, True)
            along = reshape(positions(self.x.shape[axis], self.x.device), [-1, *[1] * (self.x.type.rank - axis - 1)])
            return (masked(eq(along, place), kept),)
        chosen = eq(self.x, self.kept(self))
        if self.ties == "share or nan":
            chosen = bitwise_or(chosen, isnan(self.x))
        ones = cast(chosen, self.x.dtype)
        return (div(mul(ones, kept), reduce_sum(ones, self.axes, keepdim=True)),)


@final
class Max(Extremum):
    fn = "maximum"


@final
class Min(Extremum):
    fn = "minimum"


class Truth(Reduction):
    """Reductions of bools."""

    takes = "b"

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)


@final
class Any(Truth):
    fn = "bitor"


@final
class All(Truth):
    fn = "bitand"


class ArgExtreme(Reduction):
    """Position of the extreme along one axis: the first of ties, the first NaN if there is one."""

    empty = False
    takes = "if"

    @property
    def result_dtype(self) -> DType:
        return int64

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)


@final
class Argmax(ArgExtreme):
    fn = "argmax"


@final
class Argmin(ArgExtreme):
    fn = "argmin"


# --- builders -------------------------------------------------------------


def reduce_prod(x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    found = normal_axes(axes, x.type.rank, "prod")
    return Prod(x, found, keepdim) if found else x


def _extremum(op: type[Extremum], x: Value, axes: Axes, keepdim: bool, ties: Ties) -> Value:
    found = normal_axes(axes, x.type.rank, op.__name__.lower())
    return op(x, found, keepdim, ties) if found else x


def amax(x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    """Return the maximum; ties share the gradient."""
    return _extremum(Max, x, axes, keepdim, "share")


def amin(x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    """Return the minimum; ties share the gradient."""
    return _extremum(Min, x, axes, keepdim, "share")


def reduce_max(x: Value) -> Value:
    """Return the maximum of all elements: `x.max()`."""
    return _extremum(Max, x, None, False, "share or nan")


def reduce_min(x: Value) -> Value:
    """Return the minimum of all elements: `x.min()`."""
    return _extremum(Min, x, None, False, "share or nan")


def max_along(x: Value, axis: int, keepdim: bool = False) -> tuple[Value, Value]:
    """Return the maxima along an axis and their positions, which get the gradient."""
    return _extremum(Max, x, axis, keepdim, "first"), argmax(x, axis, keepdim)


def min_along(x: Value, axis: int, keepdim: bool = False) -> tuple[Value, Value]:
    """Return the minima along an axis and their positions, which get the gradient."""
    return _extremum(Min, x, axis, keepdim, "first"), argmin(x, axis, keepdim)


def _arg_extreme(op: type[ArgExtreme], x: Value, axis: int | None, keepdim: bool) -> Value:
    if x.dtype is bool_:
        x = cast(x, uint8)
    if axis is None:
        flat = op(reshape(x, (-1,)) if x.shape and 0 not in x.shape else _line(x, op), (0,), False)
        return reshape(flat, (1,) * x.type.rank) if keepdim else flat
    n = normal_axis(axis, x.type.rank, op.__name__.lower())
    return op(x, (n,), keepdim) if x.shape else zeros((), int64, x.device)


def _line(x: Value, op: type[ArgExtreme]) -> Value:
    if 0 in x.shape:
        raise ShapeError(f"{op.__name__.lower()}: {shown(x.shape)} has no elements, so no result")
    return reshape(x, (1,))


def argmax(x: Value, axis: int | None = None, keepdim: bool = False) -> Value:
    """Return the position of the maximum, along an axis or in row-major order."""
    return _arg_extreme(Argmax, x, axis, keepdim)


def argmin(x: Value, axis: int | None = None, keepdim: bool = False) -> Value:
    """Return the position of the minimum, along an axis or in row-major order."""
    return _arg_extreme(Argmin, x, axis, keepdim)


def reduce_any(x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    found = normal_axes(axes, x.type.rank, "any")
    return Any(to_bool(x), found, keepdim) if found else to_bool(x)


def reduce_all(x: Value, axes: Axes = None, keepdim: bool = False) -> Value:
    found = normal_axes(axes, x.type.rank, "all")
    return All(to_bool(x), found, keepdim) if found else to_bool(x)


def count_nonzero(x: Value, axes: Axes = None) -> Value:
    return reduce_sum(cast(ne(x, False if x.dtype is bool_ else 0), int64), axes)
