"""Define losses as functions. `reduction` is "none", "mean" or "sum"."""

from __future__ import annotations

from typing import Any

from ...autograd.modes import is_grad_enabled
from ...errors import ArgumentError, DTypeError, GradientError, IndexRangeError, ShapeError
from ...functions.arithmetic import where
from ...functions.autocasting import in_float32
from ...functions.creation import arange
from ...functions.elementary import xlogy
from ...functions.promotion import kind_of, pair
from ...jitted.function import tracing
from ...lazy.evaluation import MAX_CHECKED_INDICES, array_of, check_index
from ...lazy.handle import wrap
from ...ops.broadcasting import shown
from ...tensor import Tensor
from .distances import linear


@in_float32
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Compute the cross entropy of logits (N, C, ...) and class indices (N, ...) or class probabilities (N, C, ...).

    A class number outside 0..C-1 that is not `ignore_index` raises, or gives a loss of NaN where the numbers are not
    known yet; within `jit` it raises when the step has run.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    _need_tensors("cross_entropy", input, target)
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"cross_entropy: label_smoothing={label_smoothing}: give a number from 0 to 1")
    axis = 0 if input.dim() == 1 else 1
    likelihood = input.log_softmax(axis)
    if target.dtype.is_floating_point:
        if target.dim() == input.dim() - 1:
            raise DTypeError(
                f"cross_entropy: the numbers of classes are {target.dtype.name}; convert them: target.long(). (Floats "
                f"are probabilities of all classes, of the shape {tuple(input.shape)} of the input)"
            )
        same_shape("cross_entropy", input, target)
        if ignore_index >= 0:
            raise ArgumentError(
                f"cross_entropy: ignore_index={ignore_index} is for targets that are numbers of classes; these are "
                "probabilities: give weights, or leave out the samples"
            )
        wanted = target * (1 - label_smoothing) + label_smoothing / input.shape[axis] if label_smoothing else target
        losses = -(_weighted(likelihood * wanted, weight, axis)).sum(axis)
        return losses.sum() / (losses.numel() if axis else 1) if reduction == "mean" else reduced(losses, reduction)
    hard = nll_loss(likelihood, target, weight, ignore_index=ignore_index, reduction=reduction)
    if not label_smoothing:
        return hard
    share = label_smoothing / input.shape[axis]
    smooth = where(target == ignore_index, 0.0, -_weighted(likelihood, weight, axis).sum(axis))
    if reduction == "mean":
        smooth = smooth.sum() / _class_weights(likelihood, target, weight, ignore_index, axis).sum()
    return hard * (1 - label_smoothing) + reduced(smooth, "sum" if reduction == "sum" else "none") * share


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """Compute the cross entropy of the scores `input @ linear_weight.T`, of weights (classes, features).

    `options` are PyTorch's hints for going piece by piece; the compiler fuses what can be fused.
    """
    if linear_weight.dim() < 2 or input.shape[-1] != linear_weight.shape[-1] or input.dim() not in (1, 2):
        raise ShapeError(
            f"linear_cross_entropy: an input {shown(input.shape)} and a weight {shown(linear_weight.shape)}: they are "
            "(N, features), or (features,), and (classes, ..., features)"
        )
    if linear_weight.dim() > 2 and input.dim() == 1:
        raise ShapeError(
            f"linear_cross_entropy: a weight of the shape {shown(linear_weight.shape)} needs rows of input, not "
            f"{shown(input.shape)}"
        )
    shape = (*input.shape[:-1], *linear_weight.shape[:-1])
    rows = linear_weight.reshape(-1, linear_weight.shape[-1])
    scores = linear(input, rows, None if linear_bias is None else linear_bias.reshape(-1)).reshape(shape)
    return cross_entropy(
        scores,
        target,
        weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


@in_float32
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Compute the negative log-likelihood of log-probabilities (N, C, ...) at class indices (N, ...)."""
    reduction = reduction_of(size_average, reduce, reduction)
    _need_tensors("nll_loss", input, target)
    refuse_tracked("nll_loss", weight=weight)
    axis = 0 if input.dim() == 1 else 1
    check_classes(input, target, axis)
    check_range(target, input.shape[axis], ignore_index)
    # Comparing with every class instead of gathering: the row is in registers anyway (it has just been
    # normalised), and the gradient is a comparison again rather than a scatter.
    chosen = _one_of(input, target, axis)
    picked = where(chosen, _weighted(input, weight, axis), 0.0).sum(axis)
    known = _exist(target, input.shape[axis], axis, ignore_index)
    losses = where(target == ignore_index, 0.0, where(known, -picked, float("nan")))
    if reduction != "mean":
        return reduced(losses, reduction)
    return losses.sum() / _class_weights(input, target, weight, ignore_index, axis).sum()


def _exist(target: Tensor, count: int, axis: int, ignore_index: int) -> Tensor:
    """Test whether classes exist; within `jit` the kernels report one that does not, unless it is ignored."""
    if not tracing():
        return (target >= 0) & (target < count)
    kept = where(target == ignore_index, 0, target).long()
    inside = check_index(kept.value, count, axis, "cross_entropy: the classes of the target", from_end=False)
    return wrap(inside) == kept


def _one_of(input: Tensor, target: Tensor, axis: int) -> Tensor:
    """Test for each class along `axis` whether it is the target."""
    classes = arange(input.shape[axis], device=input.device, dtype=target.dtype)
    return target.unsqueeze(axis) == _along(classes, input.dim() - axis - 1)


def _along(classes: Tensor, behind: int) -> Tensor:
    """Reshape one number per class so that it broadcasts along the class axis."""
    return classes.reshape(-1, *(1,) * behind) if behind else classes


def _weighted(values: Tensor, weight: Tensor | None, axis: int) -> Tensor:
    if weight is None:
        return values
    if tuple(weight.shape) != (values.shape[axis],):
        raise ShapeError(
            f"the weight of the shape {tuple(weight.shape)} must have one number for each class of {values.shape[axis]}"
        )
    return values * _along(weight, values.dim() - axis - 1)


def _class_weights(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, axis: int) -> Tensor:
    """Return the weight of each target in the mean: that of its class, 0 where it is ignored."""
    kept = target != ignore_index
    if weight is None:
        return kept.to(input.dtype)
    of_class = where(_one_of(input, target, axis), _along(weight, input.dim() - axis - 1), 0.0).sum(axis)
    return where(kept, of_class, 0.0)


def check_classes(input: Tensor, target: Tensor, axis: int) -> None:
    if not target.dtype.is_integer:
        raise DTypeError(f"the target has the dtype {target.dtype!r}: class numbers must be integers")
    wanted = tuple(n for i, n in enumerate(input.shape) if i != axis)
    if not input.dim() or tuple(target.shape) != wanted:
        raise ShapeError(
            f"an input of the shape {tuple(input.shape)}, with the classes on axis {axis}, needs a target of the shape "
            f"{wanted}, but it has {tuple(target.shape)}"
        )


def check_range(target: Tensor, count: int, ignore_index: int) -> None:
    """Raise for a class that does not exist, where that is known without computing anything."""
    if tracing() or target.value.buffer is None or target.numel() > MAX_CHECKED_INDICES:
        return
    classes = array_of(target)
    wrong = classes[((classes < 0) | (classes >= count)) & (classes != ignore_index)]
    if wrong.size:
        raise IndexRangeError(
            f"the target has the class {wrong[0]}, but there are {count} classes, 0 to {count - 1} "
            f"(and {ignore_index}, which is ignored)"
        )


@in_float32
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Compute the mean squared difference."""
    reduction = reduction_of(size_average, reduce, reduction)
    same_shape("mse_loss", input, target)
    difference = input - target
    return _average(difference * difference, weight, reduction)


@in_float32
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Compute the mean absolute difference."""
    reduction = reduction_of(size_average, reduce, reduction)
    same_shape("l1_loss", input, target)
    return _average((input - target).abs(), weight, reduction)


def _average(losses: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """Reduce weighted losses."""
    if weight is None:
        return reduced(losses, reduction)
    weighted = losses * _same_size(weight, losses)
    return weighted.sum() / weight.sum() if reduction == "mean" else reduced(weighted, reduction)


def _same_size(weight: Tensor, losses: Tensor) -> Tensor:
    if tuple(weight.shape) != tuple(losses.shape):
        raise ShapeError(
            f"the weight has the shape {tuple(weight.shape)}, the input {tuple(losses.shape)}: they must be equal"
        )
    return weight


@in_float32
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Compute 0.5 * d ** 2 / beta for differences d below beta, d - 0.5 * beta beyond."""
    reduction = reduction_of(size_average, reduce, reduction)
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta={beta}: the distance where the loss becomes linear is 0 or more")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return huber_loss(input, target, reduction, beta) / beta


@in_float32
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Compute 0.5 * d ** 2 for differences d below delta, delta * (d - 0.5 * delta) beyond."""
    same_shape("huber_loss", input, target)
    if delta <= 0:
        raise ArgumentError(f"huber_loss: delta={delta}: the distance where the loss becomes linear is more than 0")
    difference = input - target
    distance = difference.abs()
    near = difference.clamp(-delta, delta)  # not of `distance`: the second derivative where both are equal is 1
    losses = where(distance < delta, 0.5 * near * near, delta * (distance - 0.5 * delta))
    return reduced(losses if weight is None else losses * _same_size(weight, losses), reduction)


@in_float32
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Compute the binary cross entropy of probabilities; logarithms are clamped to -100.

    A number that is no probability, outside 0..1, gives a loss of NaN.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    same_shape("binary_cross_entropy", input, target)
    refuse_tracked("binary_cross_entropy", weight=weight)
    from ...ops import likelihood

    losses = wrap(likelihood.binary_cross_entropy(*pair(input, target, "binary_cross_entropy")))
    return reduced(losses if weight is None else losses * weight, reduction)


@in_float32
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Compute the binary cross entropy of logits, without overflow."""
    reduction = reduction_of(size_average, reduce, reduction)
    same_shape("binary_cross_entropy_with_logits", input, target)
    refuse_tracked("binary_cross_entropy_with_logits", weight=weight, pos_weight=pos_weight)
    scale = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    from .activations import logsigmoid

    losses = (1 - target) * input - scale * logsigmoid(input)
    return reduced(losses if weight is None else losses * weight, reduction)


@in_float32
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Compute the Kullback-Leibler divergence from log-probabilities; "batchmean" divides by the batch size."""
    reduction = reduction_of(size_average, reduce, reduction)
    same_shape("kl_div", input, target)
    if log_target:
        losses = target.exp() * (target - input)
    else:
        losses = xlogy(target, target) - target * input
    return losses.sum() / input.shape[0] if reduction == "batchmean" else reduced(losses, reduction)


def _need_tensors(name: str, input: object, target: object) -> None:
    for what, x in (("input", input), ("target", target)):
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{name}: the {what} must be a tensor, not {kind_of(x)}; wrap it: tilegrad.tensor(...)")


def same_shape(name: str, input: Tensor, target: Tensor) -> None:
    _need_tensors(name, input, target)
    if tuple(input.shape) != tuple(target.shape):
        raise ShapeError(
            f"{name}: the input has the shape {tuple(input.shape)} and the target {tuple(target.shape)}: they must be "
            "equal; use view, reshape or expand on one of them"
        )


def refuse_tracked(name: str, **given: Tensor | None) -> None:
    """Raise for a gradient that PyTorch does not compute either."""
    for argument, x in given.items():
        if isinstance(x, Tensor) and x.value.tracked and is_grad_enabled():
            raise GradientError(f"{name}: no gradient flows to {argument}, as in PyTorch; detach it")


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """Return the reduction, given by name or by PyTorch's two deprecated flags."""
    if size_average is None and reduce is None:
        return reduction
    for name, flag in (("size_average", size_average), ("reduce", reduce)):
        if not isinstance(flag, (bool, int, type(None))):
            raise ArgumentError(
                f"{name} is {flag!r}: it is True or False, and out of use; say reduction='mean' by name"
            )
    if reduce is not None and not reduce:
        return "none"
    return "mean" if size_average is None or size_average else "sum"


def reduced(losses: Tensor, reduction: str) -> Tensor:
    match reduction:
        case "none":
            return losses
        case "mean":
            return losses.mean()
        case "sum":
            return losses.sum()
        case _:
            raise ArgumentError(f"reduction is {reduction!r}: it must be 'none', 'mean' or 'sum'")
