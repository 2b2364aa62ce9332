"""Sizes, masks and reference scores shared by attention and its gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..ir.dtype import DType
from ..ir.graph import TensorType, Value
from ..ir.precision import Precision
from ..ir.size import Shape, known
from ..runtime.device import device
from .broadcasting import accumulator, reshape
from .comparison import ge
from .creation import positions
from .opaque import Opaque
from .random import KEY_STEPS, MULTIPLIERS, ROUNDS, bernoulli

TILE_LENGTH = 64
"""Approximate number of queries, and of keys, of a tile: the scores stay in the first two cache levels."""
SHORT_CAUSAL_TILE, MAX_SHORT_CAUSAL = 32, 256
"""Tile length of causal attention, and the number of queries and keys up to which it is used: shorter tiles compute
fewer masked scores.
"""
MAX_REFERENCE_SCORES = 1 << 18
"""Scores that numpy holds at once, several times."""


class AttentionMask(NamedTuple):
    """Mask of attention: the pairs of queries and keys that attend."""

    mask: Value | None = None
    """(batch or 1, heads or 1, queries or 1, keys or 1): bool, or numbers added to the scores."""
    causal: bool = False
    """Whether a query attends only to keys up to its own position."""
    scale: float = 1.0
    state: Value | None = None
    p: float = 0.0
    precision: Precision = "highest"


def kept_pairs(setting: AttentionMask, shape: Shape) -> Value:
    """Return the pairs that dropout keeps, or None without dropout."""
    assert setting.state is not None
    return bernoulli(setting.state, 1 - setting.p, shape)


def causal_mask(shape: Shape, device: str) -> Value:
    """Return which keys (last axis) do not follow the query (the axis before it)."""
    queries, keys = shape[-2:]
    return ge(reshape(positions(queries, device), (queries, 1)), positions(keys, device))


class AttentionOp(Opaque):
    """Base of attention and its gradient.

    Queries are (n, length, width), keys and values (m, ...): each of them serves n / m consecutive queries. The mask
    has keys before queries: (batch or 1, heads or 1, keys or 1, queries or 1), bool (false: the pair is masked) or a
    number added to the score. With a random state, the fraction p of all pairs is dropped.
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
    precision: Precision
    """Precision of float32 products; half precision is multiplied in float32."""

    @property
    def wide(self) -> DType:
        """Element type of the computation."""
        return accumulator(self.query.dtype)

    @property
    def quick_reference(self) -> bool:
        n, _, queries, keys, _, _ = self.sizes
        return n * queries * keys <= MAX_REFERENCE_SCORES

    @property
    def sizes(self) -> AttentionSizes:
        numbers = [known(extent, {}) for extent in (*self.query.shape, *self.value.shape)]
        n, queries, width, m, keys, features = numbers
        return AttentionSizes(n, m, queries, keys, width, features)

    def tile_length(self, extent: int, multiple: int) -> int:
        """Return the tile length of an axis of the operands."""
        short = self.causal and max(self.sizes.queries, self.sizes.keys) <= MAX_SHORT_CAUSAL
        few = short and not device(self.query.device).target.masks_are_cheap
        return tile_length(extent, multiple, SHORT_CAUSAL_TILE if few else TILE_LENGTH)

    def given(self) -> dict[str, TensorType]:
        """Parameters of the kernel."""
        found = {"query": self.query.type, "key": self.key.type, "value": self.value.type}
        optional = {"mask": self.mask, "state": self.state}
        found |= {name: x.type for name, tensors in optional.items() for x in tensors}
        return found | {name: self.__dict__[name].type for name in self.input_fields if name not in found | optional}

    def scores_of(self, query: Any, key: Any, *rest: Any) -> tuple[Any, Any]:
        """Compute all scores and the dropout factors on numpy arrays."""
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
            kept = (drawn < keep_threshold(self.p)).reshape(n, queries, keys)
            factor = np.where(np.swapaxes(kept, 1, 2), 1 / (1 - self.p), 0.0).astype(query.dtype)
        return scores, factor


class AttentionSizes(NamedTuple):
    n: int
    m: int
    queries: int
    keys: int
    width: int
    """Width of queries and keys."""
    features: int
    """Width of values."""


def tile_length(extent: int, multiple: int, most: int = TILE_LENGTH) -> int:
    """Return the tile length of an axis: equal tiles, whose length is a multiple of a number if there are several.

    >>> tile_length(512, 8), tile_length(100, 8), tile_length(257, 8), tile_length(50, 8)
    (64, 56, 56, 50)
    """
    tiles = -(-extent // most)
    return extent if tiles == 1 else -(-extent // (tiles * multiple)) * multiple


def keep_threshold(p: float) -> int:
    """Return the bound below which the upper 24 bits of a random word keep a pair, as in `bernoulli`."""
    return int(np.ceil(np.float64(np.float32(1 - p)) * (1 << 24)))


def philox_numbers(state: Any, count: int) -> Any:
    """Return the first random words of `random.Philox` as a numpy array.

    >>> philox_numbers(np.array([7, 5]), 2)
    array([1454331580, 3447593340], dtype=uint64)
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
