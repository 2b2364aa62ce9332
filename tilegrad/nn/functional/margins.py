"""Define losses with margins, distances, and the likelihood of counts and normal values."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi

from ...errors import ArgumentError, ShapeError, check_callable
from ...functions.arithmetic import maximum, minimum, where
from ...functions.autocasting import in_float32
from ...functions.creation import arange
from ...jitted.function import tracing
from ...lazy.evaluation import MAX_CHECKED_INDICES, array_of
from ...lazy.kept_formats import keeping_strides
from ...tensor import Tensor
from .activations import logsigmoid
from .distances import pairwise_distance
from .losses import check_classes, check_range, reduced, reduction_of, refuse_tracked, same_shape


@in_float32
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Penalise pairs whose order (target 1: input1 is larger; -1: input2) is not kept by the margin."""
    reduction = reduction_of(size_average, reduce, reduction)
    if not input1.dim() == input2.dim() == target.dim():
        shapes = ", ".join(str(tuple(x.shape)) for x in (input1, input2, target))
        raise ShapeError(f"margin_ranking_loss: inputs and target must have as many axes, but the shapes are {shapes}")
    return reduced((-target * (input1 - input2) + margin).clamp(min=0), reduction)


@in_float32
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Penalise distances of similar pairs (target 1) and those below the margin of others (target -1)."""
    reduction = reduction_of(size_average, reduce, reduction)
    far = where(target != 1, (margin - input).clamp(min=0), 0.0)
    return reduced(far + where(target != -1, input, 0.0), reduction)


@in_float32
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """Compute the logistic loss for targets 1 and -1."""
    reduction = reduction_of(size_average, reduce, reduction)
    same_shape("soft_margin_loss", input, target)
    refuse_tracked("soft_margin_loss", target=target)
    return reduced(_logistic(input * target), reduction)


@keeping_strides
def _logistic(above: Tensor) -> Tensor:
    return -logsigmoid(above)


@in_float32
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Penalise angles of similar pairs (target 1) and cosines above the margin of others (target -1)."""
    reduction = reduction_of(size_average, reduce, reduction)
    if target.dim() not in (0, 1) or input1.dim() != target.dim() + 1 or input2.dim() != target.dim() + 1:
        shapes = ", ".join(str(tuple(x.shape)) for x in (input1, input2, target))
        raise ShapeError(
            f"cosine_embedding_loss: inputs (N, D) go with a target (N,), or (D,) with (); the shapes are {shapes}"
        )
    # one root of the product, with an eps inside, as in PyTorch: finite for vectors of zeros
    squares = ((input1 * input1).sum(-1) + 1e-12) * ((input2 * input2).sum(-1) + 1e-12)
    cosine = (input1 * input2).sum(-1) / squares.sqrt()
    same, different = where(target == 1, 1 - cosine, 0.0), where(target == -1, (cosine - margin).clamp(min=0), 0.0)
    return reduced(same + different, reduction)


@in_float32
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Penalise anchors that are not closer to the positive than to the negative by the margin."""
    reduction = reduction_of(size_average, reduce, reduction)

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return pairwise_distance(x, y, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin, swap=swap, reduction=reduction
    )


@in_float32
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Compute `triplet_margin_loss` with any distance; `swap` takes the smaller distance to the negative."""
    if margin <= 0:
        raise ArgumentError(f"triplet_margin_loss: margin={margin} must be above 0")
    if distance_function is not None:
        check_callable(distance_function, "triplet_margin_with_distance_loss")
    distance = distance_function or pairwise_distance
    far = distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced((distance(anchor, positive) - far + margin).clamp(min=0), reduction)


@in_float32
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Penalise classes whose score comes within the margin of the target's; input (N, C), target (N,)."""
    reduction = reduction_of(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ArgumentError(f"multi_margin_loss: p={p} must be 1 or 2")
    refuse_tracked("multi_margin_loss", weight=weight)
    if input.dim() == target.dim() <= 1:
        input = input.reshape(*target.shape, -1) if not input.dim() else input.unsqueeze(0)
    axis = input.dim() - 1
    check_classes(input, target, axis)
    count = input.shape[axis]
    check_range(target, count, -1)
    right = arange(count, dtype=target.dtype, device=target.device) == target.unsqueeze(-1)
    score = where(right, input, 0.0).sum(-1, keepdim=True)
    above = (margin - score + input).relu()
    losses = where(right, 0.0, above if p == 1 else above * above)
    if weight is not None:
        losses = losses * where(right, weight, 0.0).sum(-1, keepdim=True)
    return reduced(losses.sum(-1) / count, reduction)


@in_float32
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """Penalise wrong classes whose score comes within 1 of a target's; a row of targets ends at the first -1."""
    reduction = reduction_of(size_average, reduce, reduction)
    same_shape("multilabel_margin_loss", input, target)
    if 0 in input.shape[-1:]:
        raise ShapeError(f"multilabel_margin_loss: an input of the shape {tuple(input.shape)} has no classes")
    if not input.dim():
        input, target = input.unsqueeze(0), target.unsqueeze(0)
    count = input.shape[-1]
    check_range(target, count, -1)
    listed = (target < 0).long().cumsum(-1) == 0
    wanted = target.clamp(min=0)
    classes = arange(count, dtype=target.dtype, device=target.device)
    right = ((wanted.unsqueeze(-1) == classes) & listed.unsqueeze(-1)).any(-2)
    scores = input.gather(-1, wanted.long())
    above = (1 - scores.unsqueeze(-1) + input.unsqueeze(-2)).relu()
    losses = where(listed.unsqueeze(-1) & ~right.unsqueeze(-2), above, 0.0)
    return reduced(losses.sum((-2, -1)) / count, reduction)


@in_float32
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Compute the binary cross entropy of logits, averaged over classes."""
    reduction = reduction_of(size_average, reduce, reduction)
    same_shape("multilabel_soft_margin_loss", input, target)
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    return reduced((losses if weight is None else losses * weight).mean(-1), reduction)


@in_float32
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Compute the negative log-likelihood of counts under Poisson distributions; `full` adds Stirling's approximation
    of the constant term.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        known = maximum(target, target * 0 + 1)
        stirling = known * known.log() - known + 0.5 * (2 * pi * known).log()
        losses = losses + where(target > 1, stirling, 0.0)
    return reduced(losses, reduction)


@in_float32
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Compute the negative log-likelihood under normal distributions with these means and variances; `full` adds the
    constant term.

    A negative variance raises, or gives a loss of NaN where the numbers are not known yet.
    """
    variance = var if isinstance(var, Tensor) else input * 0 + var
    shape, own = tuple(input.shape), tuple(variance.shape)
    if own != shape:
        if own == shape[:-1]:
            variance = variance.unsqueeze(-1)
        elif own not in ((*shape[:-1], 1), ()):
            raise ShapeError(f"gaussian_nll_loss: var has the shape {own}, which does not go with the input's {shape}")
    _check_variance(variance)
    # the smallest variance is no wall for the gradient, as in PyTorch
    known = variance.detach()
    variance = variance + (where(known < 0, float("nan"), known.clamp(min=eps)) - known)
    losses = 0.5 * (variance.log() + (input - target) ** 2 / variance)
    return reduced(losses + 0.5 * log(2 * pi) if full else losses, reduction)


def _check_variance(variance: Tensor) -> None:
    if tracing() or variance.value.buffer is None or variance.numel() > MAX_CHECKED_INDICES:
        return
    if (array_of(variance) < 0).any():
        raise ArgumentError("gaussian_nll_loss: var has negative numbers: variances are 0 or more")
