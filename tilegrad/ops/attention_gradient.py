"""Gradient of attention in one pass over the keys for each tile of queries, with recomputed scores.

With P = exp(S - level) the weights before dropout, F the factors of dropout, dP = F * (upstream @ values.T):

    dS = P * (dP - delta)    dQ = scale * dS @ K    dK = scale * dS.T @ Q    dV = (P * F).T @ upstream

where delta is the sum of upstream * means for each query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from ..ir.dtype import bool_
from ..ir.graph import TensorType, Value
from .arithmetic import add, mul, neg, sub
from .attention_shapes import AttentionMask, AttentionOp, causal_mask, kept_pairs
from .broadcasting import expand, reduce_sum, reshape
from .cast import cast, widened
from .contraction import matmul
from .control import where
from .creation import ones
from .exponential import exp
from .movement import narrow, transpose

if TYPE_CHECKING:
    from .tile_code import TileCode

MIN_INSTANCES = 16
"""Instances below which the keys of a head are split over several instances."""


@final
class AttentionGradient(AttentionOp):
    """Gradients of queries (partial sums, one for each chunk of keys), keys and values, concatenated."""

    upstream: Value
    level: Value
    delta: Value

    @property
    def span(self) -> int:
        """Length of a chunk of keys: whole tiles."""
        _, m, _, keys, _, _ = self.sizes
        length = self.tile_length(keys, 8)
        tiles = -(-keys // length)
        return length * -(-tiles // min(-(-MIN_INSTANCES // m), tiles))

    @property
    def chunks(self) -> int:
        """Number of chunks of keys."""
        return -(-self.sizes.keys // self.span)

    def infer(self) -> TensorType:
        n, m, queries, keys, width, features = self.sizes
        count = self.chunks * n * queries * width + m * keys * (width + features)
        return self.query.type.with_dtype(self.wide).with_shape((count,))

    def reference(self, *arrays: Any) -> Any:
        n, m, _queries, keys, width, features = self.sizes
        query, key, value, upstream, level, delta = (x.astype(self.wide.numpy) for x in (*arrays[:3], *arrays[-3:]))
        with np.errstate(all="ignore"):
            scores, factor = self.scores_of(query, key, *arrays[3:-3])
            powers = np.exp(scores - level[:, None, :])
            flow = np.repeat(value, n // m, 0) @ np.swapaxes(upstream, 1, 2) * factor
            slopes = powers * (flow - delta[:, None, :])
        chunks = [slice(start, start + self.span) for start in range(0, keys, self.span)]
        repeated, transposed = np.repeat(key, n // m, 0), np.swapaxes(slopes, 1, 2)
        to_query = np.stack([transposed[:, :, c] @ repeated[:, c] * self.scale for c in chunks])
        to_key = (slopes @ query * self.scale).reshape(m, n // m, keys, width).sum(1)
        to_value = ((powers * factor) @ upstream).reshape(m, n // m, keys, features).sum(1)
        return np.concatenate([x.ravel() for x in (to_query, to_key, to_value)]).astype(self.wide.numpy)

    def kernel(self) -> TileCode:
        from .attention_spec import backward
        from .tile_code import with_precision

        return with_precision(backward(self, self.chunks, self.span), self.precision)

    def parts(self, x: Value) -> tuple[Value, Value, Value]:
        """Split the result (or a value of its layout) into the gradients of queries, keys and values."""
        n, m, queries, keys, width, features = self.sizes
        found, start = [], 0
        for shape in [(self.chunks, n, queries, width), (m, keys, width), (m, keys, features)]:
            count = int(np.prod(shape))
            found.append(reshape(narrow(x, 0, start, count), shape))
            start += count
        return found[0], found[1], found[2]

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        """Differentiate the formula with all scores in memory: second derivatives are rare.

        a, b and c are the upstream gradients of dQ, dK and dV. All partial sums of dQ get the same upstream gradient,
        so that of the first one suffices.
        """
        a, b, c = self.parts(upstream)
        return self.shares(narrow(a, 0, 0, 1), b, c)

    def shares(self, a: Value, b: Value, c: Value) -> list[Value | None]:
        """Return the gradient of each input for the upstream gradients of the gradients of queries, keys and values."""
        m = _GradientMatrices.of(self)
        a, b = mul(m.grouped(a), self.scale), mul(b, self.scale)
        slopes = mul(m.powers, sub(mul(m.flow, m.factor), m.delta))
        to_slopes = add(matmul(a, _t(m.key)), matmul(m.query, _t(b)))
        to_flow = mul(mul(to_slopes, m.powers), m.factor)
        by_powers = add(mul(to_slopes, sub(mul(m.flow, m.factor), m.delta)), mul(m.factor, matmul(m.upstream, _t(c))))
        to_scores = mul(by_powers, m.powers)
        to_query = add(matmul(slopes, b), mul(matmul(to_scores, m.key), self.scale))
        to_key = add(matmul(_t(slopes), a), mul(matmul(_t(to_scores), m.query), self.scale))
        to_value = matmul(_t(to_flow), m.upstream)
        to_upstream = add(matmul(to_flow, m.value), matmul(mul(m.powers, m.factor), c))
        to_level = neg(reduce_sum(to_scores, -1))
        to_delta = neg(reduce_sum(mul(to_slopes, m.powers), -1))
        first = [reshape(to_query, self.query.shape), to_key, to_value]
        last = [reshape(x, y.shape) for x, y in zip((to_upstream, to_level, to_delta), self.inputs[-3:], strict=True)]
        none: list[Value | None] = [None] * (len(self.inputs) - 6)
        return [cast(x, self.query.dtype) for x in first] + none + last


class _GradientMatrices(NamedTuple):
    """Matrices of the gradient for all queries that share keys: (m, n / m * queries, keys or width)."""

    query: Value
    key: Value
    value: Value
    upstream: Value
    powers: Value
    flow: Value
    """Upstream gradient of the weights before dropout."""
    factor: Value
    delta: Value

    @classmethod
    def of(cls, op: AttentionGradient) -> _GradientMatrices:
        n, m, queries, keys, _, _ = op.sizes
        shape = (m, n // m * queries, keys)
        query, upstream = (reshape(widened(x), (m, shape[1], x.shape[-1])) for x in (op.query, op.upstream))
        key, value = widened(op.key), widened(op.value)
        level, delta = (reshape(x, (m, shape[1], 1)) for x in (op.level, op.delta))
        scores = _masked(op, reshape(mul(matmul(query, _t(key)), op.scale), (n, queries, keys)))
        powers = exp(sub(reshape(scores, shape), level))
        factor = ones((), op.wide, op.device)
        if op.state:
            kept = kept_pairs(AttentionMask(state=op.state[0], p=op.p), (n, queries, keys))
            factor = mul(cast(reshape(kept, shape), op.wide), 1 / (1 - op.p))
        return cls(query, key, value, upstream, powers, matmul(upstream, _t(value)), factor, delta)

    def grouped(self, x: Value) -> Value:
        return reshape(x, self.query.shape)


def _masked(op: AttentionOp, scores: Value) -> Value:
    n, queries, keys = scores.shape
    if op.mask:
        four = (int(n) // op.heads, op.heads, queries, keys)  # type: ignore[arg-type]
        given = reshape(expand(_t(op.mask[0]), four), scores.shape)
        scores = where(given, scores, float("-inf")) if given.dtype is bool_ else add(scores, cast(given, op.wide))
    if op.causal:
        scores = where(causal_mask(scores.shape, scores.device), scores, float("-inf"))
    return scores


def _t(x: Value) -> Value:
    return transpose(x, -1, -2)
