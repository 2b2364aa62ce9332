"""Philox against its published answers, and the distributions made of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ops.registry import given
from tilegrad.backend.reference.graph import interpret
from tilegrad.backend.reference.scalar import evaluate
from tilegrad.errors import ArgumentError, DTypeError, ShapeError
from tilegrad.ir.dtype import bfloat16, float16, float32, float64, int32, int64, uint8, uint32
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.scalar import const
from tilegrad.ops import random
from tilegrad.ops.random import Philox, advance, bernoulli, dropout, philox, rand, randint, randn, randperm

COUNT = 20_000
ANSWERS = [  # counter, key, words: from the Random123 distribution
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def drawn(build: Callable[[Value], Value], seed: int = 1234, start: int = 0) -> Any:
    state = Input(TensorType(int64, (2,)))
    (found,) = interpret(Graph((state,), (build(state),)), [np.array([seed, start])])
    return found


@pytest.mark.parametrize(("counter", "key", "wanted"), ANSWERS)
def test_known_answers(counter: list[int], key: list[int], wanted: list[int]) -> None:
    made = philox([const(x, uint32) for x in counter], [const(x, uint32) for x in key])
    assert [int(evaluate(word, (), {}.__getitem__, {})) for word in made] == wanted


def test_the_first_element_is_that_of_counter_0() -> None:
    words = [int(drawn(lambda s, n=n: Philox(s, (1,), n), seed=0)[0]) for n in range(4)]
    assert words == ANSWERS[0][2]


def test_a_seed_and_an_offset_of_64_bits() -> None:
    large = (1 << 40) + 5
    assert drawn(lambda s: Philox(s, (3,)), seed=large, start=large)[1] == drawn(
        lambda s: Philox(s, (1,)), seed=large, start=large + 1
    )
    assert drawn(lambda s: Philox(s, (1,)), seed=large) != drawn(lambda s: Philox(s, (1,)), seed=5)
    assert drawn(lambda s: Philox(s, (1,)), start=large) != drawn(lambda s: Philox(s, (1,)), start=5)


def test_what_is_drawn_later_goes_on() -> None:
    whole = drawn(lambda s: rand(s, (10,)))
    later = drawn(lambda s: rand(advance(s, 6), (2, 2)))
    np.testing.assert_array_equal(whole[6:], later.ravel())
    np.testing.assert_array_equal(drawn(lambda s: advance(advance(s, 3), 4), start=9), [1234, 16])


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64])
def test_uniform(dtype: Any) -> None:
    x = drawn(lambda s: rand(s, (COUNT,), dtype)).astype(np.float64)
    assert 0 <= x.min()
    assert x.max() < 1
    counts, _ = np.histogram(x, 16, (0, 1))
    assert np.sum((counts - COUNT / 16) ** 2) / (COUNT / 16) < 45  # chi-squared, 15 degrees of freedom
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 4 / math.sqrt(COUNT)


@pytest.mark.parametrize("dtype", [float32, float64])
def test_normal(dtype: Any) -> None:
    x = drawn(lambda s: randn(s, (COUNT,), dtype)).astype(np.float64)
    assert np.isfinite(x).all()
    assert abs(x.mean()) < 4 / math.sqrt(COUNT)
    assert abs(x.var() - 1) < 4 * math.sqrt(2 / COUNT)
    assert abs((x**3).mean()) < 4 * math.sqrt(15 / COUNT)
    assert abs((x**4).mean() - 3) < 4 * math.sqrt(96 / COUNT)
    below = np.mean(x < 1)
    assert abs(below - 0.8413) < 0.015


@pytest.mark.parametrize(
    ("low", "high", "dtype"), [(-3, 9, int64), (0, 256, uint8), (5, 6, int32), (-(1 << 62), 1 << 62, int64)]
)
def test_whole_numbers(low: int, high: int, dtype: Any) -> None:
    x = drawn(lambda s: randint(s, low, high, (COUNT,), dtype))
    assert x.dtype == dtype.numpy
    assert low <= x.min()
    assert x.max() < high
    if high - low <= 256:
        counts = np.bincount(x.astype(np.int64) - low, minlength=high - low)
        expected = COUNT / (high - low)
        freedom = max(1, high - low - 1)
        assert np.sum((counts - expected) ** 2) / expected < freedom + 5 * math.sqrt(2 * freedom)


def test_all_of_int64() -> None:
    x = drawn(lambda s: randint(s, -(1 << 63), 1 << 63, (COUNT,)))
    assert abs(np.mean(x < 0) - 0.5) < 0.02


def test_permutation() -> None:
    x = drawn(lambda s: randperm(s, 1000))
    assert sorted(x) == list(range(1000))
    assert np.mean(x == np.arange(1000)) < 0.01


def test_bernoulli_and_dropout() -> None:
    assert abs(drawn(lambda s: bernoulli(s, 0.3, (COUNT,))).mean() - 0.3) < 0.015
    assert drawn(lambda s: bernoulli(s, 1.0, (COUNT,))).all()
    assert not drawn(lambda s: bernoulli(s, 0.0, (COUNT,))).any()
    x = given(np.ones(COUNT, np.float32))
    state = Input(TensorType(int64, (2,)))
    (y,) = interpret(Graph((x, state), (dropout(x, state, 0.4),)), [np.ones(COUNT, np.float32), np.array([3, 0])])
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.6)}
    assert abs(y.mean() - 1) < 0.03


def test_dropout_of_nothing_and_of_everything() -> None:
    x, state = given(np.ones(3)), Input(TensorType(int64, (2,)))
    assert dropout(x, state, 0.0) is x
    (y,) = interpret(Graph((x, state), (dropout(x, state, 1.0),)), [np.ones(3), np.array([3, 0])])
    assert y.tolist() == [0, 0, 0]


STATE = Input(TensorType(int64, (2,)))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: randint(STATE, 3, 3, (2,)), ArgumentError, "no number from 3 to below 3"),
        (lambda: randint(STATE, 0, 300, (2,), uint8), ArgumentError, "does not fit uint8"),
        (lambda: bernoulli(STATE, 1.5, (2,)), ArgumentError, "between 0 and 1, not 1.5"),
        (lambda: dropout(given(np.ones(2)), STATE, -1), ArgumentError, "between 0 and 1, not -1"),
        (lambda: rand(STATE, (2,), int64), DTypeError, "rand draws floating-point elements, not int64; use randint"),
        (lambda: random.Philox(given(np.ones(2)), (2,)), ShapeError, "random state is an int64 tensor"),
    ],
)
def test_what_is_refused(wrong: Callable[[], Value], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()
