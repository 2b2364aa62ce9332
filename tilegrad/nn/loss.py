"""Losses as modules."""

from __future__ import annotations

from collections.abc import Callable

from ..functions.declared import publish_classes
from ..tensor import Tensor
from . import functional
from .layers import PairwiseDistance
from .wrapped import Loss


class MSELoss(Loss, function=functional.mse_loss, without=("weight",)):
    """Compute the mean squared difference."""


class L1Loss(Loss, function=functional.l1_loss, without=("weight",)):
    """Compute the mean absolute difference."""


class SmoothL1Loss(Loss, function=functional.smooth_l1_loss):
    """Compute a loss that is quadratic for differences below `beta` and linear beyond."""


class HuberLoss(Loss, function=functional.huber_loss, without=("weight",)):
    """Compute a loss that is quadratic for differences below `delta` and linear beyond."""


class KLDivLoss(Loss, function=functional.kl_div):
    """Compute the Kullback-Leibler divergence; the input holds log-probabilities."""


class BCELoss(Loss, function=functional.binary_cross_entropy):
    """Compute the binary cross entropy of probabilities."""


class BCEWithLogitsLoss(Loss, function=functional.binary_cross_entropy_with_logits):
    """Compute the binary cross entropy of logits."""


class NLLLoss(Loss, function=functional.nll_loss):
    """Compute the negative log-likelihood of class indices under log-probabilities."""


class CrossEntropyLoss(Loss, function=functional.cross_entropy):
    """Compute the cross entropy of class indices or class probabilities under logits."""


class MarginRankingLoss(Loss, function=functional.margin_ranking_loss):
    """Penalise pairs whose order (target 1: the first is larger) is not kept by the margin."""


class HingeEmbeddingLoss(Loss, function=functional.hinge_embedding_loss):
    """Penalise distances of similar pairs (target 1) and those below the margin of others (target -1)."""


class CosineEmbeddingLoss(Loss, function=functional.cosine_embedding_loss):
    """Penalise angles of similar pairs (target 1) and cosines above the margin of others (target -1)."""


class TripletMarginLoss(Loss, function=functional.triplet_margin_loss):
    """Penalise anchors that are not closer to the positive than to the negative by the margin."""


class TripletMarginWithDistanceLoss(Loss, function=functional.triplet_margin_with_distance_loss, keyword_only=True):
    """Compute `TripletMarginLoss` with a distance function of the user's."""

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        self._set(
            distance_function=distance_function or PairwiseDistance(), margin=margin, swap=swap, reduction=reduction
        )


class MultiMarginLoss(Loss, function=functional.multi_margin_loss):
    """Penalise classes whose score comes within the margin of that of the target class."""


class MultiLabelMarginLoss(Loss, function=functional.multilabel_margin_loss):
    """Penalise wrong classes whose score comes within 1 of that of a target class."""


class MultiLabelSoftMarginLoss(Loss, function=functional.multilabel_soft_margin_loss):
    """Compute the binary cross entropy of logits, averaged over classes."""


class SoftMarginLoss(Loss, function=functional.soft_margin_loss):
    """Compute the logistic loss for targets 1 and -1."""


class PoissonNLLLoss(Loss, function=functional.poisson_nll_loss):
    """Compute the negative log-likelihood of counts under a Poisson distribution."""


class GaussianNLLLoss(
    Loss, function=functional.gaussian_nll_loss, inputs=("input", "target", "var"), keyword_only=True
):
    """Compute the negative log-likelihood under normal distributions of given means and variances."""


class CTCLoss(Loss, function=functional.ctc_loss, inputs=("log_probs", "targets", "input_lengths", "target_lengths")):
    """Compute the negative log-likelihood of label sequences, summed over their alignments with the inputs."""


publish_classes(globals())
