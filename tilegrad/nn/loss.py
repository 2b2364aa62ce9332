"""Losses as modules."""

from __future__ import annotations

from collections.abc import Callable

from ..tensor import Tensor
from . import functional
from .layers import PairwiseDistance
from .wrapped import Loss, layer

MSELoss = layer("MSELoss", functional.mse_loss, Loss, without=("weight",))
L1Loss = layer("L1Loss", functional.l1_loss, Loss, without=("weight",))
SmoothL1Loss = layer("SmoothL1Loss", functional.smooth_l1_loss, Loss)
HuberLoss = layer("HuberLoss", functional.huber_loss, Loss, without=("weight",))
KLDivLoss = layer("KLDivLoss", functional.kl_div, Loss)
BCELoss = layer("BCELoss", functional.binary_cross_entropy, Loss)
BCEWithLogitsLoss = layer("BCEWithLogitsLoss", functional.binary_cross_entropy_with_logits, Loss)
NLLLoss = layer("NLLLoss", functional.nll_loss, Loss)
CrossEntropyLoss = layer("CrossEntropyLoss", functional.cross_entropy, Loss)
MarginRankingLoss = layer("MarginRankingLoss", functional.margin_ranking_loss, Loss)
HingeEmbeddingLoss = layer("HingeEmbeddingLoss", functional.hinge_embedding_loss, Loss)
CosineEmbeddingLoss = layer("CosineEmbeddingLoss", functional.cosine_embedding_loss, Loss)
TripletMarginLoss = layer("TripletMarginLoss", functional.triplet_margin_loss, Loss)


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


MultiMarginLoss = layer("MultiMarginLoss", functional.multi_margin_loss, Loss)
MultiLabelMarginLoss = layer("MultiLabelMarginLoss", functional.multilabel_margin_loss, Loss)
MultiLabelSoftMarginLoss = layer("MultiLabelSoftMarginLoss", functional.multilabel_soft_margin_loss, Loss)
SoftMarginLoss = layer("SoftMarginLoss", functional.soft_margin_loss, Loss)
PoissonNLLLoss = layer("PoissonNLLLoss", functional.poisson_nll_loss, Loss)
GaussianNLLLoss = layer(
    "GaussianNLLLoss", functional.gaussian_nll_loss, Loss, inputs=("input", "target", "var"), keyword_only=True
)
CTCLoss = layer(
    "CTCLoss", functional.ctc_loss, Loss, inputs=("log_probs", "targets", "input_lengths", "target_lengths")
)
