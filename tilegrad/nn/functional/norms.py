"""Define normalisations as functions. 16-bit floats are normalised in float32, for the precision of the statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.modes import no_grad
from ...errors import ArgumentError, ShapeError
from ...functions.autocasting import in_float32
from ...functions.joining import pad
from ...ir.dtype import DType, float32
from ...lazy.handle import wrap
from ...lazy.kept_formats import keeping_format
from ...lazy.layout import row_by_row
from ...ops.creation import size_number
from ...tensor import Tensor

EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def _wide(x: Tensor) -> Tensor:
    return x.to(float32) if x.dtype.is_float and x.dtype.bits < 32 else x


def _standard(x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise to mean 0 and variance 1 over axes; return the result, the mean and the variance."""
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(axes, keepdim=True)
    return centred * (variance + eps).rsqrt(), mean, variance


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None, behind: int = 0) -> Tensor:
    """Scale and shift in the dtype of the scale, which has `behind` axes fewer than the input at its end."""
    scaled = x if weight is None else x * _placed(weight, behind)
    return scaled if bias is None else scaled + _placed(bias, behind)


def _placed(x: Tensor, behind: int) -> Tensor:
    return x.reshape(*x.shape, *(1,) * behind) if behind else x


def _checked(name: str, channels: int, **given: Tensor | None) -> None:
    for what, x in given.items():
        if x is not None and tuple(x.shape) != (channels,):
            raise ShapeError(
                f"{name}: {what} has the shape {tuple(x.shape)}; an input of {channels} channels takes ({channels},)"
            )


@keeping_format(0)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel (axis 1): by the statistics of the batch in training, else by the running ones."""
    if input.dim() < 2 and tuple(input.shape) != (0,):
        raise ShapeError(f"batch_norm: an input of the shape {tuple(input.shape)} has no axis 1 for the channels")
    if input.dim() == 1:
        return input.clone()  # without elements there are no channels
    channels = input.shape[1]
    _checked("batch_norm", channels, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    x, behind = _wide(input), input.dim() - 2
    if training:
        if input.numel() == channels:
            raise ShapeError(
                f"batch_norm: an input of the shape {tuple(input.shape)} has one value for each channel: its variance "
                "is 0; train with more, or call eval()"
            )
        axes = (0, *range(2, input.dim()))
        result, mean, variance = _standard(x, axes, eps)
        if 0 not in input.shape:  # nothing has no mean: running statistics would be NaN from then on
            count: Any = input.numel() // channels
            if not isinstance(count, int):  # it varies from call to call
                count = wrap(size_number(count, variance.dtype, variance.device.name))
            _update(running_mean, lambda: mean.reshape(channels), momentum)
            _update(running_var, lambda: variance.reshape(channels) * (count / (count - 1)), momentum)
    elif running_mean is None or running_var is None:
        raise ArgumentError("batch_norm: without training, running_mean and running_var are needed")
    else:
        result = (x - _placed(running_mean, behind)) * (_placed(running_var, behind) + eps).rsqrt()
    return _affine(result, weight, bias, behind).to(input.dtype)


def _update(running: Tensor | None, statistic: Callable[[], Tensor], momentum: float | Tensor) -> None:
    """Move a running statistic towards that of the batch, in place."""
    if running is not None:
        with no_grad():
            running.copy_(running * (1 - momentum) + statistic() * momentum)


@row_by_row
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each instance."""
    if input.dim() < 3:
        raise ShapeError(f"instance_norm: needs (N, C, ...), but the shape is {tuple(input.shape)}")
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    channels = input.shape[1]
    _checked("instance_norm", channels, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if input.numel() == input.shape[0] * channels and input.shape[0]:
        raise ShapeError(
            f"instance_norm: an input of the shape {tuple(input.shape)} has one value for each channel: its variance "
            "is 0"
        )
    x, axes = _wide(input), tuple(range(2, input.dim()))
    if 0 not in input.shape:
        _update(running_mean, lambda: x.mean(axes).mean(0), momentum)
        _update(running_var, lambda: x.var(axes).mean(0), momentum)
    return _affine(_standard(x, axes, eps)[0], weight, bias, input.dim() - 2).to(input.dtype)


@in_float32
@keeping_format(0)
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalise groups of channels (axis 1) of each instance."""
    if input.dim() < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ShapeError(
            f"group_norm: the channels (axis 1) of an input of the shape {tuple(input.shape)} cannot be divided into "
            f"{num_groups} groups"
        )
    _checked("group_norm", input.shape[1], weight=weight, bias=bias)
    if input.numel() == num_groups:
        raise ShapeError(
            f"group_norm: an input of the shape {tuple(input.shape)} has one value for each of {num_groups} groups: "
            "its variance is 0; take fewer groups"
        )
    grouped = _wide(input).reshape(input.shape[0], num_groups, input.shape[1] // num_groups, *input.shape[2:])
    result = _standard(grouped, tuple(range(2, grouped.dim())), eps)[0].reshape(input.shape)
    return _affine(result, weight, bias, input.dim() - 2).to(input.dtype)


@in_float32
@row_by_row
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last axes, then scale and shift."""
    axes = _last_axes("layer_norm", input, normalized_shape, weight=weight, bias=bias)
    return _affine(_standard(_wide(input), axes, eps)[0], weight, bias).to(input.dtype)


@in_float32
@keeping_format(0)
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide by the root mean square over the last axes, then scale."""
    axes = _last_axes("rms_norm", input, normalized_shape, weight=weight)
    x = _wide(input)
    smallest = _epsilon(x.dtype) if eps is None else eps
    return _affine(x * ((x * x).mean(axes, keepdim=True) + smallest).rsqrt(), weight, None).to(input.dtype)


def _epsilon(dtype: DType) -> float:
    """Return the machine epsilon of a dtype."""
    return EPSILONS[dtype.name]


def _last_axes(name: str, input: Tensor, shape: Sequence[int], **given: Tensor | None) -> tuple[int, ...]:
    wanted = tuple(shape)
    if not wanted or tuple(input.shape[-len(wanted) :]) != wanted:
        raise ShapeError(
            f"{name}: an input of the shape {tuple(input.shape)} does not end in the normalized_shape {wanted}"
        )
    for what, x in given.items():
        if x is not None and tuple(x.shape) != wanted:
            raise ShapeError(f"{name}: {what} has the shape {tuple(x.shape)}, not the normalized_shape {wanted}")
    return tuple(range(-len(wanted), 0))


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Divide by a power of the sum of squares of `size` neighbouring channels (Krizhevsky et al., 2012)."""
    if input.dim() < 3:
        raise ShapeError(f"local_response_norm: needs (N, C, ...), but the shape is {tuple(input.shape)}")
    if size < 1:
        raise ArgumentError(f"local_response_norm: size={size} channels: give 1 or more")
    if 0 in input.shape:
        return input
    squares = pad(input * input, (*(0, 0) * (input.dim() - 2), size // 2, (size - 1) // 2))
    total = squares.unfold(1, size, 1).sum(-1)
    mean = total / size if input.dtype.is_float else total // size  # means of integers are whole, as in PyTorch
    return input / (mean * alpha + k) ** beta


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Scale vectors along `dim` to length 1."""
    return input / input.norm(p, dim, keepdim=True).clamp(min=eps)
