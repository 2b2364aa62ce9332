"""Initialise parameters in place, with PyTorch's names and distributions."""

from __future__ import annotations

from math import ceil, prod, sqrt
from typing import Literal

from ..autograd.modes import no_grad
from ..errors import ArgumentError, ShapeError
from ..functions.arithmetic import where
from ..functions.creation import eye, zeros
from ..functions.declared import publish
from ..ir.dtype import float64
from ..random import Generator, rand, randn
from ..tensor import Tensor

FanMode = Literal["fan_in", "fan_out"]

GAINS = {
    "linear": 1.0,
    "sigmoid": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
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
    """Return the factor by which weights before this nonlinearity keep the variance.

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
    """Return the numbers of inputs per output (fan in) and of outputs per input (fan out)."""
    shape = tuple(tensor.shape)
    if len(shape) < 2:
        raise ShapeError(f"the fans of a weight need two axes or more, but its shape is {shape}")
    field = prod(shape[2:])
    return shape[1] * field, shape[0] * field


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill with normal numbers truncated to [a, b], by the inverse of the distribution function."""
    from statistics import NormalDist

    standard = NormalDist()
    low, high = standard.cdf((a - mean) / std), standard.cdf((b - mean) / std)
    with no_grad():
        tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
        return tensor.copy_((_inverse_erf(tensor) * (std * sqrt(2)) + mean).clamp(a, b))


def _inverse_erf(x: Tensor) -> Tensor:
    """Approximate erfinv by the two polynomials of M. Giles (2010), to float32 accuracy."""
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


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill the weight of a convolution so that it returns its input, as far as there are channels for it."""
    shape = tuple(tensor.shape)
    if not 3 <= len(shape) <= 5 or groups < 1 or shape[0] % groups:
        raise ShapeError(
            f"dirac_ fills a weight (out, in, ...) of 3 to 5 axes for {groups} groups; the shape is {shape}"
        )
    with no_grad():
        whole = zeros(*shape, dtype=tensor.dtype, device=tensor.device)
        centre = tuple(n // 2 for n in shape[2:])
        rows = shape[0] // groups
        for group in range(groups):
            part = slice(group * rows, (group + 1) * rows)
            whole[(part, slice(None), *centre)] = eye(rows, shape[1])
        return tensor.copy_(whole)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with random orthogonal rows or columns, whichever are fewer (Saxe et al., 2013)."""
    if tensor.dim() < 2:
        raise ShapeError(f"orthogonal_ needs two axes or more, but the shape is {tuple(tensor.shape)}")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    with no_grad():
        drawn = randn(max(rows, columns), min(rows, columns), dtype=float64, generator=generator)
        columns_first = _orthogonal_part(drawn)
        found = columns_first if rows >= columns else columns_first.t()
        return tensor.copy_(found.reshape(tensor.shape) * gain)


def _orthogonal_part(x: Tensor) -> Tensor:
    """Return the orthogonal polar factor of a tall matrix, by Newton-Schulz iterations.

    Of a matrix of normal values it is distributed as by QR, and it needs nothing but products.
    """
    x = x / x.norm()
    unit = eye(x.shape[1], dtype=x.dtype)
    for _ in range(100):
        product = (x.t() @ x).realize()
        x = (x @ (unit * 1.5 - product * 0.5)).realize()
        if (product - unit).abs().amax().item() < 1e-7:
            break  # it converges by squaring: the step that was just made is exact
    return x


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers, with a share `sparsity` of each column set to 0 (Martens, 2010)."""
    if tensor.dim() != 2:
        raise ShapeError(f"sparse_ fills a matrix, but the shape is {tuple(tensor.shape)}")
    if not 0 <= sparsity <= 1:
        raise ArgumentError(f"sparse_: sparsity={sparsity} is no share: give a number from 0 to 1")
    empty = ceil(sparsity * tensor.shape[0])
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        if empty == 0:
            return tensor
        draws = rand(*tensor.shape, generator=generator)
        last = draws.topk(empty, 0, largest=False).values.amax(0)
        return tensor.copy_(where(draws <= last, 0.0, tensor))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with uniform numbers that keep the variance forward and backward (Glorot and Bengio, 2010)."""
    bound = gain * sqrt(6 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    return normal_(tensor, 0.0, gain * sqrt(2 / sum(_fans(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: FanMode = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill with uniform numbers that keep the variance through layers of ReLU (He et al., 2015)."""
    bound = sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: FanMode = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: FanMode, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"mode is {mode!r}: it must be 'fan_in' or 'fan_out'")
    fan = _fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / sqrt(fan) if fan else 0.0


publish(globals())
