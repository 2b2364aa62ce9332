"""Losses."""

from __future__ import annotations

from typing import Any

from ... import functional as tg
from ...ir.dtype import int64
from ...tensor import Tensor
from ..rules import Function


def negative_log_likelihood(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return minus the element of the target's class, weighted; the mean is over the weights."""
    places = target.to(int64)
    kept = tg.ones_like(places).bool() if ignore_index is None else places != ignore_index
    places = tg.where(kept, places, tg.zeros_like(places))
    taken = tg.gather(x, 1, places.unsqueeze(1)).squeeze(1)
    each = tg.ones_like(taken) if weight is None else tg.take(weight, places)
    each = tg.where(kept, each, tg.zeros_like(each))
    loss = -taken * each
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / each.sum()


def softmax_cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: int = 1,
) -> Any:
    """Return the cross entropy of softmax, and the logarithms of probabilities if somebody wants them."""
    logs = tg.log_softmax(x, 1)
    loss = negative_log_likelihood(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    return (loss, logs) if outputs > 1 else loss


RULES: dict[str, Function] = {
    "NegativeLogLikelihoodLoss": negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy,
}
