"""Define activations as functions. `inplace=True` stores the result in the input, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import pi, sqrt
from typing import Any

from ...errors import ArgumentError, AxisError, DTypeError, ShapeError
from ...functions.arithmetic import where
from ...functions.creation import zeros_like
from ...functions.pointwise import elementwise
from ...functions.promotion import floating
from ...ir.dtype import DType, bool_
from ...lazy.layout import row_by_row
from ...ops import activation
from ...random import rand_like
from ...tensor import Tensor

EXACT = 40
"""Input from which log(1 + exp(x)) equals x in float64."""


def _wide(input: Tensor) -> Tensor:
    """Convert 16-bit floats to float32: exp(12) and 41 ** 3 exceed float16."""
    return input.float() if input.dtype.bits == 16 else input


def _placed(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    return input.copy_(result) if inplace else result


# --- straight on one side --------------------------------------------------------------------------


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute max(x, 0)."""
    return input.relu_() if inplace else input.relu()


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute min(max(x, 0), 6)."""
    return hardtanh(input, 0, 6, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Replace elements that are at most `threshold` by `value`."""
    value = int(value) if input.dtype.is_integer else value
    return _placed(input, where(input <= threshold, value, input), inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Compute x where it is positive, negative_slope * x elsewhere."""
    return _placed(input, where(input > 0, input, input * negative_slope), inplace)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Compute a leaky ReLU with a trained slope: one for all elements, or one per channel (axis 1)."""
    if weight.dim() > 1:
        raise ShapeError(f"prelu: a weight of the shape {tuple(weight.shape)}: slopes are one number or a vector")
    if weight.numel() > 1:
        if input.dim() < 2 or input.shape[1] != weight.numel():
            raise ShapeError(
                f"prelu: {weight.numel()} slopes need as many channels on axis 1, but the input has the shape "
                f"{tuple(input.shape)}"
            )
        weight = weight.reshape(-1, *(1,) * (input.dim() - 2))
    else:
        weight = weight.reshape(())
    return where(input > 0, input, input.clamp(max=0) * weight)  # the slope has no part in what is infinite


@row_by_row
def _leaky(input: Tensor, slope: Tensor | float) -> Tensor:
    return where(input > 0, input, input * slope)


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Compute a leaky ReLU with random slopes in [lower, upper]; without training, their mean."""
    if not lower <= upper:
        raise ArgumentError(f"rrelu: lower={lower} is above upper={upper}")
    slope = rand_like(input) * (upper - lower) + lower if training else (lower + upper) / 2
    return _placed(input, _leaky(input, slope), inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Compute x where it is positive, alpha * (exp(x) - 1) elsewhere."""
    return _placed(input, where(input > 0, input, alpha * _expm1_below(input, 1)), inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Compute x where it is positive, alpha * (exp(x / alpha) - 1) elsewhere."""
    return _placed(input, where(input > 0, input, alpha * _expm1_below(input, alpha)), inplace)


def _expm1_below(input: Tensor, alpha: float) -> Tensor:
    """Compute expm1(x / alpha) below 0 and continue linearly above, with slope and no second derivative at 0.

    The branch that is not taken must not overflow: its gradient would be 0 times infinity.
    """
    below = input.clamp(max=0)
    if alpha == 1:
        return where(input < 0, below.expm1(), input)
    return where(input < 0, (below / alpha).expm1(), input / alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute an ELU with the constants that keep mean 0 and variance 1 (Klambauer et al., 2017)."""
    return _placed(input, 1.0507009873554804934193349852946 * elu(input, 1.6732632423543772848170429916717), inplace)


# --- straight in parts -------------------------------------------------------------------------------


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Clamp to [min_val, max_val]; unlike in `clamp`, the gradient at the limits is 0."""
    if min_val > max_val:
        raise ArgumentError(f"hardtanh: min_val={min_val} is more than max_val={max_val}")
    if input.dtype.is_integer:
        min_val, max_val = int(min_val), int(max_val)
    if input.dtype is bool_ or (input.dtype.kind == "uint" and min_val < 0):
        raise DTypeError(f"hardtanh: takes floating-point or signed elements for these limits, not {input.dtype.name}")
    inside = (input > min_val) & (input < max_val)
    return _placed(input, where(inside, input, input.detach().clamp(min_val, max_val)), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute min(max(x + 3, 0), 6) / 6."""
    return _placed(input, hardtanh(input + 3, 0, 6) / 6, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute x * hardsigmoid(x)."""
    return _placed(input, input * hardsigmoid(input), inplace)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Replace elements between -lambd and lambd by 0."""
    return where((input >= -lambd) & (input <= lambd), 0.0, input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Move elements by `lambd` towards 0; those nearer than that become 0."""
    if not lambd >= 0:
        raise ArgumentError(f"softshrink: lambd={lambd} is no number of at least 0")
    return where(input > lambd, input - lambd, where(input < -lambd, input + lambd, input * 0))


# --- smooth --------------------------------------------------------------------------------------------


def sigmoid(input: Tensor) -> Tensor:
    """Compute 1 / (1 + exp(-x))."""
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """Compute the hyperbolic tangent."""
    return input.tanh()


def tanhshrink(input: Tensor) -> Tensor:
    """Compute x - tanh(x)."""
    return input - input.tanh()


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute x * sigmoid(x)."""
    return _placed(input, input * input.sigmoid(), inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Compute x times the normal distribution function of x; "tanh" approximates it."""
    match approximate:
        case "none":
            return elementwise(activation.gelu(floating(input, "gelu")), input)
        case "tanh":
            x = _wide(input)
            return (x * 0.5 * (1 + ((x + x * x * x * 0.044715) * sqrt(2 / pi)).tanh())).to(input.dtype)
        case _:
            raise ArgumentError(f"gelu: approximate is {approximate!r}: it must be 'none' or 'tanh'")


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Compute log(1 + exp(beta * x)) / beta; x itself where beta * x exceeds `threshold`."""
    wide = _wide(input)
    scaled = wide * beta
    return where(scaled > threshold, wide, scaled.clamp(max=threshold).exp().log1p() / beta).to(input.dtype)


def softsign(input: Tensor) -> Tensor:
    """Compute x / (1 + |x|)."""
    return input / (1 + input.abs())


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute x * tanh(softplus(x))."""
    return _placed(input, input * softplus(input).tanh(), inplace)


@row_by_row
def logsigmoid(input: Tensor) -> Tensor:
    """Compute log(sigmoid(x)), smooth at 0: min(x, 0) - log(1 + exp(-|x|)) has a wrong gradient there."""
    return -softplus(-input, threshold=EXACT)


# --- along an axis -----------------------------------------------------------------------------------


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Multiply the first half along `dim` by the sigmoid of the second half."""
    if not -input.dim() <= dim < input.dim():
        raise AxisError(f"glu: dim={dim} is no axis of an input of the shape {tuple(input.shape)}")
    extent = input.shape[dim]
    if type(extent) is int and extent % 2:
        raise ShapeError(
            f"glu: axis {dim} of an input of the shape {tuple(input.shape)} has an odd length: it is cut into halves"
        )
    value, gate = input.chunk(2, dim)
    return value * gate.sigmoid()


def _axis(input: Tensor, dim: int | None) -> int:
    """Return PyTorch's default axis: that of the channels."""
    if dim is not None:
        return dim
    return 0 if input.dim() in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """Compute exp(x) / sum(exp(x)) along an axis."""
    return (input if dtype is None else input.to(dtype)).softmax(_axis(input, dim))


def softmin(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """Compute the softmax of -x along an axis."""
    return softmax(-input, dim, dtype)


def log_softmax(input: Tensor, dim: int | None = None, dtype: DType | None = None) -> Tensor:
    """Compute the logarithm of the softmax along an axis, without overflow."""
    return (input if dtype is None else input.to(dtype)).log_softmax(_axis(input, dim))


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Draw differentiable samples from categories; `hard` returns one-hot rows with the gradient of the soft ones."""
    waits = -(1 - rand_like(logits)).log()
    soft = ((logits - waits.log()) / tau).softmax(dim)
    if not hard:
        return soft
    chosen = zeros_like(soft).scatter(dim, soft.argmax(dim, keepdim=True), value=1.0)
    return chosen - soft.detach() + soft


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the variant of an activation that stores its result in its input."""

    @wraps(function)
    def changing(*args: Any, **kwargs: Any) -> Tensor:
        return function(*args, **{"inplace": True, **kwargs})

    changing.__name__ = changing.__qualname__ = f"{function.__name__}_"
    return changing


relu_, elu_, celu_, selu_ = _in_place(relu), _in_place(elu), _in_place(celu), _in_place(selu)
leaky_relu_, rrelu_ = _in_place(leaky_relu), _in_place(rrelu)
hardtanh_, threshold_ = _in_place(hardtanh), _in_place(threshold)
