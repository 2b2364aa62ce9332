"""Fused attention for matrix units with accumulators in registers: half precision, whole tiles.

The formulas are those of `attention.py`. Three kernels compute the means, the gradient of queries, and the gradients of
keys and values, so that each instance accumulates its own results: seven products for the gradient instead of five, but
no atomic additions. Results are of half precision; each log-sum-exp is stored as a sum of three such numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..ir.dtype import bfloat16, float16, float32
from ..ir.graph import TensorType, Value
from ..ir.size import known, product
from ..runtime.device import device
from .arithmetic import add, mul, sub
from .attention_gradient import AttentionGradient
from .attention_shapes import AttentionMask, AttentionOp, AttentionSizes
from .broadcasting import reduce_sum, reshape
from .cast import cast, widened
from .creation import zeros
from .movement import narrow

if TYPE_CHECKING:
    from .tile_code import TileCode

LENGTH_MULTIPLE = 64
"""Multiple of numbers of queries and keys, and of widths."""
MAX_WIDTH = 128
"""Largest width of a head, in elements."""


def is_tiled(query: Value, key: Value, value: Value, setting: AttentionMask) -> bool:
    """Return whether these kernels support the arguments on their device."""
    if not device(query.device).target.tensor_core_attention:
        return False
    return may_be_tiled(query, key, value, setting)


def may_be_tiled(query: Value, key: Value, value: Value, setting: AttentionMask) -> bool:
    """Return whether these kernels support the arguments on some device."""
    plain = setting.mask is None and setting.state is None and setting.scale > 0
    plain = plain and query.dtype in (bfloat16, float16)
    if not plain or any(not isinstance(n, int) for x in (query, key, value) for n in x.shape):
        return False
    lengths = [known(n, {}) for n in (query.shape[2], key.shape[2], query.shape[3], value.shape[3])]
    return all(n % LENGTH_MULTIPLE == 0 < n for n in lengths) and max(lengths[2:]) <= MAX_WIDTH


class _TiledOp(AttentionOp):
    """Base of these ops. Axes before the last two are heads of any shape, so that no reshape is needed."""

    @property
    def sizes(self) -> AttentionSizes:
        numbers = [known(extent, {}) for extent in (*self.query.shape[-2:], *self.value.shape[-2:])]
        queries, width, keys, features = numbers
        n, m = (known(product(x.shape[:-2]), {}) for x in (self.query, self.key))
        return AttentionSizes(n, m, queries, keys, width, features)

    def given_here(self) -> dict[str, Any]:
        """Return the arguments that all of these ops have."""
        shared = ("query", "key", "value", "mask", "state", "heads", "causal", "scale", "p", "precision")
        return {name: self.__dict__[name] for name in shared}

    def wide_arrays(self, arrays: Sequence[Any]) -> list[Any]:
        """Convert arrays to float32, with heads merged to one axis, or two for those shared by queries."""
        n, m, queries, keys, width, features = self.sizes
        shapes: list[tuple[int, ...]] = [(n, queries, width), (m, keys, width), (m, keys, features)]
        shapes += [(n, queries, features), (n, queries), (n, queries)]
        return [x.astype(np.float32).reshape(s) for x, s in zip(arrays, shapes, strict=False)]


@final
class TiledAttention(_TiledOp):
    """All means; with levels, followed by the log-sum-exps as sums of three numbers each."""

    levels: bool = True

    def infer(self) -> TensorType:
        n, queries, features = product(self.query.shape[:-2]), self.query.shape[-2], self.value.shape[-1]
        if not self.levels:
            return self.query.type.with_shape((*self.query.shape[:-1], features))
        return self.query.type.with_shape((n * queries * (features + 3),))

    def reference(self, *arrays: Any) -> Any:
        from .tiled_attention_spec import level_scale

        n, m, _, _, _, _ = self.sizes
        query, key, value = self.wide_arrays(arrays)
        scores, _ = self.scores_of(query, key)
        most = scores.max(1, keepdims=True)
        powers = np.exp(scores - most)
        total = powers.sum(1, keepdims=True)
        low = self.query.dtype.numpy
        means = (np.swapaxes(powers / total, 1, 2) @ np.repeat(value, n // m, 0)).astype(low)
        if not self.levels:
            return means.reshape(self.shape)
        level = (most + np.log(total)).ravel() * np.float32(level_scale(self.query.dtype))
        upper = level.astype(low)
        rest = level - upper.astype(np.float32)
        middle = rest.astype(low)
        lower = (rest - middle.astype(np.float32)).astype(low)
        return np.concatenate([means.ravel(), upper, middle, lower])

    def kernel(self) -> TileCode:
        from .tiled_attention_spec import forward

        return forward(self, self.levels)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        """Pass the upstream gradient of one of the three numbers to their sum."""
        given = self.given_here()
        if not self.levels:
            means, level = (made := TiledAttention(**given)).parts(made)
            to_means, to_level = upstream, None
        else:
            means, level = self.parts(self)
            to_means, to_level = self.parts(upstream, thirds=1)
        delta = reduce_sum(mul(widened(to_means), widened(means)), -1)
        delta = reshape(delta, level.shape)
        delta = delta if to_level is None else sub(delta, to_level)
        arriving = cast(to_means, self.query.dtype)
        given |= {"upstream": arriving, "level": level, "delta": delta}
        of_query = TiledQueryGradient(**given)
        to_key, to_value = (both := TiledKeyGradient(**given)).parts(both)
        return [of_query, to_key, to_value]

    def parts(self, x: Value, thirds: int = 3) -> tuple[Value, Value]:
        """Split the result (or a value of its layout) into means and log-sum-exps."""
        from .tiled_attention_spec import level_scale

        n, _, queries, _, _, features = self.sizes
        count = n * queries * features
        means = reshape(narrow(x, 0, 0, count), (*self.query.shape[:-1], features))
        three = [widened(narrow(x, 0, count + k * n * queries, n * queries)) for k in range(thirds)]
        level = three[0] if thirds == 1 else add(add(three[2], three[1]), three[0])
        factor = level_scale(self.query.dtype) if thirds == 1 else 1 / level_scale(self.query.dtype)
        return means, reshape(mul(level, factor) if factor != 1.0 else level, (n, queries))


class _TiledGradient(_TiledOp):
    """Base of both gradients: upstream gradient of the means, and for each query its level and delta."""

    upstream: Value
    level: Value
    delta: Value

    def whole(self) -> AttentionGradient:
        """Compute both gradients by the op with one axis of heads."""
        given = self.given_here()
        given |= {name: reshape(given[name], (-1, *given[name].shape[-2:])) for name in ("query", "key", "value")}
        upstream = reshape(self.upstream, (-1, *self.upstream.shape[-2:]))
        return AttentionGradient(**given, upstream=upstream, level=self.level, delta=self.delta)

    def slopes(self, arrays: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
        """Return weights and gradients of scores (keys by queries) and the arrays in float32, on numpy arrays."""
        query, key, value, upstream, level, delta = given = self.wide_arrays(arrays)
        n, m, _, _, _, _ = self.sizes
        scores, _ = self.scores_of(query, key)
        powers = np.exp(scores - level[:, None, :])
        flow = np.repeat(value, n // m, 0) @ np.swapaxes(upstream, 1, 2)
        return powers, powers * (flow - delta[:, None, :]), given

    def formula(self, a: Value | None, b: Value | None, c: Value | None) -> Sequence[Value | None]:
        """Return the gradient for upstream gradients a, b and c of the gradients of queries, keys and values; second
        derivatives are rare.
        """
        none = [zeros(x.shape, float32, self.device) for x in (self.query, self.key, self.value)]
        arriving = [y if x is None else widened(x) for x, y in zip((a, b, c), none, strict=True)]
        found = self.whole().shares(*[reshape(x, (-1, *x.shape[-2:])) for x in arriving])
        pairs = zip(found, self.inputs, strict=True)
        return [None if x is None else reshape(cast(x, y.dtype), y.shape) for x, y in pairs]


@final
class TiledQueryGradient(_TiledGradient):
    """Gradient of queries."""

    def infer(self) -> TensorType:
        return self.query.type

    def reference(self, *arrays: Any) -> Any:
        n, m, _, _, _, _ = self.sizes
        _, slopes, (_, key, *_) = self.slopes(arrays)
        found = np.swapaxes(slopes, 1, 2) @ np.repeat(key, n // m, 0) * self.scale
        return found.astype(self.query.dtype.numpy).reshape(self.shape)

    def kernel(self) -> TileCode:
        from .tiled_attention_spec import query_gradient

        return query_gradient(self)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return self.formula(upstream, None, None)


@final
class TiledKeyGradient(_TiledGradient):
    """Gradients of keys and of values, concatenated."""

    def infer(self) -> TensorType:
        _, m, _, keys, width, features = self.sizes
        return self.query.type.with_shape((m * keys * (width + features),))

    def reference(self, *arrays: Any) -> Any:
        n, m, _, keys, width, features = self.sizes
        powers, slopes, (query, _, _, upstream, *_) = self.slopes(arrays)
        to_key = (slopes @ query * self.scale).reshape(m, n // m, keys, width).sum(1)
        to_value = (powers @ upstream).reshape(m, n // m, keys, features).sum(1)
        return np.concatenate([to_key.ravel(), to_value.ravel()]).astype(self.query.dtype.numpy)

    def kernel(self) -> TileCode:
        from .tiled_attention_spec import key_gradient

        return key_gradient(self)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return self.formula(None, *self.parts(upstream))

    def parts(self, x: Value) -> tuple[Value, Value]:
        """Split the result (or a value of its layout) into the gradients of keys and values."""
        _, m, _, keys, width, features = self.sizes
        count = m * keys * width
        to_value = narrow(x, 0, count, m * keys * features)
        return reshape(narrow(x, 0, 0, count), self.key.shape), reshape(to_value, self.value.shape)


def tiled_attention(query: Value, key: Value, value: Value, setting: AttentionMask) -> Value:
    """Compute attention with these kernels."""
    given: dict[str, Any] = {"query": query, "key": key, "value": value, "mask": (), "state": (), "p": 0.0}
    given |= {"heads": known(query.shape[1], {}), "causal": setting.causal, "scale": setting.scale}
    given["precision"] = setting.precision
    if not any(x.tracked for x in (query, key, value)):
        return TiledAttention(**given, levels=False)
    made = TiledAttention(**given)
    return made.parts(made)[0]
