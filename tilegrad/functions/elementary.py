"""Define element-wise exponentials, logarithms, trigonometry and activations.

Integers and bools are taken as numbers of the default dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError
from ..ir.dtype import DType
from ..ir.graph import Value
from ..lazy.handle import wrap
from ..ops import activation, exponential
from ..ops.broadcasting import normal_axis
from ..ops.cast import cast
from .autocasting import widened
from .declared import publish
from .pointwise import Ops, binary, elementwise, unary
from .promotion import floating, floating_pair, value_of
from .views import numpy_names

if TYPE_CHECKING:
    from ..tensor import Tensor

trigonometric = Ops("trigonometric")


# --- exponentials and logarithms -----------------------------------------------------------------


exp = unary(exponential.exp, floating, "Compute e ** input.")
exp2 = unary(exponential.exp2, floating, "Compute 2 ** input.")
expm1 = unary(exponential.expm1, floating, "Compute exp(input) - 1, accurately near 0.")
log = unary(exponential.log, floating, "Compute the natural logarithm.")
log2 = unary(exponential.log2, floating, "Compute the logarithm to the base 2.")
log10 = unary(exponential.log10, floating, "Compute the logarithm to the base 10.")
log1p = unary(exponential.log1p, floating, "Compute log(1 + input), accurately near 0.")
sqrt = unary(exponential.sqrt, floating, "Compute the square root.")
rsqrt = unary(exponential.rsqrt, floating, "Compute 1 / sqrt(input).")


# --- trigonometry and the hyperbolic functions ---------------------------------------------------


sin = unary(trigonometric.sin, floating, "Compute the sine.")
cos = unary(trigonometric.cos, floating, "Compute the cosine.")
tan = unary(trigonometric.tan, floating, "Compute the tangent.")
asin = unary(trigonometric.asin, floating, "Compute the inverse sine.")
acos = unary(trigonometric.acos, floating, "Compute the inverse cosine.")
atan = unary(trigonometric.atan, floating, "Compute the inverse tangent.")
sinh = unary(trigonometric.sinh, floating, "Compute the hyperbolic sine.")
cosh = unary(trigonometric.cosh, floating, "Compute the hyperbolic cosine.")
tanh = unary(trigonometric.tanh, floating, "Compute the hyperbolic tangent.")
asinh = unary(trigonometric.asinh, floating, "Compute the inverse hyperbolic sine.")
acosh = unary(trigonometric.acosh, floating, "Compute the inverse hyperbolic cosine.")
atanh = unary(trigonometric.atanh, floating, "Compute the inverse hyperbolic tangent.")
erf = unary(trigonometric.erf, floating, "Compute the error function.")
erfc = unary(trigonometric.erfc, floating, "Compute 1 - erf(input), accurately where erf is near 1.")
sinc = unary(trigonometric.sinc, floating, "Compute sin(pi x) / (pi x), 1 at 0.")
deg2rad = unary(trigonometric.deg2rad, floating, "Convert degrees to radians.")
rad2deg = unary(trigonometric.rad2deg, floating, "Convert radians to degrees.")


# --- activations ---------------------------------------------------------------------------------


sigmoid = unary(activation.sigmoid, floating, "Compute 1 / (1 + exp(-input)).")
relu = unary(activation.relu, value_of, "Compute max(input, 0).")


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


atan2 = binary(trigonometric.atan2, floating_pair, "Compute the angle of the point (other, input).")
logaddexp = binary(
    exponential.logaddexp,
    floating_pair,
    "Compute log(exp(input) + exp(other)) without overflow.",
    takes="Tensor Tensor",
)
logaddexp2 = binary(
    exponential.logaddexp2,
    floating_pair,
    "Compute log2(2 ** input + 2 ** other) without overflow.",
    takes="Tensor Tensor",
)
xlogy = binary(exponential.xlogy, floating_pair, "Compute input * log(other), 0 where input is 0.")


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """Compute log(input / (1 - input)), the inverse of `sigmoid`; `eps` clamps input to [eps, 1 - eps]."""
    return elementwise(exponential.logit(floating(input, "logit"), eps), input)


arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2
arcsinh, arccosh, arctanh = asinh, acosh, atanh

publish(globals())
