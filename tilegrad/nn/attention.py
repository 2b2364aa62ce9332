"""Define multi-head attention as a layer."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from ..functions.creation import empty
from ..tensor import Tensor
from . import init
from .functional.heads import Heads
from .layers import Linear
from .module import Module
from .parameter import Parameter


class MultiheadAttention(Module):
    """Project queries, keys and values to `num_heads` heads, attend in each, and project the result.

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
        cache: Any = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the result and, on request, the attention weights (of all heads, or their mean).

        `is_causal` says that `attn_mask` is the triangle that lets a query meet the keys up to its own place. With a
        cache (`tilegrad.generation`), self-attention appends keys and values to it, and is causal.
        """
        weights: Any = self.in_proj_weight
        if weights is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        heads = Heads(
            self.num_heads,
            self.embed_dim,
            weights,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.out_proj,
            self.dropout if self.training else 0.0,
            self.batch_first,
        )
        if cache is not None:
            is_plain = key_padding_mask is None and (attn_mask is None or is_causal)
            return self._cached(heads, query, is_plain and query is key and key is value, cache), None
        masks = key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
        return heads(query, key, value, *masks)

    def _cached(self, heads: Heads, x: Tensor, is_plain: bool, cache: Any) -> Tensor:
        """Attend to a cache, which knows what each token may meet."""
        if not is_plain or x.dim() != 3 or not self.batch_first or self.bias_k is not None or self.add_zero_attn:
            raise ArgumentError(
                "MultiheadAttention with a cache is causal self-attention of (batch, length, width): it takes one "
                "tensor as query, key and value, batch_first=True, and no masks or keys of its own"
            )
        joined: Tensor = cache.attend(*heads.split(x, x, x)).transpose(1, 2).flatten(2)
        return self.out_proj(joined)  # type: ignore[no-any-return]
