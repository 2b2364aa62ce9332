"""Define embedding lookups and bags as functions."""

from __future__ import annotations

from ...autograd.modes import no_grad
from ...errors import ArgumentError, DTypeError, ShapeError
from ...functions.arithmetic import where
from ...functions.creation import arange, zeros
from ...functions.selecting import embedding as rows_of
from ...jitted.function import tracing
from ...lazy.evaluation import MAX_CHECKED_INDICES, array_of
from ...tensor import Tensor

BAGS = ("sum", "mean", "max")


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Look up rows of `weight` by index; row `padding_idx` gets no gradient.

    `max_norm` shortens in place the rows that are used and longer; `scale_grad_by_freq` divides the gradient of a row
    by how often it is used (in second gradients too, where PyTorch leaves that out). `sparse` is accepted; gradients
    are dense.
    """
    if weight.dim() != 2:
        raise ShapeError(f"embedding: the table needs two axes, but its shape is {tuple(weight.shape)}")
    if max_norm is not None:
        _shorten(input, weight, max_norm, norm_type)
    if padding_idx is not None:
        rows = arange(weight.shape[0], device=weight.device).unsqueeze(-1)
        weight = where(rows == _row(weight, padding_idx), weight.detach(), weight)
    if scale_grad_by_freq:
        kept = weight.detach()
        weight = kept + (weight - kept) / _uses(input, weight).clamp(min=1).unsqueeze(-1)
    return rows_of(weight, input)


def _row(weight: Tensor, padding_idx: int) -> int:
    count = weight.shape[0]
    if not -count <= padding_idx < count:
        raise ArgumentError(f"embedding: padding_idx={padding_idx} is no row of a table of {count} rows")
    return padding_idx % count


def _uses(input: Tensor, weight: Tensor) -> Tensor:
    """Count how often each row is used."""
    numbers = input.reshape(-1).long()
    ones = zeros(numbers.shape[0], dtype=weight.dtype, device=weight.device) + 1
    return zeros(weight.shape[0], dtype=weight.dtype, device=weight.device).index_add(0, numbers, ones)


def _shorten(input: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    with no_grad():
        norms = weight.norm(norm_type, 1)
        long = (_uses(input, weight) > 0) & (norms > max_norm)
        weight.copy_(weight * where(long, max_norm / (norms + 1e-7), 1.0).unsqueeze(1))


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Compute the sum, mean or maximum of the rows of each bag: a row of `input`, or a range between two `offsets`."""
    check_mode(mode)
    _check_bags(input, weight, offsets, mode, per_sample_weights)
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    used = input == input if padding_idx is None else input != _row(weight, padding_idx)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if offsets is None:
        return _pooled(rows, used, mode)
    _check_offsets(offsets, input.shape[0])
    starts = offsets[:-1] if include_last_offset else offsets
    here = arange(input.shape[0], device=input.device)
    bag = (here.unsqueeze(1) >= starts.unsqueeze(0)).long().sum(1) - 1
    member = (bag.unsqueeze(0) == arange(starts.shape[0], device=input.device).unsqueeze(1)) & used.unsqueeze(0)
    if mode == "max":
        return _pooled(rows.unsqueeze(0).expand(starts.shape[0], *rows.shape), member, mode)
    # a product with 0 and 1 rather than additions by index: its gradient is a product as well
    shares = member.to(rows.dtype)
    return (shares if mode == "sum" else shares / shares.sum(1, keepdim=True).clamp(min=1)) @ rows


def _check_bags(
    input: Tensor, weight: Tensor, offsets: Tensor | None, mode: str, per_sample_weights: Tensor | None
) -> None:
    if not weight.dtype.is_float:
        raise DTypeError(f"embedding_bag: takes a weight of floating-point elements, not {weight.dtype.name}")
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise ArgumentError(
            f"embedding_bag: per_sample_weights {tuple(per_sample_weights.shape)} need the mode 'sum' (not {mode!r}) "
            f"and the shape of the input, {tuple(input.shape)}"
        )
    if (input.dim() == 1) == (offsets is None) or input.dim() not in (1, 2):
        raise ArgumentError(
            f"embedding_bag: an input of {input.dim()} axes {'with' if offsets is not None else 'without'} offsets; "
            "give rows of numbers without offsets, or all numbers in one row with offsets"
        )


def check_mode(mode: str) -> None:
    if mode not in BAGS:
        raise ArgumentError(f"embedding_bag: mode {mode!r} is not there; there are {', '.join(BAGS)}")


def _check_offsets(offsets: Tensor, count: int) -> None:
    """Raise unless bags begin in order, where that is known without computing anything."""
    if tracing() or offsets.value.buffer is None or not 0 < offsets.numel() <= MAX_CHECKED_INDICES:
        return
    starts = array_of(offsets).tolist()
    if starts[0] != 0 or starts != sorted(starts) or starts[-1] > count:
        raise ArgumentError(
            f"embedding_bag: offsets {starts} of {count} numbers: the first is 0, none is less than the one before it, "
            f"and none is more than {count}"
        )


def _pooled(rows: Tensor, used: Tensor, mode: str) -> Tensor:
    """Reduce the rows (bags, places, width) that are used over the places."""
    kept = used.unsqueeze(-1)
    if mode == "max" and rows.shape[1]:
        most = where(kept, rows, float("-inf")).max(1)[0]
        return where(used.any(1).unsqueeze(-1), most, 0.0)
    total = where(kept, rows, 0.0).sum(1)
    return total if mode == "sum" else total / used.to(rows.dtype).sum(1).clamp(min=1).unsqueeze(-1)
