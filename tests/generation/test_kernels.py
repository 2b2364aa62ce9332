"""The kernels of generation against numpy, with every access checked."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.generation import kernels

SLOTS, HEADS, CAPACITY, WIDTH = 3, 2, 70, 8


def random(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def attended(query: Any, keys: Any, values: Any) -> Any:
    """Attention of queries (length, width), the last of which meets the last key."""
    scores = query @ keys.T / np.sqrt(query.shape[1])
    ahead = np.arange(len(keys)) > np.arange(len(query))[:, None] + len(keys) - len(query)
    powers = np.exp(np.where(ahead, -np.inf, scores - scores.max(1, keepdims=True)))
    return powers / powers.sum(1, keepdims=True) @ values


@pytest.mark.parametrize("shared", [1, 3])
@pytest.mark.parametrize("mode", ["check", "race"])
def test_one_token(shared: int, mode: str) -> None:
    """Rows of other lengths, in slots of another order; queries that share a head of keys."""
    slots, positions = [2, 0, 1], [0, 69, 64]
    keys, values = random(SLOTS, HEADS, CAPACITY, WIDTH), 2 * random(SLOTS, HEADS, CAPACITY, WIDTH)
    key, value = random(3, HEADS, WIDTH), -random(3, HEADS, WIDTH)
    query = random(3, HEADS * shared, WIDTH)
    caches, out = [tg.tensor(keys), tg.tensor(values)], tg.empty(query.shape)
    numbers = {"HEADS": HEADS, "GROUP": shared, "WIDTH": WIDTH, "CAPACITY": CAPACITY, "BLOCK": 32}
    given = map(tg.tensor, (query, key, value))
    places = map(tg.tensor, (slots, positions))
    getattr(kernels.attend_one, mode)[(3, HEADS)](*given, *caches, *places, out, WIDTH**-0.5, **numbers)
    for row, (slot, position) in enumerate(zip(slots, positions)):
        keys[slot, :, position], values[slot, :, position] = key[row], value[row]
        for head in range(HEADS * shared):
            n = head // shared
            wanted = attended(query[row, head][None], keys[slot, n, : position + 1], values[slot, n, : position + 1])
            np.testing.assert_allclose(out[row, head].numpy(), wanted[0], atol=2e-6)
    for cache, wanted in zip(caches, (keys, values)):
        np.testing.assert_array_equal(cache.numpy(), wanted)


@pytest.mark.parametrize("start", [0, 5, 50])
def test_several_tokens(start: int) -> None:
    """Store 20 tokens from 50 on, which all fit, and nothing of the padding beyond the capacity."""
    length, shared, slot = 22, 2, 1
    keys, values = random(SLOTS, HEADS, CAPACITY, WIDTH), 2 * random(SLOTS, HEADS, CAPACITY, WIDTH)
    query, key, value = random(1, length, HEADS * shared, WIDTH), random(1, length, HEADS, WIDTH), None
    value = -key
    caches, out = [tg.tensor(keys), tg.tensor(values)], tg.empty(query.shape)
    places = [tg.tensor([slot]), tg.tensor([start])]
    numbers = {"HEADS": HEADS, "WIDTH": WIDTH, "CAPACITY": CAPACITY}
    kernels.append.check[(1, HEADS, 2)](*map(tg.tensor, (key, value)), *caches, *places, length, **numbers, BLOCK=16)
    kernels.attend.check[(1, HEADS * shared, 2)](
        tg.tensor(query), *caches, *places, out, length, WIDTH**-0.5, **numbers, GROUP=shared, ROWS=16, BLOCK=32
    )
    count = min(length, CAPACITY - start)
    keys[slot, :, start : start + count] = key[0, :count].swapaxes(0, 1)
    values[slot, :, start : start + count] = value[0, :count].swapaxes(0, 1)
    for cache, wanted in zip(caches, (keys, values)):
        np.testing.assert_array_equal(cache.numpy(), wanted)
    for head in range(HEADS * shared):
        part = slot, head // shared, slice(start + count)
        wanted = attended(query[0, :count, head], keys[part], values[part])
        np.testing.assert_allclose(out[0, :count, head].numpy(), wanted, atol=2e-6)
