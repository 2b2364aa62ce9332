"""Activations that are ops, and softmax; other activations are compositions (`tilegrad.nn.functional`)."""

from __future__ import annotations

import math
from typing import final

from ..ir.graph import Value
from ..ir.scalar import Expr, apply, const
from ..ir.scalar import cast as cast_element
from .arithmetic import mul, reciprocal, sub
from .base import Unary
from .broadcasting import Axes, accumulator, reduce_sum
from .cast import cast, detach, widened
from .comparison import le
from .control import where
from .exponential import exp, log
from .reduction import amax


@final
class Relu(Unary):
    """max(x, 0); NaN is kept."""

    takes = "if"

    def scalar(self, *elements: Expr) -> Expr:
        return apply("maximum", elements[0], const(0, self.x.dtype))

    def share_x(self, upstream: Value) -> Value | None:
        return where(le(self, 0.0), 0.0, upstream)


@final
class Sigmoid(Unary):
    """1 / (1 + exp(-x))."""

    fn = "sigmoid"

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, mul(self, sub(1.0, self)))


@final
class Gelu(Unary):
    """x times the cumulative normal distribution at x."""

    cost = "expensive"
    takes = "f"

    def scalar(self, *elements: Expr) -> Expr:
        x = _in_float32(elements[0])
        return cast_element(x * 0.5 * (apply("erf", x * math.sqrt(0.5)) + 1.0), elements[0].dtype)

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, GeluSlope(self.x))


@final
class GeluSlope(Unary):
    """The derivative of gelu, computed with gelu: then the gradient needs neither its argument nor its result."""

    cost = "expensive"
    store = "where recomputing is expensive"
    takes = "f"

    def scalar(self, *elements: Expr) -> Expr:
        x = _in_float32(elements[0])
        density = apply("exp", x * x * -0.5) * math.sqrt(0.5 / math.pi)
        return cast_element((apply("erf", x * math.sqrt(0.5)) + 1.0) * 0.5 + x * density, elements[0].dtype)

    def share_x(self, upstream: Value) -> Value | None:
        density = mul(exp(mul(mul(self.x, self.x), -0.5)), math.sqrt(0.5 / math.pi))
        return mul(upstream, mul(density, sub(2.0, mul(self.x, self.x))))


def _in_float32(x: Expr) -> Expr:
    """Convert an element of half precision to float32."""
    return cast_element(x, accumulator(x.dtype))


def relu(x: Value) -> Value:
    return Relu(x)


def sigmoid(x: Value) -> Value:
    return Sigmoid(x)


def gelu(x: Value) -> Value:
    return Gelu(x)


def softmax(x: Value, axis: Axes = -1) -> Value:
    """Compute exp(x) / sum(exp(x)), with the maximum subtracted to avoid overflow."""
    if 0 in x.shape and not x.dtype.is_float:
        return x  # without elements the type does not matter, as in PyTorch
    if not x.shape or 0 in x.shape:
        return exp(sub(x, x))
    wide = widened(x)
    powers = exp(sub(wide, detach(amax(wide, axis, keepdim=True))))
    return cast(mul(powers, reciprocal(reduce_sum(powers, axis, keepdim=True))), x.dtype)


def log_softmax(x: Value, axis: Axes = -1) -> Value:
    """Compute the logarithm of softmax, accurate where softmax underflows."""
    if 0 in x.shape and not x.dtype.is_float:
        return x
    if not x.shape or 0 in x.shape:
        return sub(x, x)
    wide = widened(x)
    shifted = sub(wide, detach(amax(wide, axis, keepdim=True)))
    return cast(sub(shifted, log(reduce_sum(exp(shifted), axis, keepdim=True))), x.dtype)
