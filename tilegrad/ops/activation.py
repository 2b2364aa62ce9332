"""Activations, most of them written with other ops; at corners they have PyTorch's gradients.

Where a formula may overflow on the side of a `where` that is not taken, its argument is replaced there
too: otherwise the gradient of that side would be 0 * infinity.
"""

from __future__ import annotations

import math
from typing import final

from ..errors import ShapeError
from ..ir.graph import Value
from ..ir.scalar import Expr, apply, const
from ..ir.scalar import cast as cast_element
from .arithmetic import absolute, add, div, maximum, minimum, mul, neg, reciprocal, sub
from .base import Operand, Unary
from .broadcasting import Axes, accumulator, normal_axis, quotient, reduce_sum, shown
from .cast import cast, detach, widened
from .comparison import ge, gt, le, lt
from .control import where
from .exponential import Dear, exp, expm1, log, log1p
from .movement import narrow
from .reduction import amax
from .trigonometric import tanh


@final
class Relu(Unary):
    """x where it is positive, else 0; NaN stays."""

    takes = "if"

    def scalar(self, *elements: Expr) -> Expr:
        return apply("maximum", elements[0], const(0, self.x.dtype))

    def share_x(self, upstream: Value) -> Value | None:
        return where(le(self, 0.0), 0.0, upstream)


@final
class Sigmoid(Dear):
    """1 / (1 + exp(-x))."""

    fn = "sigmoid"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, mul(self, sub(1.0, self)))


@final
class Gelu(Dear):
    """x times the chance that a normal variable is below x."""

    takes = "f"

    def scalar(self, *elements: Expr) -> Expr:
        x = _wide(elements[0])
        return cast_element(x * 0.5 * (apply("erf", x * math.sqrt(0.5)) + 1.0), elements[0].dtype)

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, GeluSlope(self.x))


@final
class GeluSlope(Dear):
    """The derivative of gelu. It is made where gelu is: then the gradient needs neither its argument nor its result."""

    takes = "f"

    def scalar(self, *elements: Expr) -> Expr:
        x = _wide(elements[0])
        density = apply("exp", x * x * -0.5) * math.sqrt(0.5 / math.pi)
        return cast_element((apply("erf", x * math.sqrt(0.5)) + 1.0) * 0.5 + x * density, elements[0].dtype)

    def share_x(self, upstream: Value) -> Value | None:
        density = mul(exp(mul(mul(self.x, self.x), -0.5)), math.sqrt(0.5 / math.pi))
        return mul(upstream, mul(density, sub(2.0, mul(self.x, self.x))))


def _wide(x: Expr) -> Expr:
    """An element in float32, if it has half precision."""
    return cast_element(x, accumulator(x.dtype))


def relu(x: Value) -> Value:
    return Relu(x)


def sigmoid(x: Value) -> Value:
    return Sigmoid(x)


def relu6(x: Value) -> Value:
    return hardtanh(x, 0.0, 6.0)


def hardtanh(x: Value, low: float = -1.0, high: float = 1.0) -> Value:
    """x between two bounds; no gradient flows at the bounds."""
    return where(le(x, low), low, where(ge(x, high), high, x))


def hardsigmoid(x: Value) -> Value:
    return div(hardtanh(add(x, 3.0), 0.0, 6.0), 6.0)


def hardswish(x: Value) -> Value:
    return mul(x, hardsigmoid(x))


def silu(x: Value) -> Value:
    """x * sigmoid(x)."""
    return mul(x, sigmoid(x))


def gelu(x: Value, approximate: str = "none") -> Value:
    """x times the chance that a normal variable is below x; "tanh" approximates it."""
    if approximate == "tanh":
        inner = mul(add(x, mul(mul(mul(x, x), x), 0.044715)), math.sqrt(2 / math.pi))
        return mul(mul(x, 0.5), add(tanh(inner), 1.0))
    return Gelu(x)


def leaky_relu(x: Value, slope: float = 0.01) -> Value:
    return where(gt(x, 0.0), x, mul(x, slope))


def prelu(x: Value, weight: Value) -> Value:
    return where(gt(x, 0.0), x, mul(x, weight))


def _below(x: Value) -> Value:
    """x where it is at most 0, and 0 elsewhere."""
    return where(gt(x, 0.0), 0.0, x)


def elu(x: Value, alpha: float = 1.0) -> Value:
    return where(gt(x, 0.0), x, mul(expm1(_below(x)), alpha))


def celu(x: Value, alpha: float = 1.0) -> Value:
    return where(gt(x, 0.0), x, mul(expm1(div(_below(x), alpha)), alpha))


def selu(x: Value) -> Value:
    return mul(elu(x, 1.6732632423543772848170429916717), 1.0507009873554804934193349852946)


def softplus(x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above a threshold."""
    scaled = x if beta == 1 else mul(x, beta)
    curve = add(maximum(scaled, 0.0), log1p(exp(neg(absolute(scaled)))))
    return where(gt(scaled, threshold), x, curve if beta == 1 else div(curve, beta))


def log_sigmoid(x: Value) -> Value:
    return sub(minimum(x, 0.0), log1p(exp(neg(absolute(x)))))


def mish(x: Value) -> Value:
    return mul(x, tanh(softplus(x)))


def softsign(x: Value) -> Value:
    return div(x, add(absolute(x), 1.0))


def tanhshrink(x: Value) -> Value:
    return sub(x, tanh(x))


def hardshrink(x: Value, bound: float = 0.5) -> Value:
    """0 between -bound and bound."""
    return where(le(absolute(x), bound), 0.0, x)


def softshrink(x: Value, bound: float = 0.5) -> Value:
    """x moved towards 0 by a bound."""
    return where(gt(x, bound), sub(x, bound), where(lt(x, -bound), add(x, bound), mul(x, 0.0)))


def threshold(x: Value, bound: float, value: Operand) -> Value:
    """x where it is above a bound, else a value."""
    return where(le(x, bound), value, x)


def glu(x: Value, axis: int = -1) -> Value:
    """The first half along an axis, times the sigmoid of the second."""
    half = quotient(x.shape[normal_axis(axis, x.type.rank, "glu")], 2) if x.shape else None
    if half is None:
        raise ShapeError(f"glu: axis {axis} of {shown(x.shape)} has no two equal halves")
    return mul(narrow(x, axis, 0, half), sigmoid(narrow(x, axis, half, half)))


def softmax(x: Value, axis: Axes = -1) -> Value:
    """exp(x), divided by its sum; the greatest element is subtracted first, so nothing overflows."""
    if not x.shape or 0 in x.shape:
        return exp(sub(x, x))
    wide = widened(x)
    powers = exp(sub(wide, detach(amax(wide, axis, keepdim=True))))
    return cast(mul(powers, reciprocal(reduce_sum(powers, axis, keepdim=True))), x.dtype)


def log_softmax(x: Value, axis: Axes = -1) -> Value:
    """The logarithm of softmax, exact where softmax is 0."""
    if not x.shape or 0 in x.shape:
        return sub(x, x)
    wide = widened(x)
    shifted = sub(wide, detach(amax(wide, axis, keepdim=True)))
    return cast(sub(shifted, log(reduce_sum(exp(shifted), axis, keepdim=True))), x.dtype)


def softmin(x: Value, axis: Axes = -1) -> Value:
    return softmax(neg(x), axis)
