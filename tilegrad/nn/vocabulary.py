"""Define losses over many classes, as of a vocabulary, together with the layer of the scores."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ..errors import ArgumentError, ShapeError
from ..functions.arithmetic import where
from ..functions.joining import cat
from ..ops.broadcasting import shown
from ..tensor import Tensor
from .container import Sequential
from .functional.losses import check_classes, check_range, linear_cross_entropy, reduction_of
from .layers import Linear
from .lists import ModuleList
from .module import Module


class LinearCrossEntropyLoss(Module):
    """Compute the cross entropy of the scores of a linear layer, without storing the scores."""

    weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: Sequence[int] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ) -> None:
        super().__init__()
        self.reduction = reduction_of(None, None, reduction)
        self.register_buffer("weight", weight)
        self.num_classes = num_classes
        self.out_features = tuple(out_features)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.linear = Linear(in_features, num_classes * prod(self.out_features), bias, device, dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        form, bias = (self.num_classes, *self.out_features), self.linear.bias
        return linear_cross_entropy(
            input,
            self.linear.weight.reshape(*form, -1),
            target,
            linear_bias=None if bias is None else bias.reshape(form),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )


class AdaptiveOutput(NamedTuple):
    """The log-probability of each target, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Compute a softmax over many classes, most frequent first; clusters of rarer classes use narrower features.

    Every cluster is computed for every sample, so that shapes do not depend on the targets; the saving is in the narrow
    clusters, not in leaving some out.

    >>> import tilegrad as tg
    >>> loss = AdaptiveLogSoftmaxWithLoss(16, 100, cutoffs=[10, 40])
    >>> loss(tg.ones(3, 16), tg.tensor([0, 20, 99])).output.shape
    (3,)
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        ends = list(cutoffs)
        if not ends or ends != sorted(set(ends)) or ends[0] < 1 or ends[-1] > n_classes - 1:
            raise ArgumentError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs={cutoffs} must rise, from 1 to {n_classes - 1} at most"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*ends, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = ends[0]
        self.n_clusters = len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for n, (low, high) in enumerate(self._ranges()):
            width = int(in_features // div_value ** (n + 1))
            inner = Linear(in_features, width, False, device, dtype)
            self.tail.append(Sequential(inner, Linear(width, high - low, False, device, dtype)))

    def _ranges(self) -> list[tuple[int, int]]:
        """Return the first class of each cluster of rare ones, and the one after its last."""
        return list(zip(self.cutoffs, self.cutoffs[1:], strict=False))

    def reset_parameters(self) -> None:
        self.head.reset_parameters()
        for inner, outer in self.tail:
            inner.reset_parameters()
            outer.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> AdaptiveOutput:
        """Return the log-probabilities of the targets, and the loss."""
        single = target.dim() == 0
        x, wanted = (input.unsqueeze(0), target.unsqueeze(0)) if single else (input, target)
        if x.dim() != 2 or wanted.dim() != 1:
            raise ShapeError(
                f"AdaptiveLogSoftmaxWithLoss: an input {shown(input.shape)} and a target {shown(target.shape)}: they "
                "are (N, features) and (N,), or (features,) and ()"
            )
        check_classes(x, wanted, 1)
        check_range(wanted, self.n_classes, -1)
        head = self.head(x).log_softmax(1)
        found = head.gather(1, wanted.clamp(0, self.shortlist_size - 1).unsqueeze(1)).squeeze(1)
        for n, (low, high) in enumerate(self._ranges()):
            within = self.tail[n](x).log_softmax(1).gather(1, (wanted - low).clamp(0, high - low - 1).unsqueeze(1))
            inside = (wanted >= low) & (wanted < high)
            found = where(inside, within.squeeze(1) + head[:, self.shortlist_size + n], found)
        return AdaptiveOutput(found.squeeze(0) if single else found, -found.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """Return the log-probabilities of all classes."""
        head = self.head(input).log_softmax(1)
        parts = [head[:, : self.shortlist_size]]
        for n, part in enumerate(self.tail):
            parts.append(part(input).log_softmax(1) + head[:, self.shortlist_size + n].unsqueeze(1))
        return cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """Return the most probable class of each sample."""
        return self.log_prob(input).argmax(1)
