"""Fused attention: for each query the mean of the values, weighted by the softmax of its scores with the keys.

The score matrix is never stored. A kernel loops over tiles of keys for each tile of queries, and keeps for each query
the running maximum, sum of exponentials and mean (Dao, Fu, Ermon, Rudra, Ré 2022, "FlashAttention"). For the gradient
it stores one number for each query, the log-sum-exp of its scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..ir.dtype import bool_
from ..ir.graph import TensorType, Value
from ..ir.size import product
from .arithmetic import add, div, mul, sub
from .attention_gradient import AttentionGradient
from .attention_shapes import AttentionMask, AttentionOp, causal_mask, kept_pairs
from .broadcasting import exact_quotient, lower_bound, reduce_sum, reshape
from .cast import cast, detach, widened
from .comparison import eq
from .contraction import matmul
from .control import where
from .exponential import exp
from .movement import narrow, transpose
from .reduction import amax
from .tiled_attention import is_tiled, tiled_attention

if TYPE_CHECKING:
    from .tile_code import TileCode

MIN_QUERIES = 8
"""Queries from which the fused kernel is used: with fewer its vectors would be mostly empty, and the scores are few."""


@final
class Attention(AttentionOp):
    """All means, followed by the log-sum-exp of each query (inf if it attends to no key)."""

    def infer(self) -> TensorType:
        n, queries, features = *self.query.shape[:2], self.value.shape[-1]
        return self.query.type.with_dtype(self.wide).with_shape((n * queries * (features + 1),))

    def reference(self, *arrays: Any) -> Any:
        query, key, value = (x.astype(self.wide.numpy) for x in arrays[:3])
        n, m, _, _, _, _ = self.sizes
        with np.errstate(all="ignore"):
            scores, factor = self.scores_of(query, key, *arrays[3:])
            most = scores.max(1, keepdims=True)
            powers = np.exp(scores - np.where(np.isneginf(most), 0, most))
            total = powers.sum(1, keepdims=True)
            weights = np.swapaxes(powers * factor / np.where(total == 0, 1, total), 1, 2)
            level = np.where(total == 0, np.inf, most + np.log(total))
        return np.concatenate([(weights @ np.repeat(value, n // m, 0)).ravel(), level.ravel()]).astype(query.dtype)

    def kernel(self) -> TileCode:
        from .attention_spec import forward
        from .tile_code import with_precision

        return with_precision(forward(self), self.precision)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        """Gradients of the means use `AttentionGradient`; gradients of the log-sum-exp are folded into delta."""
        means, level = self.parts(self)
        to_means, to_level = self.parts(upstream)
        delta = sub(reduce_sum(mul(to_means, means), -1), to_level)
        shares = _gradients(self, to_means, level, delta)
        return [cast(x, self.query.dtype) for x in shares] + [None] * (len(self.inputs) - 3)

    def parts(self, x: Value) -> tuple[Value, Value]:
        """Split the result (or a value of its layout) into the means and the log-sum-exps."""
        n, _, queries, _, _, features = self.sizes
        count = n * queries * features
        means = reshape(narrow(x, 0, 0, count), (n, queries, features))
        return means, reshape(narrow(x, 0, count, n * queries), (n, queries))


def attention(query: Value, key: Value, value: Value, setting: AttentionMask) -> Value:
    """Compute attention. The arguments have axes (batch, heads, length, width) and one dtype."""
    if _stores_scores(query, key, value, setting):
        return plain_attention(query, key, value, setting)
    batch, heads, queries, _ = query.shape
    assert isinstance(heads, int)
    if is_tiled(query, key, value, setting):
        return tiled_attention(query, key, value, setting)
    q, k, v = (reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])) for x in (query, key, value))
    mask = () if setting.mask is None else (_transposed_mask(setting.mask),)
    # a copy: the state advances before the gradient is computed
    state = () if setting.state is None else (add(setting.state, 0),)
    made = Attention(q, k, v, mask, state, heads, setting.causal, setting.scale, setting.p, setting.precision)
    means, _ = made.parts(made)
    return cast(reshape(means, (batch, heads, queries, value.shape[-1])), query.dtype)


def _stores_scores(query: Value, key: Value, value: Value, setting: AttentionMask) -> bool:
    """Return whether to store the scores: for symbolic sizes, few queries, or a mask that is trained."""
    sizes = [*query.shape, *key.shape, *value.shape]
    tracked = setting.mask is not None and setting.mask.tracked
    return tracked or any(not isinstance(n, int) or n == 0 for n in sizes) or lower_bound(query.shape[2]) < MIN_QUERIES


def _transposed_mask(mask: Value) -> Value:
    """Transpose the mask to (..., keys, queries), the layout of the kernel."""
    return transpose(mask if mask.dtype is bool_ else widened(mask), -1, -2)


def plain_attention(query: Value, key: Value, value: Value, setting: AttentionMask) -> Value:
    """Compute attention with all scores in memory."""
    (batch, heads, queries, width), (_, few, keys, _) = query.shape, key.shape
    share = 1 if heads == few else exact_quotient(heads, few)  # also without heads
    assert share is not None
    grouped = (batch, few, share * queries, width)
    scores = matmul(mul(widened(reshape(query, grouped)), setting.scale), transpose(widened(key)), setting.precision)
    weights = _softmax(_masked(reshape(scores, (batch, heads, queries, keys)), setting))
    if setting.state is not None:
        weights = where(kept_pairs(setting, weights.shape), mul(weights, 1 / (1 - setting.p)), 0.0)
    weights = reshape(weights, (batch, few, grouped[2], keys))
    means = matmul(weights, widened(value), setting.precision)
    return cast(reshape(means, (batch, heads, queries, value.shape[-1])), query.dtype)


def _masked(scores: Value, setting: AttentionMask) -> Value:
    none = float("-inf")
    if setting.mask is not None:
        mask = setting.mask
        scores = where(mask, scores, none) if mask.dtype is bool_ else add(scores, cast(mask, scores.dtype))
    if setting.causal:
        scores = where(causal_mask(scores.shape, scores.device), scores, none)
    return scores


def _softmax(scores: Value) -> Value:
    """Compute the softmax over the last axis, zeros where a query attends to no key."""
    if product(scores.shape[-1:]) == 0:
        return scores
    most = detach(amax(scores, -1, keepdim=True))
    powers = exp(sub(scores, where(eq(most, float("-inf")), 0.0, most)))
    total = reduce_sum(powers, -1, keepdim=True)
    return div(powers, where(eq(total, 0.0), 1.0, total))


def _gradients(op: Attention, upstream: Value, level: Value, delta: Value) -> tuple[Value, Value, Value]:
    """Return the gradients of queries, keys and values."""
    given = (op.query, op.key, op.value, op.mask, op.state, op.heads, op.causal, op.scale, op.p, op.precision)
    made = AttentionGradient(*given, upstream, level, delta)
    to_query, to_key, to_value = made.parts(made)
    return reduce_sum(to_query, 0), to_key, to_value
