"""Examples of attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.registry import bools, example, floats
from tilegrad.ir.dtype import bfloat16, float32
from tilegrad.ir.graph import Value
from tilegrad.ops.attending import Setting
from tilegrad.ops.attention import Attention, attention
from tilegrad.ops.attention_gradient import AttentionGradient
from tilegrad.ops.broadcasting import reshape
from tilegrad.ops.cast import cast
from tilegrad.ops.tiled_attention import TiledAttention, TiledKeyGradient, TiledQueryGradient
from tilegrad.transform.autodiff import gradients

QUERY, KEY, VALUE = floats(2, 2, 9, 3), floats(2, 1, 11, 3), floats(2, 1, 11, 2)
STATE = np.array([7, 12], np.int64)


def torch_attention(t: Any, *given: Any, **options: Any) -> Any:
    return t.nn.functional.scaled_dot_product_attention(*given, scale=0.5, enable_gqa=True, **options)


def attend(query: Value, key: Value, value: Value, mask: Value | None = None) -> Value:
    return attention(query, key, value, Setting(mask, scale=0.5))


def attend_before(query: Value, key: Value, value: Value) -> Value:
    return attention(query, key, value, Setting(causal=True, scale=0.5))


def attend_some(query: Value, key: Value, value: Value, state: Value) -> Value:
    return attention(query, key, value, Setting(scale=0.5, state=state, p=0.3))


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


def tiled(query: Value, key: Value, value: Value, causal: bool = True) -> Value:
    """As on a device with units for tiles."""
    q, k, v = (reshape(cast(x, bfloat16), (-1, *x.shape[2:])) for x in (query, key, value))
    made = TiledAttention(q, k, v, (), (), int(query.shape[1]), causal, 0.125, 0.0, "highest")  # type: ignore[arg-type]
    return cast(reshape(made.parts(made)[0], query.shape), float32)


def tiled_gradient(number: int) -> Any:
    def gradient(query: Value, key: Value, value: Value, upstream: Value) -> Value:
        (share,) = gradients([tiled(query, key, value)], [upstream], [(query, key, value)[number]])
        assert share is not None
        return share

    return gradient


TILES = floats(1, 2, 128, 64), floats(1, 1, 64, 64), floats(1, 1, 64, 64, seed=1)
causal = lambda t, *x: t.nn.functional.scaled_dot_product_attention(*x, is_causal=True, enable_gqa=True)  # noqa: E731
example(TiledAttention, tiled, *TILES, torch=causal, gradient="torch", tolerance=3e-2)
example(TiledQueryGradient, tiled_gradient(0), *TILES, floats(1, 2, 128, 64), gradient=False, tolerance=3e-2)
example(TiledKeyGradient, tiled_gradient(1), *TILES, floats(1, 2, 128, 64), gradient=False, tolerance=3e-2)
example(TiledKeyGradient, tiled_gradient(2), *TILES, floats(1, 2, 128, 64), gradient=False, tolerance=3e-2)
