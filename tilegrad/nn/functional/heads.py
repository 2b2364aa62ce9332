"""Define multi-head attention as a function: projections, attention per head, and the output projection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt
from typing import NamedTuple

from ...errors import ArgumentError, DTypeError, ShapeError
from ...functions.creation import zeros
from ...functions.joining import cat
from ...ir.dtype import bool_
from ...tensor import Tensor
from .attending import causal_mask, scaled_dot_product_attention
from .distances import linear
from .dropouts import dropout
from .paddings import pad

FUNCTION = "multi_head_attention_forward"


class Heads(NamedTuple):
    """The parameters and settings of multi-head attention."""

    num_heads: int
    embed_dim: int
    weights: Tensor | Sequence[Tensor]
    """Projections of queries, keys and values: stacked, or three where the widths differ."""
    bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None
    add_zero_attn: bool
    out: Callable[[Tensor], Tensor]
    """Output projection."""
    p: float
    """Dropout probability of the attention weights."""
    batch_first: bool = False
    static_k: Tensor | None = None
    static_v: Tensor | None = None
    op: str = "MultiheadAttention"

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        need_weights: bool,
        attn_mask: Tensor | None,
        average_attn_weights: bool,
        is_causal: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the result and, on request, the attention weights of all heads or their mean."""
        if is_causal and attn_mask is None:
            raise ArgumentError(f"{self.op}: is_causal says what attn_mask is: give the mask too")
        batched = query.dim() == 3
        self.check(query, key, value)
        q, k, v = self.split(query, key, value)
        causal = is_causal and not need_weights
        mask = self.mask(q, k, key_padding_mask, None if causal else attn_mask)
        weights = None
        if need_weights and self.p:
            weights = dropout(_weights(q, k, mask), self.p)
            heads = weights @ v
        else:
            heads = _attend(q, k, v, mask, self.p, causal)
            weights = _weights(q, k, mask) if need_weights else None
        order = (0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3)
        joined = heads.permute(*order).flatten(2)
        output = self.out(joined if batched else joined.squeeze(0 if self.batch_first else 1))
        if weights is None:
            return output, None
        weights = weights.mean(1) if average_attn_weights else weights
        return output, weights if batched else weights.squeeze(0)

    def check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        given = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
        if query.dim() not in (2, 3) or key.dim() != query.dim() or value.dim() != query.dim():
            raise ShapeError(f"{self.op}: {given}: all need 3 axes (2 without a batch)")
        separate = not isinstance(self.weights, Tensor)
        known = tuple([w.shape[-1] for w in self.weights]) if separate else (self.embed_dim,) * 3
        if (query.shape[-1], key.shape[-1], value.shape[-1]) != known:
            raise ShapeError(f"{self.op}: {given}: their last axes must be {known[0]}, {known[1]} and {known[2]}")
        batch = 0 if self.batch_first else 1
        if query.dim() == 3 and query.shape[batch] != key.shape[batch]:
            raise ShapeError(f"{self.op}: {given}: the batches of queries and keys must be equal")
        if key.shape[:-1] != value.shape[:-1]:
            raise ShapeError(f"{self.op}: {given}: there must be as many keys as values")

    def split(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split queries, keys and values into heads: (batch, heads, length, width)."""
        q, k, v = self.projected(query, key, value)
        if self.bias_k is not None and self.bias_v is not None:
            k, v = self.extended(k, self.bias_k), self.extended(v, self.bias_v)
        order = (0, 2, 1, 3) if self.batch_first else (1, 2, 0, 3)
        width = self.embed_dim // self.num_heads
        q, k, v = [x.unflatten(-1, (self.num_heads, width)).permute(*order) for x in (q, k, v)]
        k = k if self.static_k is None else self.static(self.static_k, k)
        v = v if self.static_v is None else self.static(self.static_v, v)
        if self.add_zero_attn:
            zero = zeros(*k.shape[:2], 1, width, dtype=k.dtype, device=k.device)
            k, v = cat([k, zero], 2), cat([v, zero], 2)
        return q, k, v

    def static(self, given: Tensor, instead_of: Tensor) -> Tensor:
        """Return keys or values that were projected before: (batch * heads, length, width)."""
        batch, heads, _, width = instead_of.shape
        if given.dim() != 3 or (given.shape[0], given.shape[2]) != (batch * heads, width):
            raise ShapeError(
                f"{self.op}: keys or values of the shape {tuple(given.shape)} are given for {batch} x {heads} heads "
                f"of {width}: they must be ({batch * heads}, length, {width})"
            )
        return given.unflatten(0, (batch, heads))

    def extended(self, x: Tensor, last: Tensor) -> Tensor:
        """Append one key (or value) that belongs to no position."""
        axis = 1 if self.batch_first else 0
        return cat([x, last.expand(*[1 if n == axis else x.shape[n] for n in range(3)])], axis)

    def projected(self, query: Tensor, key: Tensor, value: Tensor) -> Sequence[Tensor]:
        """Project the inputs, by one product where they are the same, as in self-attention."""
        weights, bias, width = self.weights, self.bias, self.embed_dim
        axis = 0 if self.batch_first else 1

        def batched(x: Tensor) -> Tensor:
            return x if x.dim() == 3 else x.unsqueeze(axis)

        biases: Sequence[Tensor | None] = (None, None, None) if bias is None else bias.chunk(3)
        if isinstance(weights, Tensor):
            if query is key and key is value:
                return linear(batched(query), weights, bias).chunk(3, -1)
            if key is value:
                both = linear(batched(key), weights[width:], None if bias is None else bias[width:])
                return (linear(batched(query), weights[:width], biases[0]), *both.chunk(2, -1))
            weights = weights.chunk(3)
        three = zip((query, key, value), weights, biases, strict=True)
        return tuple([linear(batched(x), w, b) for x, w, b in three])

    def mask(self, q: Tensor, k: Tensor, padding: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """Return one mask, in which True (or 0) marks pairs that attend."""
        batch, heads, queries, keys = (*q.shape[:3], k.shape[2])
        added = keys - (self.bias_k is not None) - self.add_zero_attn
        parts = []
        for name, given in (("attn_mask", mask), ("key_padding_mask", padding)):
            if given is not None and not given.dtype.is_float and given.dtype is not bool_:
                raise DTypeError(f"{self.op}: {name} has bool or floating-point elements, not {given.dtype.name}")
        if mask is not None:
            known = [(queries, added), (batch * heads, queries, added)]
            if tuple(mask.shape) not in known:
                wanted = f"it must be {known[0]} or {known[1]}"
                raise ShapeError(f"{self.op}: attn_mask has the shape {tuple(mask.shape)}: {wanted}")
            parts.append(mask if mask.dim() == 2 else mask.reshape(batch, heads, queries, added))
        if padding is not None:
            if tuple(padding.shape) not in [(batch, added), (added,)]:
                raise ShapeError(
                    f"{self.op}: key_padding_mask has the shape {tuple(padding.shape)}: it must be {(batch, added)}"
                )
            parts.append(padding.reshape(-1, 1, 1, added))
        return _joined(parts, keys - added)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute `MultiheadAttention` with given weights; inputs are (length, batch, width).

    >>> import tilegrad as tg
    >>> x, weights = tg.ones(5, 2, 8), (tg.ones(24, 8), tg.zeros(24))
    >>> y, _ = multi_head_attention_forward(x, x, x, 8, 2, *weights, None, None, False, 0.0, tg.ones(8, 8), tg.zeros(8))
    >>> y.shape
    (5, 2, 8)
    """
    if query.shape[-1] != embed_dim_to_check or num_heads < 1 or embed_dim_to_check % num_heads:
        raise ShapeError(
            f"{FUNCTION}: query {tuple(query.shape)}, embed_dim_to_check={embed_dim_to_check}, num_heads={num_heads}: "
            "the last axis of the query must be embed_dim_to_check, and heads must share it evenly"
        )
    three = [w for w in (q_proj_weight, k_proj_weight, v_proj_weight) if w is not None]
    weights = _weights_of(three if use_separate_proj_weight else in_proj_weight)
    out = partial(linear, weight=out_proj_weight, bias=out_proj_bias)
    p = dropout_p if training else 0.0
    heads = Heads(
        num_heads, embed_dim_to_check, weights, in_proj_bias, bias_k, bias_v, add_zero_attn, out, p, False, static_k,
        static_v, FUNCTION,
    )  # fmt: skip
    masks = key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
    return heads(query, key, value, *masks)


def _weights_of(given: Tensor | list[Tensor] | None) -> Tensor | list[Tensor]:
    if given is None:
        raise ArgumentError(f"{FUNCTION}: use_separate_proj_weight=False needs in_proj_weight")
    if isinstance(given, list) and len(given) != 3:
        wanted = "q_proj_weight, k_proj_weight and v_proj_weight"
        raise ArgumentError(f"{FUNCTION}: use_separate_proj_weight=True needs {wanted}")
    return given


def _joined(parts: list[Tensor], more: int) -> Tensor | None:
    """Combine several masks; `more` appended keys attend to all queries."""
    if not parts:
        return None
    if all(not x.is_floating_point() for x in parts):
        out = parts[0] if len(parts) == 1 else parts[0] | parts[1]
        met = ~out.bool()
        return met if not more else pad(met, (0, more), value=True)
    dtype = next(x.dtype for x in parts if x.is_floating_point())
    numbers = [
        x if x.is_floating_point() else zeros(*x.shape, dtype=dtype, device=x.device).masked_fill(x, float("-inf"))
        for x in parts
    ]
    total = numbers[0] if len(numbers) == 1 else numbers[0] + numbers[1]
    return total if not more else pad(total, (0, more))


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, causal: bool) -> Tensor:
    if causal and mask is not None:  # padding beside the triangle
        triangle = causal_mask(q.shape[-2], k.shape[-2], q.device)
        mask = mask & triangle if not mask.is_floating_point() else mask.masked_fill(~triangle, float("-inf"))
        causal = False
    return scaled_dot_product_attention(q, k, v, mask, p, causal)


def _weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Compute the softmax of all scores."""
    scores = (q * (1 / sqrt(q.shape[-1]))) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores + mask if mask.is_floating_point() else scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1)
