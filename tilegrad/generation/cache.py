"""Caches of keys and values: one slot for each request of a batch, written in place, with lengths as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import signature
from math import prod
from typing import Any

from ..autograd.modes import no_grad
from ..errors import ArgumentError, ShapeError
from ..functions.creation import arange, empty, zeros
from ..ir.dtype import int64
from ..tensor import Tensor
from .kernels import append, attend, attend_one

KEYS_PER_BLOCK = 64
"""Keys of a step of the loop over a cache, for several queries, or on devices that run many instances."""
KEYS_IN_CACHE = 16
"""The same for one query elsewhere: the sums of so many keys stay in the first cache."""
QUERIES_PER_INSTANCE = 16
"""New tokens that share the keys which an instance reads."""


@dataclass(frozen=True)
class LayerType:
    """Type of the keys and values that a layer keeps of a token."""

    heads: int
    width: int
    dtype: Any
    device: Any


class KeyValueCache:
    """Keys and values of all layers of a model, for some requests at a time.

    `model(tokens, cache=view)` is called on placeholders once to find how many layers it has and what they keep.
    """

    def __init__(self, model: Any, slots: int, capacity: int, device: Any = None) -> None:
        self.slots, self.capacity = slots, capacity
        require_cache(model)
        probe = LayerProbe(zeros(1, dtype=int64, device=device), 1)
        with no_grad():
            self.vocabulary = scores_of(model, zeros(1, 1, dtype=int64, device=device), probe).shape[-1]
        if not probe.layers:
            raise ArgumentError(
                f"{type(model).__name__} does not attend to its cache: it must call cache.attend(query, key, value) in "
                "each layer of attention"
            )
        self.layers = probe.layers
        self.keys, self.values = self._allocate(), self._allocate()

    def _allocate(self) -> list[Tensor]:
        sizes = [(self.slots, t.heads, self.capacity, t.width) for t in self.layers]
        made = [zeros(n, dtype=t.dtype, device=t.device) for n, t in zip(sizes, self.layers, strict=True)]
        return [x.realize() for x in made]

    @property
    def bytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(prod(x.shape) * x.dtype.itemsize for x in (*self.keys, *self.values))

    def view(self, slots: Tensor, positions: Tensor, length: int, last: Tensor | None = None) -> CacheView:
        """Return what a model sees: rows of `length` new tokens in these slots, from these positions on."""
        return CacheView(slots, positions, length, last, self)


@dataclass
class CacheView:
    """The cache as a model sees it, in one call: `attend` is called once a layer, always in the same order."""

    slots: Tensor
    starts: Tensor
    """Position of the first new token of each row."""
    length: int
    kept: Tensor | None
    """Number of the new token in each row whose scores are wanted; None: all."""
    cache: Any
    layer: int = field(default=0)

    @property
    def positions(self) -> Tensor:
        """Position of each new token: (batch, length). Those of padding after a prompt stay within the capacity."""
        found = self.starts.unsqueeze(1) + arange(self.length, device=self.starts.device)
        return found if self.length == 1 else found.clamp(max=self.capacity - 1)

    @property
    def capacity(self) -> int:
        """Positions of a slot."""
        return int(self.cache.capacity)

    def last(self, x: Tensor) -> Tensor:
        """Select the tokens whose scores are wanted, from (batch, length, width): the head can skip the others."""
        if self.kept is None or self.length == 1:
            return x
        index = self.kept.view(-1, 1, 1).expand(x.shape[0], 1, x.shape[2])
        return x.gather(1, index)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float | None = None) -> Tensor:
        """Append keys and values, and attend to all that the cache has, each token to those up to its own position.

        Shapes are (batch, heads, length, width); several heads of queries may share one of keys.
        """
        given = _checked(query, key, value, self.length)
        factor = query.shape[-1] ** -0.5 if scale is None else float(scale)
        return self._attended(query, key, value, given, factor)

    def _attended(self, query: Tensor, key: Tensor, value: Tensor, given: LayerType, scale: float) -> Tensor:
        if self.layer == len(self.cache.layers) or self.cache.layers[self.layer] != given:
            raise ShapeError(
                f"layer {self.layer} of the model attends with {given}, but the cache was made for {self.cache.layers}"
            )
        keys, values = self.cache.keys[self.layer], self.cache.values[self.layer]
        self.layer += 1
        # (batch, length, heads, width), as layers compute them
        query, key, value = (x.transpose(1, 2).contiguous() for x in (query, key, value))
        batch, heads = int(query.shape[0]), int(query.shape[2])
        sizes = {"HEADS": given.heads, "WIDTH": given.width, "CAPACITY": self.capacity}
        shared, place = heads // given.heads, (self.slots, self.starts)
        out = empty(query.shape, dtype=query.dtype, device=query.device)
        if self.length == 1:
            operands = (query, key, value, keys, values, *place, out, scale)
            block = KEYS_IN_CACHE if query.device.target.min_instances == 1 else KEYS_PER_BLOCK
            attend_one[(batch, given.heads)](*operands, **sizes, GROUP=shared, BLOCK=block)
        else:
            blocks = -(-self.length // QUERIES_PER_INSTANCE)
            append[(batch, given.heads, blocks)](
                key, value, keys, values, *place, self.length, **sizes, BLOCK=QUERIES_PER_INSTANCE
            )
            attend[(batch, heads, blocks)](
                *(query, keys, values, *place, out, self.length, scale),
                **sizes,
                GROUP=shared,
                ROWS=QUERIES_PER_INSTANCE,
                BLOCK=KEYS_PER_BLOCK,
            )
        return out.transpose(1, 2)


class LayerProbe(CacheView):
    """Record the types of what layers keep. Nothing is computed."""

    def __init__(self, slots: Tensor, length: int) -> None:
        super().__init__(slots, slots, length, None, None)
        self.layers: list[LayerType] = []

    def _attended(self, query: Tensor, key: Tensor, value: Tensor, given: LayerType, scale: float) -> Tensor:
        self.layers.append(given)
        return query + value[:, :1] * 0


def require_cache(model: Any) -> None:
    """Raise an error for a model that cannot be called with a cache."""
    call = getattr(model, "forward", model)
    if not callable(call):
        raise ArgumentError(f"the model is {type(model).__name__}, not a module or function")
    names = signature(call).parameters
    if "cache" not in names and all(p.kind is not p.VAR_KEYWORD for p in names.values()):
        raise ArgumentError(
            f"{type(model).__name__} takes no cache: let it be called as model(tokens, cache=None), and call "
            "cache.attend(query, key, value) in each layer of attention when there is one"
        )


def _checked(query: Tensor, key: Tensor, value: Tensor, length: int) -> LayerType:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if any(x.dim() != 4 or x.shape[2] != length for x in (query, key, value)):
        raise ShapeError(f"cache.attend: {shapes}: give (batch, heads, length, width) for a length of {length}")
    if key.shape != value.shape or query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3]:
        raise ShapeError(f"cache.attend: {shapes}: keys and values must have one shape, and the width of the queries")
    if query.shape[1] % key.shape[1]:
        raise ShapeError(f"cache.attend: {shapes}: {query.shape[1]} heads cannot share {key.shape[1]} heads of keys")
    return LayerType(int(key.shape[1]), int(key.shape[3]), key.dtype, key.device)


def scores_of(model: Any, tokens: Tensor, view: CacheView) -> Tensor:
    """Call a model with a cache; return scores of the shape (batch, length or 1, vocabulary)."""
    scores = model(tokens, cache=view)
    batch, length = tokens.shape
    if not isinstance(scores, Tensor) or scores.dim() != 3 or scores.shape[0] != batch:
        found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ShapeError(
            f"{type(model).__name__} returns {found}: scores must have the shape (batch, length, vocabulary)"
        )
    if scores.shape[1] not in (1, length):
        raise ShapeError(f"{type(model).__name__} returns scores of {scores.shape[1]} tokens for {length}")
    return scores
