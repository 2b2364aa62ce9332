"""Attention in one pass: each query's mean of the values, weighted by the softmax of its scores with the keys.

The matrix of scores is never stored. A kernel takes a tile of queries through the keys, tile by tile, and keeps
for each query the greatest score, the sum of the powers and the mean so far (Dao, Fu, Ermon, Rudra, Ré 2022,
"FlashAttention"). What it leaves for the gradient is one number a query, the logarithm of the sum of the powers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from ..ir.dtype import DType, bool_
from ..ir.graph import TensorType, Value
from ..ir.size import Shape, known, product
from .arithmetic import add, div, mul, sub
from .broadcasting import accumulator, least, quotient, reduce_sum, reshape
from .cast import cast, detach, widened
from .comparison import eq, ge
from .contraction import matmul
from .control import where
from .creation import positions
from .exponential import exp
from .movement import narrow, transpose
from .opaque import Opaque
from .random import KEY_STEPS, MULTIPLIERS, ROUNDS, bernoulli
from .reduction import amax

if TYPE_CHECKING:
    from .tile_code import TileCode

AT_ONCE = 64
"""About so many queries, and so many keys, make a tile: their scores stay in the first two caches."""
FEWEST_QUERIES = 8
"""For fewer, vectors of queries would be mostly empty: the plain formula is used, whose scores are few then."""


class Attending(Opaque):
    """What attention and its gradient have in common.

    Queries are (n, length, width), keys and values (m, ...): one of them serves n / m queries beside each other.
    The mask has keys before queries: (batch or 1, heads or 1, keys or 1, queries or 1), bool (false: the pair does
    not meet) or a number to be added. With a random state, the fraction p of all pairs is dropped.
    """

    query: Value
    key: Value
    value: Value
    mask: tuple[Value, ...]
    state: tuple[Value, ...]
    heads: int
    causal: bool
    scale: float
    p: float

    @property
    def wide(self) -> DType:
        """In what is computed."""
        return accumulator(self.query.dtype)

    @property
    def sizes(self) -> Sizes:
        numbers = [known(extent, {}) for extent in (*self.query.shape, *self.value.shape)]
        n, queries, width, m, keys, features = numbers
        return Sizes(n, m, queries, keys, width, features)

    def given(self) -> dict[str, TensorType]:
        """The parameters of the kernel."""
        found = {"query": self.query.type, "key": self.key.type, "value": self.value.type}
        optional = {"mask": self.mask, "state": self.state}
        found |= {name: x.type for name, tensors in optional.items() for x in tensors}
        return found | {name: self.__dict__[name].type for name in self.input_fields if name not in found | optional}

    def scores_of(self, query: Any, key: Any, *rest: Any) -> tuple[Any, Any]:
        """On numpy arrays: all scores, and the factors by which dropout multiplies the weights."""
        n, m, queries, keys, _, _ = self.sizes
        scores = np.repeat(key, n // m, 0) @ np.swapaxes(query, 1, 2) * query.dtype.type(self.scale)
        if self.mask:
            given = np.broadcast_to(rest[0], (n // self.heads, self.heads, keys, queries)).reshape(n, keys, queries)
            masked = np.where(given, scores, -np.inf) if given.dtype == np.bool_ else scores + given
            scores = masked.astype(query.dtype)
        if self.causal:
            scores = np.where(np.arange(keys)[:, None] <= np.arange(queries), scores, query.dtype.type(-np.inf))
        factor: Any = 1.0
        if self.state:
            drawn = philox_numbers(rest[len(self.mask)], n * queries * keys) >> 8
            kept = (drawn < threshold(self.p)).reshape(n, queries, keys)
            factor = np.where(np.swapaxes(kept, 1, 2), 1 / (1 - self.p), 0.0).astype(query.dtype)
        return scores, factor


class Sizes(NamedTuple):
    n: int
    m: int
    queries: int
    keys: int
    width: int
    """Of a query and of a key."""
    features: int
    """Of a value."""


def tile_length(extent: int, multiple: int) -> int:
    """How long the tiles of an axis are: alike, and multiples of a number if there are several.

    >>> tile_length(512, 8), tile_length(100, 8), tile_length(257, 8), tile_length(50, 8)
    (64, 56, 56, 50)
    """
    tiles = -(-extent // AT_ONCE)
    return extent if tiles == 1 else -(-extent // (tiles * multiple)) * multiple


def threshold(p: float) -> int:
    """A pair is kept if the upper 24 bits of its random word are below this: as `bernoulli` does."""
    return int(np.ceil(np.float64(np.float32(1 - p)) * (1 << 24)))


def philox_numbers(state: Any, count: int) -> Any:
    """The first random words of `random.Philox` as a numpy array.

    >>> philox_numbers(np.array([7, 5]), 2)
    array([3684106160,  682909602], dtype=uint64)
    """
    low = np.uint64(0xFFFFFFFF)
    seed, offset = state.astype(np.uint64)
    counter = offset + np.arange(count, dtype=np.uint64)
    a, b, c, d = counter & low, counter >> np.uint64(32), np.zeros_like(counter), np.zeros_like(counter)
    key, other_key = seed & low, seed >> np.uint64(32)
    for _ in range(ROUNDS):
        first, second = a * np.uint64(MULTIPLIERS[0]), c * np.uint64(MULTIPLIERS[1])
        a, c = second >> np.uint64(32) ^ b ^ key, first >> np.uint64(32) ^ d ^ other_key
        b, d = second & low, first & low
        key, other_key = key + np.uint64(KEY_STEPS[0]) & low, other_key + np.uint64(KEY_STEPS[1]) & low
    return a


@final
class Attention(Attending):
    """All means, and behind them for each query the logarithm of the sum of its powers (inf if it meets no key)."""

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
        from .attention_code import forward

        return forward(self)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        """That of the means goes by `AttentionGradient`; that of the logarithms joins in where delta is taken off."""
        from .attention_gradient import attention_gradient

        means, level = self.parts(self)
        to_means, to_level = self.parts(upstream)
        delta = sub(reduce_sum(mul(to_means, means), -1), to_level)
        shares = attention_gradient(self, to_means, level, delta)
        return [cast(x, self.query.dtype) for x in shares] + [None] * (len(self.inputs) - 3)

    def parts(self, x: Value) -> tuple[Value, Value]:
        """The means and the logarithms (or what has their layout)."""
        n, _, queries, _, _, features = self.sizes
        count = n * queries * features
        means = reshape(narrow(x, 0, 0, count), (n, queries, features))
        return means, reshape(narrow(x, 0, count, n * queries), (n, queries))


class Setting(NamedTuple):
    """How queries meet keys."""

    mask: Value | None = None
    """(batch or 1, heads or 1, queries or 1, keys or 1): bool, or numbers to be added."""
    causal: bool = False
    """A query meets the keys up to its own place."""
    scale: float = 1.0
    state: Value | None = None
    p: float = 0.0


def attention(query: Value, key: Value, value: Value, setting: Setting) -> Value:
    """The mean of values for each query. The arguments have axes (batch, heads, length, width) and one dtype."""
    if _is_plain(query, key, value, setting):
        return plain_attention(query, key, value, setting)
    batch, heads, queries, _ = query.shape
    assert isinstance(heads, int)
    q, k, v = (reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])) for x in (query, key, value))
    mask = () if setting.mask is None else (_turned_mask(setting.mask),)
    # not the state itself: its tensor goes on to other numbers before the gradient is taken
    state = () if setting.state is None else (add(setting.state, 0),)
    made = Attention(q, k, v, mask, state, heads, setting.causal, setting.scale, setting.p)
    means, _ = made.parts(made)
    return cast(reshape(means, (batch, heads, queries, value.shape[-1])), query.dtype)


def _is_plain(query: Value, key: Value, value: Value, setting: Setting) -> bool:
    """Whether scores are stored: where sizes vary, queries are few, or the mask itself is to be trained."""
    sizes = [*query.shape, *key.shape, *value.shape]
    tracked = setting.mask is not None and setting.mask.tracked
    return tracked or any(not isinstance(n, int) or n == 0 for n in sizes) or least(query.shape[2]) < FEWEST_QUERIES


def _turned_mask(mask: Value) -> Value:
    """With queries beside each other, as the kernel has them."""
    return transpose(mask if mask.dtype is bool_ else widened(mask), -1, -2)


def plain_attention(query: Value, key: Value, value: Value, setting: Setting) -> Value:
    """The formula as it is written, with all scores in memory."""
    (batch, heads, queries, width), (_, few, keys, _) = query.shape, key.shape
    share = quotient(heads, few)
    assert share is not None
    grouped = (batch, few, share * queries, width)
    scores = matmul(mul(widened(reshape(query, grouped)), setting.scale), transpose(widened(key)))
    weights = _softmax(_masked(reshape(scores, (batch, heads, queries, keys)), setting))
    if setting.state is not None:
        weights = where(kept_pairs(setting, weights.shape), mul(weights, 1 / (1 - setting.p)), 0.0)
    weights = reshape(weights, (batch, few, grouped[2], keys))
    means = matmul(weights, widened(value))
    return cast(reshape(means, (batch, heads, queries, value.shape[-1])), query.dtype)


def kept_pairs(setting: Setting, shape: Shape) -> Value:
    """Which pairs dropout keeps, if there is any."""
    assert setting.state is not None
    return bernoulli(setting.state, 1 - setting.p, shape)


def _masked(scores: Value, setting: Setting) -> Value:
    none = float("-inf")
    if setting.mask is not None:
        mask = setting.mask
        scores = where(mask, scores, none) if mask.dtype is bool_ else add(scores, cast(mask, scores.dtype))
    if setting.causal:
        scores = where(met_before(scores.shape, scores.device), scores, none)
    return scores


def met_before(shape: Shape, device: str) -> Value:
    """Which keys (last axis) stand no later than the query (the axis before it)."""
    queries, keys = shape[-2:]
    return ge(reshape(positions(queries, device), (queries, 1)), positions(keys, device))


def _softmax(scores: Value) -> Value:
    """Over the last axis; zeros where a query meets no key."""
    if product(scores.shape[-1:]) == 0:
        return scores
    most = detach(amax(scores, -1, keepdim=True))
    powers = exp(sub(scores, where(eq(most, float("-inf")), 0.0, most)))
    total = reduce_sum(powers, -1, keepdim=True)
    return div(powers, where(eq(total, 0.0), 1.0, total))
