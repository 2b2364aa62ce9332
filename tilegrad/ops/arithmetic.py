"""Elementwise arithmetic, with PyTorch's gradients at points without a derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ..ir.dtype import bool_
from ..ir.graph import Value
from ..ir.scalar import Expr, apply, cast, const
from ..ir.scalar import where as choose
from .base import Binary, Elementwise, Operand, Unary, operand, pair, sum_to, zeros_like
from .bits import logical_and
from .broadcasting import fill_like
from .comparison import eq, ge, gt, le, lt
from .control import masked, where


@final
class Add(Binary):
    fn = "add"

    def share_x(self, upstream: Value) -> Value | None:
        return upstream

    def share_y(self, upstream: Value) -> Value | None:
        return upstream


@final
class Sub(Binary):
    fn = "sub"

    def share_x(self, upstream: Value) -> Value | None:
        return upstream

    def share_y(self, upstream: Value) -> Value | None:
        return neg(upstream)


@final
class Mul(Binary):
    fn = "mul"

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        if self.x is self.y:
            return Mul(upstream, mul(self.x, 2.0)), None
        return super().gradient(upstream)

    def share_x(self, upstream: Value) -> Value | None:
        return Mul(upstream, self.y)

    def share_y(self, upstream: Value) -> Value | None:
        return Mul(upstream, self.x)


@final
class Div(Binary):
    """Quotient of floating-point numbers."""

    fn = "div"
    cost = "expensive"

    def share_x(self, upstream: Value) -> Value | None:
        return Div(upstream, self.y)

    def share_y(self, upstream: Value) -> Value | None:
        is_replaced = self.provenance.change is not None  # its tensor has been written since
        again = Div(self.x, self.y) if is_replaced else self
        return neg(Div(Mul(upstream, again), self.y))


@final
class FloorDivide(Binary):
    """Quotient rounded down."""

    fn = "floordiv"
    cost = "expensive"

    def share_x(self, upstream: Value) -> Value | None:
        return zeros_like(upstream)

    def share_y(self, upstream: Value) -> Value | None:
        return zeros_like(upstream)


@final
class TruncDivide(Binary):
    """Quotient rounded towards zero."""

    fn = "truncdiv"
    cost = "expensive"

    def share_x(self, upstream: Value) -> Value | None:
        return zeros_like(upstream)

    def share_y(self, upstream: Value) -> Value | None:
        return zeros_like(upstream)


@final
class Remainder(Binary):
    """Remainder of division rounded down, with the sign of y."""

    fn = "mod"
    cost = "expensive"

    def share_x(self, upstream: Value) -> Value | None:
        return upstream

    def share_y(self, upstream: Value) -> Value | None:
        return neg(mul(upstream, floor_divide(self.x, self.y)))


@final
class Fmod(Binary):
    """Remainder of division rounded towards zero, with the sign of x."""

    fn = "fmod"
    cost = "expensive"

    def share_x(self, upstream: Value) -> Value | None:
        return upstream

    def share_y(self, upstream: Value) -> Value | None:
        return neg(mul(upstream, trunc_divide(self.x, self.y)))


@final
class Neg(Unary):
    fn = "neg"

    def share_x(self, upstream: Value) -> Value | None:
        return neg(upstream)


@final
class Abs(Unary):
    fn = "abs"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, sign(self.x))


@final
class Sign(Unary):
    """-1, 0 or 1; 0 for NaN."""

    takes = "if"

    def scalar(self, *elements: Expr) -> Expr:
        (x,) = elements
        return cast(x > 0, x.dtype) - cast(x < 0, x.dtype)

    def share_x(self, upstream: Value) -> Value | None:
        return zeros_like(upstream)


class BinaryExtreme(Binary):
    """Maximum or minimum of two elements, NaN if either is; ties share the gradient."""

    def _share(self, upstream: Value, x: Value, y: Value) -> Value:
        worse = lt(x, y) if self.fn == "maximum" else gt(x, y)
        return where(worse, 0.0, where(eq(x, y), mul(upstream, 0.5), upstream))

    def share_x(self, upstream: Value) -> Value | None:
        return self._share(upstream, self.x, self.y)

    def share_y(self, upstream: Value) -> Value | None:
        return self._share(upstream, self.y, self.x)


@final
class Maximum(BinaryExtreme):
    fn = "maximum"


@final
class Minimum(BinaryExtreme):
    fn = "minimum"


@final
class Clamp(Elementwise):
    """x limited to [low, high], `high` if low > high; the gradient goes to the operand that is chosen."""

    x: Value
    low: Value
    high: Value

    def scalar(self, *elements: Expr) -> Expr:
        x, low, high = elements
        return apply("minimum", apply("maximum", x, low), high)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        x, low, high = self.inputs
        inside = logical_and(ge(x, low), le(x, high))
        shares: list[Value | None] = [None, None, None]
        if x.tracked:
            shares[0] = sum_to(masked(inside, upstream), x.shape)
        if low.tracked:
            shares[1] = sum_to(masked(logical_and(lt(x, low), lt(low, high)), upstream), low.shape)
        if high.tracked:
            above = where(lt(high, low), True, gt(x, high))
            shares[2] = sum_to(masked(above, upstream), high.shape)
        return shares


@final
class Hypot(Binary):
    """Length of (x, y), without overflow in between."""

    takes = "f"
    cost = "expensive"

    def scalar(self, *elements: Expr) -> Expr:
        x, y = (apply("abs", e) for e in elements)
        long, short = apply("maximum", x, y), apply("minimum", x, y)
        ratio = short / long
        one = const(1, x.dtype)
        length = choose(long > 0, long * apply("sqrt", one + ratio * ratio), long)
        infinite = apply("isinf", x) | apply("isinf", y)
        return choose(infinite, const(float("inf"), x.dtype), length)

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, div(self.x, self))

    def share_y(self, upstream: Value) -> Value | None:
        return mul(upstream, div(self.y, self))


@final
class Copysign(Binary):
    """Magnitude of x with the sign of y."""

    fn = "copysign"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, where(eq(self.x, 0.0), 0.0, div(self, self.x)))

    def share_y(self, upstream: Value) -> Value | None:
        return zeros_like(upstream)


# --- builders -------------------------------------------------------------


def add(x: Operand, y: Operand) -> Value:
    return Add(*pair(x, y))


def sub(x: Operand, y: Operand) -> Value:
    return Sub(*pair(x, y))


def mul(x: Operand, y: Operand) -> Value:
    return Mul(*pair(x, y))


def div(x: Operand, y: Operand) -> Value:
    return Div(*pair(x, y))


def floor_divide(x: Operand, y: Operand) -> Value:
    return FloorDivide(*pair(x, y))


def trunc_divide(x: Operand, y: Operand) -> Value:
    return TruncDivide(*pair(x, y))


def remainder(x: Operand, y: Operand) -> Value:
    return Remainder(*pair(x, y))


def fmod(x: Operand, y: Operand) -> Value:
    return Fmod(*pair(x, y))


def neg(x: Value) -> Value:
    return Neg(x)


def absolute(x: Value) -> Value:
    return Abs(x) if x.dtype.kind in ("int", "float") else x


def sign(x: Value) -> Value:
    return Sign(x) if x.dtype is not bool_ else x


def signbit(x: Value) -> Value:
    """Return whether the sign bit is set, also for -0.0."""
    if x.dtype is bool_:
        return fill_like(x, False)
    return lt(copysign(operand(1.0, x), x), 0.0) if x.dtype.is_float else lt(x, 0)


def reciprocal(x: Value) -> Value:
    return div(1.0, x)


def square(x: Value) -> Value:
    return Mul(x, x)


def maximum(x: Operand, y: Operand) -> Value:
    return Maximum(*pair(x, y))


def minimum(x: Operand, y: Operand) -> Value:
    return Minimum(*pair(x, y))


def clamp(x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """Limit x by one or two bounds; the upper one wins if they cross."""
    least, greatest = (float("-inf"), float("inf")) if x.dtype.is_float else (x.dtype.min, x.dtype.max)
    bottom = operand(least if low is None else low, x)
    top = operand(greatest if high is None else high, x)
    return Clamp(x, bottom, top)


def hypot(x: Operand, y: Operand) -> Value:
    return Hypot(*pair(x, y))


def copysign(x: Operand, y: Operand) -> Value:
    return Copysign(*pair(x, y))


def lerp(x: Value, y: Value, weight: Operand) -> Value:
    """Interpolate from x to y, exact at both ends."""
    w = operand(weight, x)
    difference = sub(y, x)
    near, far = add(x, mul(w, difference)), sub(y, mul(difference, sub(1.0, w)))
    if not isinstance(weight, Value):
        return near if abs(weight) < 0.5 else far
    return where(lt(absolute(w), 0.5), near, far)


def addcmul(x: Value, y: Value, z: Value, value: float = 1) -> Value:
    """Compute x + value * y * z."""
    return add(x, mul(y, z) if value == 1 else mul(mul(y, value), z))


def addcdiv(x: Value, y: Value, z: Value, value: float = 1) -> Value:
    """Compute x + value * y / z."""
    return add(x, div(y, z) if value == 1 else mul(div(y, z), value))


def heaviside(x: Value, values: Value) -> Value:
    """Return 1 for positive elements, `values` at 0, and 0 otherwise (also for NaN, as PyTorch does)."""
    if x.dtype is bool_:
        return where(x, True, values)
    return where(eq(x, 0), values, where(gt(x, 0), operand(1, x), operand(0, x)))
