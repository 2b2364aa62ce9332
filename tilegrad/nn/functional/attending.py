"""Define attention as functions."""

from __future__ import annotations

from math import sqrt
from typing import Any

from ...errors import ArgumentError, DTypeError, ShapeError
from ...functions.autocasting import lowered, product_precision
from ...functions.creation import arange
from ...functions.promotion import value_of
from ...ir.dtype import bool_
from ...ir.graph import Value
from ...ir.size import Dim, Shape, product
from ...lazy.handle import wrap
from ...lazy.layout import lay, layout, strides_of
from ...ops.attention import attention
from ...ops.attention_shapes import AttentionMask
from ...ops.broadcasting import broadcast_shapes, expand, reshape, shown
from ...random import generator_of
from ...tensor import Tensor

OP = "scaled_dot_product_attention"


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute softmax(query @ key.T * scale + mask) @ value, without storing the scores.

    Shapes: query (..., heads, L, E), key (..., heads, S, E), value (..., heads, S, V). Scores (L, S) are not stored. A
    mask is bool (True: takes part) or is added to the scores. Where a query meets no key, the result is 0.

    >>> import tilegrad as tg
    >>> q, k, v = tg.ones(2, 8, 16, 4), tg.ones(2, 8, 32, 4), tg.ones(2, 8, 32, 6)
    >>> tg.nn.functional.scaled_dot_product_attention(q, k, v).shape
    (2, 8, 16, 6)
    """
    q, k, v = lowered([value_of(query, OP), value_of(key, OP), value_of(value, OP)])
    _check(q, k, v, dropout_p)
    if is_causal and attn_mask is not None:
        raise ArgumentError(f"{OP}: attn_mask and is_causal=True exclude each other; put the triangle in the mask")
    batch, heads, few = _axes(q, k, v, enable_gqa)
    mask = None if attn_mask is None else _mask(value_of(attn_mask, OP), q, k, batch, heads)
    state = None
    if dropout_p:
        state = generator_of(q.device).draw(product((*batch, heads, q.shape[-2], k.shape[-2])))
    scaling = 1 / sqrt(_number(q.shape[-1]) or 1) if scale is None else float(scale)
    setting = AttentionMask(mask, is_causal, scaling, state, dropout_p, product_precision(q.dtype))
    made = attention(_flat(q, batch, heads), _flat(k, batch, few), _flat(v, batch, few), setting)
    leading: Shape = (*batch, heads) if q.type.rank > 2 else ()
    result = wrap(reshape(made, (*leading, q.shape[-2], v.shape[-1])))
    whole = q.type.rank == 4 and result.shape == q.shape and not dropout_p
    if whole and query._moves and all(layout(x).strides[-1] == 1 for x in (query, key, value)):
        return lay(result, strides_of(query))
    return result


def causal_mask(queries: int, keys: int, device: Any = None) -> Tensor:
    """Return the mask of `is_causal=True`: true for keys at or before the query.

    >>> causal_mask(2, 3).int()
    tensor([[1, 0, 0],
            [1, 1, 0]], dtype=tilegrad.int32)
    """
    return arange(queries, device=device).unsqueeze(-1) >= arange(keys, device=device)


def _check(q: Value, k: Value, v: Value, p: float) -> None:
    shapes = f"query {shown(q.shape)}, key {shown(k.shape)}, value {shown(v.shape)}"
    if min(q.type.rank, k.type.rank, v.type.rank) < 2:
        raise ShapeError(f"{OP}: {shapes}: each needs at least the axes (length, width)")
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError(f"{OP}: {shapes}: queries and keys must have the same width (their last axis)")
    if k.shape[-2] != v.shape[-2]:
        raise ShapeError(f"{OP}: {shapes}: there must be as many keys as values (their last axis but one)")
    if not q.dtype.is_float or q.dtype is not k.dtype or q.dtype is not v.dtype:
        found = f"{q.dtype.name}, {k.dtype.name} and {v.dtype.name}"
        raise DTypeError(f"{OP}: query, key and value must have one floating-point type, not {found}; convert with .to")
    if not 0 <= p < 1:
        raise ArgumentError(f"{OP}: dropout_p={p}: give a probability from 0 to below 1")


def _axes(q: Value, k: Value, v: Value, grouped: bool) -> tuple[Shape, Dim, Dim]:
    """Return the leading axes, the number of heads of queries, and that of keys and values."""
    heads = [x.shape[-3] if x.type.rank > 2 else 1 for x in (q, k, v)]
    batch = broadcast_shapes(*(x.shape[:-3] for x in (q, k, v)), op=OP)
    if heads[0] == heads[1] == heads[2]:
        return batch, heads[0], heads[0]
    few = broadcast_shapes((heads[1],), (heads[2],), op=OP)[0]
    if grouped:
        if not all(isinstance(n, int) for n in heads) or heads[1] != heads[2] or _number(heads[0]) % _number(few):
            raise ShapeError(
                f"{OP}: {heads[0]} heads of queries cannot share {heads[1]} heads of keys and {heads[2]} of values: "
                "these must be as many, and divide those"
            )
        return batch, heads[0], few
    met = broadcast_shapes((heads[0],), (few,), op=f"{OP} (heads; enable_gqa=True lets several queries share a key)")
    return batch, met[0], met[0]


def _flat(x: Value, batch: Shape, heads: Dim) -> Value:
    """Reshape to the axes (batch, heads, length, width)."""
    whole = (*batch, heads, *x.shape[-2:])
    x = x if x.shape == whole else expand(x, whole)
    return reshape(x, (product(batch), heads, *x.shape[-2:]))


def _mask(mask: Value, q: Value, k: Value, batch: Shape, heads: Dim) -> Value:
    """Reshape to the axes (batch, heads, queries, keys), some of which have size 1."""
    if mask.dtype is not bool_ and not mask.dtype.is_float:
        raise DTypeError(f"{OP}: attn_mask is bool or floating-point, not {mask.dtype.name}; convert it: mask.bool()")
    whole = (*batch, heads, q.shape[-2], k.shape[-2])
    if mask.type.rank > max(len(whole), 2) or broadcast_shapes(mask.shape, whole, op=OP) != whole:
        raise ShapeError(f"{OP}: a mask of the shape {shown(mask.shape)} does not fit scores of {shown(whole)}")
    shape = (1,) * (len(whole) - mask.type.rank) + mask.shape
    leading = shape[:-3]
    if any(n != 1 for n in leading) and leading != batch:
        return reshape(expand(reshape(mask, shape), (*batch, *shape[-3:])), (product(batch), *shape[-3:]))
    return reshape(mask, (product(leading), *shape[-3:]))


def _number(extent: Dim) -> Any:
    """Return a size that must be known."""
    if isinstance(extent, int):
        return extent
    raise ShapeError(f"{OP}: the width of heads, and their number where keys are shared, must not vary")
