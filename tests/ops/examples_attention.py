"""Examples of attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.registry import bools, example, floats
from tilegrad.errors import ShapeError
from tilegrad.ir.dtype import bfloat16, float32
from tilegrad.ir.graph import Value
from tilegrad.ops.attention import Attention, attention
from tilegrad.ops.attention_gradient import AttentionGradient
from tilegrad.ops.attention_shapes import AttentionMask
from tilegrad.ops.cast import cast, detach
from tilegrad.ops.tiled_attention import (
    TiledAttention,
    TiledKeyGradient,
    TiledQueryGradient,
    may_be_tiled,
    tiled_attention,
)
from tilegrad.transform.autodiff import gradients

QUERY, KEY, VALUE = floats(2, 2, 9, 3), floats(2, 1, 11, 3), floats(2, 1, 11, 2)
STATE = np.array([7, 12], np.int64)


def torch_attention(t: Any, *given: Any, **options: Any) -> Any:
    return t.nn.functional.scaled_dot_product_attention(*given, scale=0.5, enable_gqa=True, **options)


def attend(query: Value, key: Value, value: Value, mask: Value | None = None) -> Value:
    return attention(query, key, value, AttentionMask(mask, scale=0.5))


def attend_before(query: Value, key: Value, value: Value) -> Value:
    return attention(query, key, value, AttentionMask(causal=True, scale=0.5))


def attend_some(query: Value, key: Value, value: Value, state: Value) -> Value:
    return attention(query, key, value, AttentionMask(scale=0.5, state=state, p=0.3))


def gradient_of_query(query: Value, key: Value, value: Value, upstream: Value) -> Value:
    (share,) = gradients([attend(query, key, value)], [upstream], [query])
    assert share is not None
    return share


example(Attention, attend, QUERY, KEY, VALUE, torch=torch_attention)
example(Attention, attend_before, QUERY, KEY, VALUE, torch=lambda t, *x: torch_attention(t, *x, is_causal=True))
example(
    Attention,
    attend,
    QUERY,
    KEY,
    VALUE,
    bools(2, 1, 9, 11),
    torch=lambda t, q, k, v, mask: torch_attention(t, q, k, v, attn_mask=mask),
)
example(Attention, attend_some, QUERY, KEY, VALUE, STATE)
example(Attention, attend, floats(1, 2, 20, 4), floats(1, 2, 140, 4), floats(1, 2, 140, 4), gradient=False)
example(AttentionGradient, gradient_of_query, QUERY, KEY, VALUE, floats(2, 2, 9, 2), gradient=False)


def by_tiles(query: Value, key: Value, value: Value) -> Value:
    """Attention as devices with tensor cores compute it."""
    return in_tiles([cast(x, bfloat16) for x in (query, key, value)], AttentionMask(causal=True, scale=0.125))


def by_tiles_alone(query: Value, key: Value, value: Value) -> Value:
    """The same where nobody wants a gradient."""
    return in_tiles([detach(cast(x, bfloat16)) for x in (query, key, value)], AttentionMask(scale=0.125))


def in_tiles(given: list[Value], setting: AttentionMask) -> Value:
    if not may_be_tiled(*given, setting):
        raise ShapeError("sizes that vary")
    return cast(tiled_attention(*given, setting), float32)


def tiled_gradient(number: int) -> Any:
    def gradient(query: Value, key: Value, value: Value, upstream: Value) -> Value:
        (share,) = gradients([by_tiles(query, key, value)], [upstream], [(query, key, value)[number]])
        assert share is not None
        return share

    return gradient


def torch_gradient(number: int) -> Any:
    def gradient(t: Any, *given: Any) -> Any:
        *inputs, upstream = [x.detach() for x in given]
        inputs = [x.requires_grad_(True) for x in inputs]
        return t.autograd.grad(causal(t, *inputs), inputs, upstream)[number].detach()

    return gradient


def causal(t: Any, *given: Any) -> Any:
    return t.nn.functional.scaled_dot_product_attention(*given, is_causal=True, enable_gqa=True)


TILES = floats(1, 2, 128, 64), floats(1, 1, 64, 64), floats(1, 1, 64, 64, seed=1)
LOW: dict[str, Any] = {"gradient": False, "tolerance": 3e-2}
example(TiledAttention, by_tiles, *TILES, torch=causal, **LOW)
example(TiledAttention, by_tiles_alone, *TILES, **LOW)
for number, op in ((0, TiledQueryGradient), (1, TiledKeyGradient), (2, TiledKeyGradient)):
    example(op, tiled_gradient(number), *TILES, floats(1, 2, 128, 64), torch=torch_gradient(number), **LOW)
