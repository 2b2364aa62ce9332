"""Thousands of pieces are joined, stacked, split and differentiated by copies: one step each, and no code for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.first_tier.test_group_step import steps_of
from tilegrad import config
from tilegrad.functions import joining

PIECES = 2000


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(joining, "MIN_PIECES", 1 << 30)  # pieces in memory are recorded, too
    with config.changed(tier="interpreted"):
        yield


def pieces(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    return [rng.standard_normal(n % 7 + 1, dtype=np.float32) for n in range(count)]


def test_many_pieces_are_one_step() -> None:
    given = pieces(np.random.default_rng(0), PIECES)
    joined = tg.cat([tg.tensor(x) for x in given])
    assert steps_of(joined).count("cat") == 1
    assert "(copied)" in steps_of(tg.cat([tg.tensor(x) for x in given]))
    np.testing.assert_array_equal(joined.numpy(), np.concatenate(given))


def test_the_gradient_of_many_pieces() -> None:
    given = pieces(np.random.default_rng(0), 300)
    own = [tg.tensor(x, requires_grad=True) for x in given]
    joined = tg.cat(own)
    weights = np.arange(joined.numel(), dtype=np.float32)
    (joined * tg.tensor(weights)).sum().backward()
    for x, share in zip(own, np.split(weights, np.cumsum([len(x) for x in given])[:-1]), strict=True):
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad.numpy(), share)


@pytest.mark.parametrize("make", [
    lambda n: tg.tensor(float(n)),  # a constant
    lambda n: tg.tensor([float(n), 1.0])[0],  # an item
    lambda n: tg.tensor([float(n)]).sum(),  # recorded work
], ids=["constants", "items", "recorded"])  # fmt: skip
def test_numbers_are_stacked(make: Any) -> None:
    count = 300
    np.testing.assert_array_equal(tg.stack([make(n) for n in range(count)]).numpy(), np.arange(count))
    np.testing.assert_array_equal(tg.tensor([make(n) for n in range(count)]).numpy(), np.arange(count))


@pytest.mark.parametrize("split", [
    lambda x: x.split(1), lambda x: x.chunk(PIECES), lambda x: x.unbind(0), list,
    lambda x: [x[n] for n in range(PIECES)],
], ids=["split", "chunk", "unbind", "iter", "items"])  # fmt: skip
def test_views_in_such_numbers(split: Any) -> None:
    given = np.arange(PIECES * 2, dtype=np.float32).reshape(PIECES, 2)
    parts = split(tg.tensor(given) * 1)
    assert len(parts) == PIECES
    np.testing.assert_array_equal(tg.stack(list(parts)).numpy().reshape(PIECES, 2), given)


@pytest.mark.parametrize("seed", range(40))
def test_random_views_are_joined(seed: int) -> None:
    """Views of all kinds, of memory and of recorded work, along any axis, in every width of elements."""
    rng = np.random.default_rng(seed)
    dtype = [np.float32, np.float64, np.int8, np.bool_, np.int16, np.int64][seed % 6]
    rank = int(rng.integers(1, 4))
    axis, shape = int(rng.integers(rank)), [int(n) for n in rng.integers(1, 5, rank)]
    arrays, tensors = [], []
    for _ in range(int(rng.integers(2, 9))):
        shape[axis] = int(rng.integers(0, 5))
        order = rng.permutation(rank)
        whole = [2 * shape[n] + 1 for n in order]
        a = rng.integers(0, 2 if dtype is np.bool_ else 100, whole).astype(dtype)
        x = tg.tensor(a)
        if rng.integers(2) and dtype is not np.bool_:
            a, x = a + a, x + x
        back = [int(n) for n in np.argsort(order)]
        at = tuple(slice(1, 1 + 2 * n, 2) if rng.integers(2) else slice(0, n) for n in shape)
        arrays.append(a.transpose(back)[at])
        tensors.append(x.permute(*back)[at])
    got = tg.cat(tensors, axis)
    np.testing.assert_array_equal(got.numpy(), np.concatenate(arrays, axis))
    for a, x in zip(arrays, tensors, strict=True):
        np.testing.assert_array_equal((x.flip(0) if rng.integers(2) else x).numpy().shape, a.shape)
        np.testing.assert_array_equal(x.contiguous().numpy(), a)
