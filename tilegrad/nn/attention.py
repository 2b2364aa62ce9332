"""Attention with several heads, as a layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

from ..errors import ArgumentError, ShapeError
from ..functions.creation import empty, zeros
from ..functions.joining import cat
from ..tensor import Tensor
from . import functional, init
from .layers import Linear
from .module import Module
from .parameter import Parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Queries, keys and values are mapped to `num_heads` heads, which attend beside each other, and are joined again.

    Masks are PyTorch's: in a bool mask, True takes a pair (or a key) out; numbers are added to the scores. The weights
    that come beside the result cost nothing unless they are read. Where a query meets no key, its mean is 0.

    >>> import tilegrad as tg
    >>> attention = tg.nn.MultiheadAttention(32, 4, batch_first=True)
    >>> x = tg.ones(2, 10, 32)
    >>> y, weights = attention(x, x, x)
    >>> y.shape, weights.shape
    ((2, 10, 32), (2, 10, 10))
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ArgumentError(
                f"MultiheadAttention: {num_heads} heads cannot share embed_dim={embed_dim}: it must be a multiple"
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim

        def parameter(present: bool, *shape: int) -> Parameter | None:
            return Parameter(empty(*shape, device=device, dtype=dtype)) if present else None

        same = self._qkv_same_embed_dim
        widths = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        for name, width in widths.items():
            self.register_parameter(f"{name}_proj_weight", parameter(not same, embed_dim, width))
        self.register_parameter("in_proj_weight", parameter(same, 3 * embed_dim, embed_dim))
        self.register_parameter("in_proj_bias", parameter(bias, 3 * embed_dim))
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, parameter(add_bias_kv, 1, 1, embed_dim))
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None and self.out_proj.bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result, and the weights (of all heads, or their mean), if they are wanted.

        `is_causal` says that `attn_mask` is the triangle that lets a query meet the keys up to its own place.
        """
        if is_causal and attn_mask is None:
            raise ArgumentError("MultiheadAttention: is_causal says what attn_mask is: give the mask too")
        batched = query.dim() == 3
        self._check(query, key, value)
        q, k, v = self._heads(query, key, value)
        mask = self._mask(q, k, key_padding_mask, None if is_causal and not need_weights else attn_mask)
        causal = is_causal and not need_weights
        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights and p:
            weights = functional.dropout(_weights(q, k, mask), p)
            heads = weights @ v
        else:
            heads = _attend(q, k, v, mask, p, causal)
            weights = _weights(q, k, mask) if need_weights else None
        order = (0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3)
        joined = heads.permute(*order).flatten(2)
        output = self.out_proj(joined if batched else joined.squeeze(0 if self.batch_first else 1))
        if weights is None:
            return output, None
        weights = weights.mean(1) if average_attn_weights else weights
        return output, weights if batched else weights.squeeze(0)

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        given = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
        if query.dim() not in (2, 3) or key.dim() != query.dim() or value.dim() != query.dim():
            raise ShapeError(f"MultiheadAttention: {given}: all need 3 axes (2 without a batch)")
        widths = (query.shape[-1], key.shape[-1], value.shape[-1])
        if widths != (self.embed_dim, self.kdim, self.vdim):
            raise ShapeError(
                f"MultiheadAttention: {given}: their last axes must be {self.embed_dim}, {self.kdim} and {self.vdim}"
            )
        if key.shape[:-1] != value.shape[:-1]:
            raise ShapeError(f"MultiheadAttention: {given}: there must be as many keys as values")

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values with the axes (batch, heads, length, width)."""
        q, k, v = self._projected(query, key, value)
        if self.bias_k is not None and self.bias_v is not None:
            k, v = self._extended(k, self.bias_k), self._extended(v, self.bias_v)
        if self.add_zero_attn:
            zero = zeros(1, 1, self.embed_dim, dtype=k.dtype, device=k.device)
            k, v = self._extended(k, zero), self._extended(v, zero)
        order = (0, 2, 1, 3) if self.batch_first else (1, 2, 0, 3)
        split = [x.unflatten(-1, (self.num_heads, self.head_dim)).permute(*order) for x in (q, k, v)]
        return split[0], split[1], split[2]

    def _extended(self, x: Tensor, last: Tensor) -> Tensor:
        """With one more key (or value) that belongs to no place."""
        axis = 1 if self.batch_first else 0
        return cat([x, last.expand(*[1 if n == axis else x.shape[n] for n in range(3)])], axis)

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> Sequence[Tensor]:
        """By one product where they are the same, as in self-attention."""
        weight, bias, width = self.in_proj_weight, self.in_proj_bias, self.embed_dim
        axis = 0 if self.batch_first else 1

        def batched(x: Tensor) -> Tensor:
            return x if x.dim() == 3 else x.unsqueeze(axis)

        if weight is not None and query is key and key is value:
            return functional.linear(batched(query), weight, bias).chunk(3, -1)
        biases: Sequence[Tensor | None] = (None, None, None) if bias is None else bias.chunk(3)
        weights: Sequence[Tensor]
        if weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif key is value:
            both = functional.linear(batched(key), weight[width:], None if bias is None else bias[width:])
            return (functional.linear(batched(query), weight[:width], biases[0]), *both.chunk(2, -1))
        else:
            weights = weight.chunk(3)
        three = zip((query, key, value), weights, biases, strict=True)
        return tuple([functional.linear(batched(x), w, b) for x, w, b in three])

    def _mask(self, q: Tensor, k: Tensor, padding: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """One mask, in which True (or 0) is a pair that meets."""
        batch, heads, queries, keys = (*q.shape[:3], k.shape[2])
        added = keys - (self.bias_k is not None) - self.add_zero_attn
        parts = []
        if mask is not None:
            known = [(queries, added), (batch * heads, queries, added)]
            if tuple(mask.shape) not in known:
                wanted = f"it must be {known[0]} or {known[1]}"
                raise ShapeError(f"MultiheadAttention: attn_mask has the shape {tuple(mask.shape)}: {wanted}")
            parts.append(mask if mask.dim() == 2 else mask.reshape(batch, heads, queries, added))
        if padding is not None:
            if tuple(padding.shape) not in [(batch, added), (added,)]:
                raise ShapeError(
                    f"MultiheadAttention: key_padding_mask has the shape {tuple(padding.shape)}: it must be "
                    f"{(batch, added)}"
                )
            parts.append(padding.reshape(-1, 1, 1, added))
        return _joined(parts, keys - added)


def _joined(parts: list[Tensor], more: int) -> Tensor | None:
    """Several masks as one; `more` keys behind meet all queries."""
    if not parts:
        return None
    if all(not x.is_floating_point() for x in parts):
        out = parts[0] if len(parts) == 1 else parts[0] | parts[1]
        met = ~out.bool()
        return met if not more else functional.pad(met, (0, more), value=True)
    dtype = next(x.dtype for x in parts if x.is_floating_point())
    numbers = [
        x if x.is_floating_point() else zeros(*x.shape, dtype=dtype, device=x.device).masked_fill(x, float("-inf"))
        for x in parts
    ]
    total = numbers[0] if len(numbers) == 1 else numbers[0] + numbers[1]
    return total if not more else functional.pad(total, (0, more))


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, causal: bool) -> Tensor:
    if causal and mask is not None:  # padding beside the triangle
        triangle = functional.causal_mask(q.shape[-2], k.shape[-2], q.device)
        mask = mask & triangle if not mask.is_floating_point() else mask.masked_fill(~triangle, float("-inf"))
        causal = False
    return functional.scaled_dot_product_attention(q, k, v, mask, p, causal)


def _weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """The softmax of all scores."""
    scores = (q * (1 / sqrt(q.shape[-1]))) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores + mask if mask.is_floating_point() else scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1)
