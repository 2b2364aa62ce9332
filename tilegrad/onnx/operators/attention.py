"""Attention, and what transformers have around it."""

from __future__ import annotations

from math import inf
from typing import Any

from ... import functional as tg
from ...ir.dtype import DType, float32
from ...nn import functional as F
from ...tensor import Tensor
from ..problems import OnnxError
from ..rules import Function
from ..tensors import element_type

RAW, CAPPED, BIASED, WEIGHTS = 0, 1, 2, 3
"""What the last result of attention is: scores, soft-capped, with the mask, or after the softmax."""


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """Split the last axis into heads, which come before the positions."""
    return x if x.dim() == 4 else x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def _bias(mask: Tensor | None, scores: Tensor) -> Tensor | None:
    """Return what is added for a mask; keys behind its end are not seen."""
    if mask is None:
        return None
    rest = int(scores.shape[-1]) - int(mask.shape[-1])
    if mask.dtype.kind == "bool":
        added = tg.where(mask, tg.zeros((), dtype=scores.dtype), tg.full((), -inf, dtype=scores.dtype))
    else:
        added = mask.to(scores.dtype)
    return F.pad(added, (0, rest), value=-inf) if rest > 0 else added


def _seen(scores: Tensor, offset: Any, causal: bool, left: int, right: int, lengths: Tensor | None) -> Tensor | None:
    """Return which keys each query may see; the offset counts the keys before the first query."""
    at = tg.arange(scores.shape[-2], device=scores.device).reshape(-1, 1) + offset
    keys = tg.arange(scores.shape[-1], device=scores.device)
    found = [keys <= at] if causal else []
    found += [keys >= at - left] if left >= 0 else []
    found += [keys <= at + right] if right >= 0 else []
    found += [keys < lengths.reshape(-1, 1, 1, 1)] if lengths is not None else []
    if not found:
        return None
    seen: Tensor = found[0]
    for other in found[1:]:
        seen = seen & other
    return seen


def _softmax(scores: Tensor, dtype: DType) -> Tensor:
    """Compute the softmax; a row in which nothing is seen is 0."""
    wide = scores.to(dtype)
    largest = wide.amax(-1, keepdim=True)
    parts = tg.exp(wide - tg.where(largest == -inf, tg.zeros_like(largest), largest))
    total = parts.sum(-1, keepdim=True)
    return (parts / tg.where(total == 0, tg.ones_like(total), total)).to(scores.dtype)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    left_window_size: int = -1,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 0,
    outputs: int = 1,
) -> Any:
    """Compute scaled dot-product attention; past keys and values come before the new ones."""
    flat = q.dim() == 3
    q, k, v = _split_heads(q, q_num_heads), _split_heads(k, kv_num_heads), _split_heads(v, kv_num_heads)
    offset: Any = 0
    if past_key is not None and past_value is not None:
        offset = int(past_key.shape[2])
        k, v = tg.cat([past_key, k], 2), tg.cat([past_value, v], 2)
    elif nonpad_kv_seqlen is not None:
        offset = nonpad_kv_seqlen.reshape(-1, 1, 1, 1) - q.shape[2]
    present = k, v
    groups = int(q.shape[1]) // int(k.shape[1])
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    root = (int(q.shape[-1]) ** -0.5 if scale is None else scale) ** 0.5
    scores = tg.matmul(q * root, (k * root).transpose(2, 3))
    stages = [scores]
    scores = softcap * tg.tanh(scores / softcap) if softcap else scores
    stages.append(scores)
    added = _bias(attn_mask, scores)
    scores = scores if added is None else scores + added
    seen = _seen(scores, offset, bool(is_causal), left_window_size, right_window_size, nonpad_kv_seqlen)
    scores = scores if seen is None else tg.where(seen, scores, tg.full_like(scores, -inf))
    stages.append(scores)
    precision = element_type(softmax_precision).held if softmax_precision else None
    weights = _softmax(scores, precision or (float32 if q.dtype.bits < 32 else q.dtype))
    stages.append(weights)
    y = tg.matmul(weights, v)
    y = y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1) if flat else y
    return (y, *present, stages[qk_matmul_output_mode]) if outputs > 1 else y


def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """Rotate pairs of features by angles that grow with the position."""
    flat = x.dim() == 3
    y = x.reshape(*x.shape[:2], num_heads, -1) if flat else x.transpose(1, 2)
    count = rotary_embedding_dim or int(y.shape[-1])
    rotated, rest = y[..., :count], y[..., count:]
    if position_ids is not None:
        cos_cache, sin_cache = (
            tg.index_select(table, 0, position_ids.reshape(-1).long()).reshape(*position_ids.shape, -1)
            for table in (cos_cache, sin_cache)
        )
    cos, sin = cos_cache.unsqueeze(-2), sin_cache.unsqueeze(-2)
    one, other = (rotated[..., 0::2], rotated[..., 1::2]) if interleaved else tg.chunk(rotated, 2, -1)
    real, imaginary = cos * one - sin * other, sin * one + cos * other
    if interleaved:
        made = tg.stack([real, imaginary], -1).reshape(rotated.shape)
    else:
        made = tg.cat([real, imaginary], -1)
    y = tg.cat([made, rest], -1)
    return y.reshape(x.shape) if flat else y.transpose(1, 2)


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Tensor, Tensor]:
    """Run the recurrence of linear attention: keys write values into a state, queries read it."""
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise OnnxError(f"there is no update rule {update_rule!r}")
    q, k, v = (
        _split_heads(x, heads).to(float32)
        for x, heads in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    groups = q_num_heads // kv_num_heads
    q = q * (scale or int(q.shape[-1]) ** -0.5)
    fade = None if decay is None else tg.exp(_split_heads(decay, kv_num_heads).to(float32))
    rate = None if beta is None else beta.transpose(1, 2).unsqueeze(-1).to(float32)
    if past_state is None:
        state = tg.zeros(*k.shape[:2], k.shape[-1], v.shape[-1], device=q.device)
    else:
        state = past_state.to(float32)
    made = []
    for t in range(int(q.shape[2])):
        state = state if fade is None else state * fade[:, :, t].unsqueeze(-1)
        new = v[:, :, t]
        if rate is not None:
            new = (new - tg.matmul(k[:, :, t].unsqueeze(2), state).squeeze(2)) * rate[:, :, t]
        state = state + k[:, :, t].unsqueeze(-1) * new.unsqueeze(2)
        read = state.repeat_interleave(groups, 1) if groups > 1 else state
        made.append(tg.matmul(q[:, :, t].unsqueeze(2), read))
    y = tg.cat(made, 2).transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)
    return y.to(query.dtype), state.to(query.dtype if past_state is None else past_state.dtype)


def causal_conv_with_state(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, past_state: Tensor | None = None, *, activation: str = "none"
) -> tuple[Tensor, Tensor]:
    """Convolve each channel with what came before; return the last elements for the next call, too."""
    taps = int(weight.shape[2])
    wide = F.pad(x, (taps - 1, 0)) if past_state is None else tg.cat([past_state, x], 2)
    y = F.conv1d(wide, weight, bias, groups=int(x.shape[1]))
    if activation in ("silu", "swish"):
        y = F.silu(y.to(float32)).to(x.dtype)
    elif activation != "none":
        raise OnnxError(f"there is no activation {activation!r}")
    return y, wide[:, :, int(wide.shape[2]) - taps + 1 :]


RULES: dict[str, Function] = {
    "Attention": attention,
    "CausalConvWithState": causal_conv_with_state,
    "LinearAttention": linear_attention,
    "RotaryEmbedding": rotary_embedding,
}
