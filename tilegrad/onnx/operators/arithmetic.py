"""Operators that compute each element by itself: arithmetic, comparisons, activations."""

from __future__ import annotations

from functools import reduce

from ... import functional as tg
from ...functions.constants import finfo, iinfo
from ...ir.dtype import DType
from ...nn import functional as F
from ...tensor import Tensor
from ..rules import Function
from ..values import Number

BROADCASTING = 7
"""The version of the operators from which on operands are broadcast as in numpy."""


def div(a: Tensor, b: Tensor) -> Tensor:
    """Divide; integers are truncated."""
    return a / b if a.is_floating_point() else tg.div(a, b, rounding_mode="trunc")


def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    return tg.fmod(a, b) if fmod else tg.remainder(a, b)


def power(x: Tensor, exponent: Tensor) -> Tensor:
    """Raise to a power; the result has the type of the base."""
    if not x.is_floating_point() and exponent.is_floating_point():
        return tg.pow(x.double(), exponent.double()).to(x.dtype)
    return tg.pow(x, exponent.to(x.dtype))


def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    return tg.bitwise_left_shift(x, y) if direction == "LEFT" else tg.bitwise_right_shift(x, y)


def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if detect_negative and detect_positive:
        return tg.isinf(x)
    if detect_negative or detect_positive:
        return tg.isposinf(x) if detect_positive else tg.isneginf(x)
    return tg.zeros_like(x, dtype=tg.isinf(x).dtype)


def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Bound the elements; the upper bound wins."""
    x = x if low is None else tg.maximum(x, low.to(x.dtype))
    return x if high is None else tg.minimum(x, high.to(x.dtype))


def maximum(*inputs: Tensor) -> Tensor:
    return reduce(tg.maximum, inputs)


def minimum(*inputs: Tensor) -> Tensor:
    return reduce(tg.minimum, inputs)


def total(*inputs: Tensor) -> Tensor:
    return reduce(tg.add, inputs)


def mean(*inputs: Tensor) -> Tensor:
    return total(*inputs) / len(inputs)


def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate)


def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return tg.clamp(x * alpha + beta, 0, 1)


def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


def prelu(x: Tensor, slope: Tensor, *, version: int = BROADCASTING) -> Tensor:
    """Scale negative elements; of old versions there is a slope for each channel."""
    if version < BROADCASTING and slope.dim() == 1:
        slope = slope.reshape([-1] + [1] * (x.dim() - 2))
    return tg.where(x < 0, x * slope, x)


def selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    return tg.where(x > 0, gamma * x, gamma * alpha * tg.expm1(tg.minimum(x, tg.zeros_like(x))))


def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    moved = tg.where(x < -lambd, x + bias, x - bias)
    return tg.where((x < -lambd) | (x > lambd), moved, tg.zeros_like(x)).to(x.dtype)


def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * tg.sigmoid(alpha * x)


def swiglu(gate: Tensor, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Multiply by the swish of a gate."""
    return swish(gate, alpha=alpha) * x


def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return tg.where(x > alpha, x, tg.zeros_like(x))


def round_half_even(x: Tensor) -> Tensor:
    return tg.round(x)


def bounds(dtype: DType) -> tuple[Number, Number]:
    """Return the smallest and the largest number of a type."""
    about = finfo(dtype) if dtype.is_float else iinfo(dtype)
    return about.min, about.max


RULES: dict[str, Function] = {
    "Abs": tg.abs,
    "Acos": tg.acos,
    "Acosh": tg.acosh,
    "Add": tg.add,
    "And": tg.logical_and,
    "Asin": tg.asin,
    "Asinh": tg.asinh,
    "Atan": tg.atan,
    "Atanh": tg.atanh,
    "BitShift": bit_shift,
    "BitwiseAnd": tg.bitwise_and,
    "BitwiseNot": tg.bitwise_not,
    "BitwiseOr": tg.bitwise_or,
    "BitwiseXor": tg.bitwise_xor,
    "Ceil": tg.ceil,
    "Celu": celu,
    "Clip": clip,
    "Cos": tg.cos,
    "Cosh": tg.cosh,
    "Div": div,
    "Elu": elu,
    "Equal": tg.eq,
    "Erf": tg.erf,
    "Exp": tg.exp,
    "Floor": tg.floor,
    "Gelu": gelu,
    "Greater": tg.gt,
    "GreaterOrEqual": tg.ge,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": F.hardswish,
    "IsInf": is_inf,
    "IsNaN": tg.isnan,
    "LeakyRelu": leaky_relu,
    "Less": tg.lt,
    "LessOrEqual": tg.le,
    "Log": tg.log,
    "Max": maximum,
    "Mean": mean,
    "Min": minimum,
    "Mish": F.mish,
    "Mod": mod,
    "Mul": tg.mul,
    "Neg": tg.neg,
    "Not": tg.logical_not,
    "Or": tg.logical_or,
    "PRelu": prelu,
    "Pow": power,
    "Reciprocal": tg.reciprocal,
    "Relu": tg.relu,
    "Round": round_half_even,
    "Selu": selu,
    "Shrink": shrink,
    "Sigmoid": tg.sigmoid,
    "Sign": tg.sign,
    "Sin": tg.sin,
    "Sinh": tg.sinh,
    "Softplus": lambda x: tg.logaddexp(x, tg.zeros_like(x)),
    "Softsign": F.softsign,
    "Sqrt": tg.sqrt,
    "Sub": tg.sub,
    "Sum": total,
    "SwiGLU": swiglu,
    "Swish": swish,
    "Tan": tg.tan,
    "Tanh": tg.tanh,
    "ThresholdedRelu": thresholded_relu,
    "Where": tg.where,
    "Xor": tg.logical_xor,
}
