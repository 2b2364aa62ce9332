"""Initial values, set in place, with PyTorch's names and distributions."""

from __future__ import annotations

from math import prod, sqrt
from typing import Literal

from ..arithmetic import where
from ..autograd.modes import no_grad
from ..creation import eye
from ..errors import ArgumentError, ShapeError
from ..tensor import Tensor

FanMode = Literal["fan_in", "fan_out"]

GAINS = {
    "linear": 1.0,
    "sigmoid": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "tanh": 5 / 3,
    "relu": sqrt(2),
    "selu": 3 / 4,
}


NEAR = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
FAR = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much weights must be larger in front of this function to keep the variance.

    >>> calculate_gain("leaky_relu", 1)
    1.0
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return sqrt(2 / (1 + slope * slope))
    if nonlinearity not in GAINS:
        raise ArgumentError(f"no gain is known for {nonlinearity!r}; there are leaky_relu, {', '.join(GAINS)}")
    return GAINS[nonlinearity]


def _fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output is computed from, and how many outputs an input goes into."""
    shape = tuple(tensor.shape)
    if len(shape) < 2:
        raise ShapeError(f"the fans of a weight need two axes or more, but its shape is {shape}")
    field = prod(shape[2:])
    return shape[1] * field, shape[0] * field


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    with no_grad():
        return tensor.uniform_(a, b)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    with no_grad():
        return tensor.normal_(mean, std)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Normal values, those beyond [a, b] drawn again (by the inverse of the distribution function)."""
    from statistics import NormalDist

    standard = NormalDist()
    low, high = standard.cdf((a - mean) / std), standard.cdf((b - mean) / std)
    with no_grad():
        tensor.uniform_(2 * low - 1, 2 * high - 1)
        return tensor.copy_((_inverse_erf(tensor) * (std * sqrt(2)) + mean).clamp(a, b))


def _inverse_erf(x: Tensor) -> Tensor:
    """By the two polynomials of M. Giles, "Approximating the erfinv function" (2010), to float32 accuracy."""
    w = -((1 - x) * (1 + x)).log()
    near, far = w - 2.5, w.sqrt() - 3
    return x * where(w < 5, _polynomial(near, NEAR), _polynomial(far, FAR))


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    total = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        total = total * x + coefficient
    return total


def constant_(tensor: Tensor, val: float) -> Tensor:
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    if tensor.dim() != 2:
        raise ShapeError(f"eye_ fills a matrix, but the shape is {tuple(tensor.shape)}")
    with no_grad():
        return tensor.copy_(eye(*tensor.shape))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Uniform values that keep the variance forward and backward (Glorot and Bengio, 2010)."""
    bound = gain * sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    return normal_(tensor, 0.0, gain * sqrt(2 / sum(_fans(tensor))))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: FanMode = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Uniform values that keep the variance through layers of ReLU (He et al., 2015)."""
    bound = sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: FanMode = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity))


def _kaiming_std(tensor: Tensor, a: float, mode: FanMode, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"mode is {mode!r}: it must be 'fan_in' or 'fan_out'")
    fan = _fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / sqrt(fan) if fan else 0.0
