"""Exponentials, logarithms, trigonometry and activations, element by element, as functions of tensors.

Integers and bools are taken as numbers of the default dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError
from ..ir.dtype import DType
from ..ir.graph import Value
from ..lazy.handle import wrap
from ..lazy.layout import elementwise
from ..ops import activation, exponential, trigonometric
from ..ops.broadcasting import normal_axis
from ..ops.cast import cast
from .autocasting import widened
from .declared import publish
from .promotion import Operand, floating, floating_pair, value_of
from .views import numpy_names

if TYPE_CHECKING:
    from ..tensor import Tensor


# --- exponentials and logarithms -----------------------------------------------------------------


def exp(input: Tensor) -> Tensor:
    """e to the power of each element."""
    return elementwise(exponential.exp(floating(input, "exp")), input)


def exp2(input: Tensor) -> Tensor:
    """2 to the power of each element."""
    return elementwise(exponential.exp2(floating(input, "exp2")), input)


def expm1(input: Tensor) -> Tensor:
    """exp(input) - 1, exact near 0."""
    return elementwise(exponential.expm1(floating(input, "expm1")), input)


def log(input: Tensor) -> Tensor:
    """The natural logarithm."""
    return elementwise(exponential.log(floating(input, "log")), input)


def log2(input: Tensor) -> Tensor:
    """The logarithm to the base 2."""
    return elementwise(exponential.log2(floating(input, "log2")), input)


def log10(input: Tensor) -> Tensor:
    """The logarithm to the base 10."""
    return elementwise(exponential.log10(floating(input, "log10")), input)


def log1p(input: Tensor) -> Tensor:
    """log(1 + input), exact near 0."""
    return elementwise(exponential.log1p(floating(input, "log1p")), input)


def sqrt(input: Tensor) -> Tensor:
    """The square root."""
    return elementwise(exponential.sqrt(floating(input, "sqrt")), input)


def rsqrt(input: Tensor) -> Tensor:
    """1 / sqrt(input)."""
    return elementwise(exponential.rsqrt(floating(input, "rsqrt")), input)


# --- trigonometry and the hyperbolic functions ---------------------------------------------------


def sin(input: Tensor) -> Tensor:
    """The sine."""
    return elementwise(trigonometric.sin(floating(input, "sin")), input)


def cos(input: Tensor) -> Tensor:
    """The cosine."""
    return elementwise(trigonometric.cos(floating(input, "cos")), input)


def tan(input: Tensor) -> Tensor:
    """The tangent."""
    return elementwise(trigonometric.tan(floating(input, "tan")), input)


def asin(input: Tensor) -> Tensor:
    """The angle with this sine."""
    return elementwise(trigonometric.asin(floating(input, "asin")), input)


def acos(input: Tensor) -> Tensor:
    """The angle with this cosine."""
    return elementwise(trigonometric.acos(floating(input, "acos")), input)


def atan(input: Tensor) -> Tensor:
    """The angle with this tangent."""
    return elementwise(trigonometric.atan(floating(input, "atan")), input)


def sinh(input: Tensor) -> Tensor:
    """The hyperbolic sine."""
    return elementwise(trigonometric.sinh(floating(input, "sinh")), input)


def cosh(input: Tensor) -> Tensor:
    """The hyperbolic cosine."""
    return elementwise(trigonometric.cosh(floating(input, "cosh")), input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return elementwise(trigonometric.tanh(floating(input, "tanh")), input)


def asinh(input: Tensor) -> Tensor:
    """The number with this hyperbolic sine."""
    return elementwise(trigonometric.asinh(floating(input, "asinh")), input)


def acosh(input: Tensor) -> Tensor:
    """The number with this hyperbolic cosine."""
    return elementwise(trigonometric.acosh(floating(input, "acosh")), input)


def atanh(input: Tensor) -> Tensor:
    """The number with this hyperbolic tangent."""
    return elementwise(trigonometric.atanh(floating(input, "atanh")), input)


def erf(input: Tensor) -> Tensor:
    """The error function."""
    return elementwise(trigonometric.erf(floating(input, "erf")), input)


def erfc(input: Tensor) -> Tensor:
    """1 - erf(input), exact where erf is near 1."""
    return elementwise(trigonometric.erfc(floating(input, "erfc")), input)


def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
    return elementwise(trigonometric.sinc(floating(input, "sinc")), input)


def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians."""
    return elementwise(trigonometric.deg2rad(floating(input, "deg2rad")), input)


def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees."""
    return elementwise(trigonometric.rad2deg(floating(input, "rad2deg")), input)


# --- activations ---------------------------------------------------------------------------------


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))."""
    return elementwise(activation.sigmoid(floating(input, "sigmoid")), input)


def relu(input: Tensor) -> Tensor:
    """input where it is positive, else 0."""
    return elementwise(activation.relu(value_of(input, "relu")), input)


@numpy_names
def softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """exp(input) as shares of its sum along a dimension."""
    x = widened(value_of(input, "softmax")) if dtype is None else cast(value_of(input, "softmax"), dtype)
    return wrap(activation.softmax(x, _dimension(dim, x, "softmax")))


@numpy_names
def log_softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """The logarithm of softmax, without overflow on the way."""
    x = widened(value_of(input, "log_softmax")) if dtype is None else cast(value_of(input, "log_softmax"), dtype)
    return wrap(activation.log_softmax(x, _dimension(dim, x, "log_softmax")))


def _dimension(dim: int | None, x: Value, op: str) -> int:
    if dim is None:
        raise ArgumentError(f"{op}: say along which dimension, as in dim=-1")
    return normal_axis(dim, max(len(x.shape), 1), op)


# --- functions of two tensors ------------------------------------------------------------------


def atan2(input: Operand, other: Operand) -> Tensor:
    """The angle of the point (other, input)."""
    return elementwise(trigonometric.atan2(*floating_pair(input, other, "atan2")), input, other)


def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(input) + exp(other))."""
    return elementwise(exponential.logaddexp(*floating_pair(input, other, "logaddexp")), input, other)


def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2 ** input + 2 ** other)."""
    return elementwise(exponential.logaddexp2(*floating_pair(input, other, "logaddexp2")), input, other)


def xlogy(input: Operand, other: Operand) -> Tensor:
    """input * log(other), 0 where input is."""
    return elementwise(exponential.xlogy(*floating_pair(input, other, "xlogy")), input, other)


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(input / (1 - input)), the inverse of sigmoid; eps keeps input away from 0 and 1."""
    return elementwise(exponential.logit(floating(input, "logit"), eps), input)


arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2
arcsinh, arccosh, arctanh = asinh, acosh, atanh

publish(globals())
