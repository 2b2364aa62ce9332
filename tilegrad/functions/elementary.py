"""Exponentials, logarithms, trigonometry and activations, element by element, as functions of tensors.

Integers and bools are taken as numbers of the default dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError
from ..ir.dtype import DType
from ..ir.graph import Value
from ..lazy.handle import wrap
from ..ops import activation, exponential, trigonometric
from ..ops.cast import cast
from .autocasting import widened
from .declared import take_integers
from .promotion import Operand, floating, get_default_dtype, pair, value_of
from .views import numpy_names

if TYPE_CHECKING:
    from ..tensor import Tensor


# --- exponentials and logarithms -----------------------------------------------------------------


def exp(input: Tensor) -> Tensor:
    """e to the power of each element."""
    return wrap(exponential.exp(floating(input, "exp")))


def exp2(input: Tensor) -> Tensor:
    """2 to the power of each element."""
    return wrap(exponential.exp2(floating(input, "exp2")))


def expm1(input: Tensor) -> Tensor:
    """exp(input) - 1, exact near 0."""
    return wrap(exponential.expm1(floating(input, "expm1")))


def log(input: Tensor) -> Tensor:
    """The natural logarithm."""
    return wrap(exponential.log(floating(input, "log")))


def log2(input: Tensor) -> Tensor:
    """The logarithm to the base 2."""
    return wrap(exponential.log2(floating(input, "log2")))


def log10(input: Tensor) -> Tensor:
    """The logarithm to the base 10."""
    return wrap(exponential.log10(floating(input, "log10")))


def log1p(input: Tensor) -> Tensor:
    """log(1 + input), exact near 0."""
    return wrap(exponential.log1p(floating(input, "log1p")))


def sqrt(input: Tensor) -> Tensor:
    """The square root."""
    return wrap(exponential.sqrt(floating(input, "sqrt")))


def rsqrt(input: Tensor) -> Tensor:
    """1 / sqrt(input)."""
    return wrap(exponential.rsqrt(floating(input, "rsqrt")))


# --- trigonometry and the hyperbolic functions ---------------------------------------------------


def sin(input: Tensor) -> Tensor:
    """The sine."""
    return wrap(trigonometric.sin(floating(input, "sin")))


def cos(input: Tensor) -> Tensor:
    """The cosine."""
    return wrap(trigonometric.cos(floating(input, "cos")))


def tan(input: Tensor) -> Tensor:
    """The tangent."""
    return wrap(trigonometric.tan(floating(input, "tan")))


def asin(input: Tensor) -> Tensor:
    """The angle with this sine."""
    return wrap(trigonometric.asin(floating(input, "asin")))


def acos(input: Tensor) -> Tensor:
    """The angle with this cosine."""
    return wrap(trigonometric.acos(floating(input, "acos")))


def atan(input: Tensor) -> Tensor:
    """The angle with this tangent."""
    return wrap(trigonometric.atan(floating(input, "atan")))


def sinh(input: Tensor) -> Tensor:
    """The hyperbolic sine."""
    return wrap(trigonometric.sinh(floating(input, "sinh")))


def cosh(input: Tensor) -> Tensor:
    """The hyperbolic cosine."""
    return wrap(trigonometric.cosh(floating(input, "cosh")))


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return wrap(trigonometric.tanh(floating(input, "tanh")))


def asinh(input: Tensor) -> Tensor:
    """The number with this hyperbolic sine."""
    return wrap(trigonometric.asinh(floating(input, "asinh")))


def acosh(input: Tensor) -> Tensor:
    """The number with this hyperbolic cosine."""
    return wrap(trigonometric.acosh(floating(input, "acosh")))


def atanh(input: Tensor) -> Tensor:
    """The number with this hyperbolic tangent."""
    return wrap(trigonometric.atanh(floating(input, "atanh")))


def erf(input: Tensor) -> Tensor:
    """The error function."""
    return wrap(trigonometric.erf(floating(input, "erf")))


def erfc(input: Tensor) -> Tensor:
    """1 - erf(input), exact where erf is near 1."""
    return wrap(trigonometric.erfc(floating(input, "erfc")))


def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
    return wrap(trigonometric.sinc(floating(input, "sinc")))


def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians."""
    return wrap(trigonometric.deg2rad(floating(input, "deg2rad")))


def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees."""
    return wrap(trigonometric.rad2deg(floating(input, "rad2deg")))


# --- activations ---------------------------------------------------------------------------------


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))."""
    return wrap(activation.sigmoid(floating(input, "sigmoid")))


def relu(input: Tensor) -> Tensor:
    """input where it is positive, else 0."""
    return wrap(activation.relu(value_of(input, "relu")))


@numpy_names
def softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """exp(input) as shares of its sum along a dimension."""
    x = widened(value_of(input, "softmax")) if dtype is None else cast(value_of(input, "softmax"), dtype)
    return wrap(activation.softmax(x, _dimension(dim, "softmax")))


@numpy_names
def log_softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """The logarithm of softmax, without overflow on the way."""
    x = widened(value_of(input, "log_softmax")) if dtype is None else cast(value_of(input, "log_softmax"), dtype)
    return wrap(activation.log_softmax(x, _dimension(dim, "log_softmax")))


def _dimension(dim: int | None, op: str) -> int:
    if dim is None:
        raise ArgumentError(f"{op}: say along which dimension, as in dim=-1")
    return dim


# --- functions of two tensors ------------------------------------------------------------------


def _floats(input: Operand, other: Operand, op: str) -> tuple[Value, Value]:
    x, y = pair(input, other, op)
    return (x, y) if x.dtype.is_float else (cast(x, get_default_dtype()), cast(y, get_default_dtype()))


def atan2(input: Operand, other: Operand) -> Tensor:
    """The angle of the point (other, input)."""
    return wrap(trigonometric.atan2(*_floats(input, other, "atan2")))


def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(input) + exp(other))."""
    return wrap(exponential.logaddexp(*_floats(input, other, "logaddexp")))


def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2 ** input + 2 ** other)."""
    return wrap(exponential.logaddexp2(*_floats(input, other, "logaddexp2")))


def xlogy(input: Operand, other: Operand) -> Tensor:
    """input * log(other), 0 where input is."""
    return wrap(exponential.xlogy(*_floats(input, other, "xlogy")))


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(input / (1 - input)), the inverse of sigmoid; eps keeps input away from 0 and 1."""
    return wrap(exponential.logit(floating(input, "logit"), eps))


arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2
arcsinh, arccosh, arctanh = asinh, acosh, atanh

take_integers(globals())

__all__ = [
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "deg2rad",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logaddexp",
    "logaddexp2",
    "logit",
    "rad2deg",
    "relu",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinc",
    "sinh",
    "softmax",
    "sqrt",
    "tan",
    "tanh",
    "xlogy",
]
