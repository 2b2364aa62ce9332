"""Define element-wise exponentials, logarithms, trigonometry and activations.

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
    """Compute e ** input."""
    return elementwise(exponential.exp(floating(input, "exp")), input)


def exp2(input: Tensor) -> Tensor:
    """Compute 2 ** input."""
    return elementwise(exponential.exp2(floating(input, "exp2")), input)


def expm1(input: Tensor) -> Tensor:
    """Compute exp(input) - 1, accurately near 0."""
    return elementwise(exponential.expm1(floating(input, "expm1")), input)


def log(input: Tensor) -> Tensor:
    """Compute the natural logarithm."""
    return elementwise(exponential.log(floating(input, "log")), input)


def log2(input: Tensor) -> Tensor:
    """Compute the logarithm to the base 2."""
    return elementwise(exponential.log2(floating(input, "log2")), input)


def log10(input: Tensor) -> Tensor:
    """Compute the logarithm to the base 10."""
    return elementwise(exponential.log10(floating(input, "log10")), input)


def log1p(input: Tensor) -> Tensor:
    """Compute log(1 + input), accurately near 0."""
    return elementwise(exponential.log1p(floating(input, "log1p")), input)


def sqrt(input: Tensor) -> Tensor:
    """Compute the square root."""
    return elementwise(exponential.sqrt(floating(input, "sqrt")), input)


def rsqrt(input: Tensor) -> Tensor:
    """Compute 1 / sqrt(input)."""
    return elementwise(exponential.rsqrt(floating(input, "rsqrt")), input)


# --- trigonometry and the hyperbolic functions ---------------------------------------------------


def sin(input: Tensor) -> Tensor:
    """Compute the sine."""
    return elementwise(trigonometric.sin(floating(input, "sin")), input)


def cos(input: Tensor) -> Tensor:
    """Compute the cosine."""
    return elementwise(trigonometric.cos(floating(input, "cos")), input)


def tan(input: Tensor) -> Tensor:
    """Compute the tangent."""
    return elementwise(trigonometric.tan(floating(input, "tan")), input)


def asin(input: Tensor) -> Tensor:
    """Compute the inverse sine."""
    return elementwise(trigonometric.asin(floating(input, "asin")), input)


def acos(input: Tensor) -> Tensor:
    """Compute the inverse cosine."""
    return elementwise(trigonometric.acos(floating(input, "acos")), input)


def atan(input: Tensor) -> Tensor:
    """Compute the inverse tangent."""
    return elementwise(trigonometric.atan(floating(input, "atan")), input)


def sinh(input: Tensor) -> Tensor:
    """Compute the hyperbolic sine."""
    return elementwise(trigonometric.sinh(floating(input, "sinh")), input)


def cosh(input: Tensor) -> Tensor:
    """Compute the hyperbolic cosine."""
    return elementwise(trigonometric.cosh(floating(input, "cosh")), input)


def tanh(input: Tensor) -> Tensor:
    """Compute the hyperbolic tangent."""
    return elementwise(trigonometric.tanh(floating(input, "tanh")), input)


def asinh(input: Tensor) -> Tensor:
    """Compute the inverse hyperbolic sine."""
    return elementwise(trigonometric.asinh(floating(input, "asinh")), input)


def acosh(input: Tensor) -> Tensor:
    """Compute the inverse hyperbolic cosine."""
    return elementwise(trigonometric.acosh(floating(input, "acosh")), input)


def atanh(input: Tensor) -> Tensor:
    """Compute the inverse hyperbolic tangent."""
    return elementwise(trigonometric.atanh(floating(input, "atanh")), input)


def erf(input: Tensor) -> Tensor:
    """Compute the error function."""
    return elementwise(trigonometric.erf(floating(input, "erf")), input)


def erfc(input: Tensor) -> Tensor:
    """Compute 1 - erf(input), accurately where erf is near 1."""
    return elementwise(trigonometric.erfc(floating(input, "erfc")), input)


def sinc(input: Tensor) -> Tensor:
    """Compute sin(pi x) / (pi x), 1 at 0."""
    return elementwise(trigonometric.sinc(floating(input, "sinc")), input)


def deg2rad(input: Tensor) -> Tensor:
    """Convert degrees to radians."""
    return elementwise(trigonometric.deg2rad(floating(input, "deg2rad")), input)


def rad2deg(input: Tensor) -> Tensor:
    """Convert radians to degrees."""
    return elementwise(trigonometric.rad2deg(floating(input, "rad2deg")), input)


# --- activations ---------------------------------------------------------------------------------


def sigmoid(input: Tensor) -> Tensor:
    """Compute 1 / (1 + exp(-input))."""
    return elementwise(activation.sigmoid(floating(input, "sigmoid")), input)


def relu(input: Tensor) -> Tensor:
    """Compute max(input, 0)."""
    return elementwise(activation.relu(value_of(input, "relu")), input)


@numpy_names
def softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """Compute exp(input) / sum(exp(input)) along a dimension."""
    x = widened(value_of(input, "softmax")) if dtype is None else cast(value_of(input, "softmax"), dtype)
    return wrap(activation.softmax(x, _dimension(dim, x, "softmax")))


@numpy_names
def log_softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """Compute the logarithm of the softmax along a dimension, without overflow."""
    x = widened(value_of(input, "log_softmax")) if dtype is None else cast(value_of(input, "log_softmax"), dtype)
    return wrap(activation.log_softmax(x, _dimension(dim, x, "log_softmax")))


def _dimension(dim: int | None, x: Value, op: str) -> int:
    if dim is None:
        raise ArgumentError(f"{op}: say along which dimension, as in dim=-1")
    return normal_axis(dim, max(len(x.shape), 1), op)


# --- functions of two tensors ------------------------------------------------------------------


def atan2(input: Operand, other: Operand) -> Tensor:
    """Compute the angle of the point (other, input)."""
    return elementwise(trigonometric.atan2(*floating_pair(input, other, "atan2")), input, other)


def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """Compute log(exp(input) + exp(other)) without overflow."""
    return elementwise(exponential.logaddexp(*floating_pair(input, other, "logaddexp")), input, other)


def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """Compute log2(2 ** input + 2 ** other) without overflow."""
    return elementwise(exponential.logaddexp2(*floating_pair(input, other, "logaddexp2")), input, other)


def xlogy(input: Operand, other: Operand) -> Tensor:
    """Compute input * log(other), 0 where input is 0."""
    return elementwise(exponential.xlogy(*floating_pair(input, other, "xlogy")), input, other)


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """Compute log(input / (1 - input)), the inverse of `sigmoid`; `eps` clamps input to [eps, 1 - eps]."""
    return elementwise(exponential.logit(floating(input, "logit"), eps), input)


arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2
arcsinh, arccosh, arctanh = asinh, acosh, atanh

publish(globals())
