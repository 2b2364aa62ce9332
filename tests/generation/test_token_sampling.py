"""The choice of tokens: what may be drawn, how often, from which seeds, and which settings are refused."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import ArgumentError
from tilegrad.generation import Sampling
from tilegrad.generation.token_sampling import INVALID, SamplingTensors, choose

LOGITS = np.log(np.array([0.05, 0.4, 0.1, 0.2, 0.2, 0.05])).astype(np.float32)


def chosen(logits: Any, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, n: int = 0) -> Any:
    """Choose for rows of logits at positions from n on."""
    rows = len(logits)
    columns = [np.float32([temperature]), [top_k], np.float32([top_p]), [seed]]
    settings = SamplingTensors(*(tg.tensor(np.repeat(np.asarray(x), rows)) for x in columns))
    return choose(tg.tensor(logits), settings, tg.arange(rows) + n).numpy()


def frequencies(count: int = 4000, **settings: Any) -> Any:
    return np.bincount(chosen(np.repeat(LOGITS[None], count, 0), **settings), minlength=6) / count


@pytest.mark.parametrize(
    "settings, wanted",
    [
        ({}, [0.05, 0.4, 0.1, 0.2, 0.2, 0.05]),
        ({"temperature": 0.5}, np.array([0.05, 0.4, 0.1, 0.2, 0.2, 0.05]) ** 2 / 0.255),
        ({"top_k": 1}, [0, 1, 0, 0, 0, 0]),
        ({"top_k": 2}, [0, 0.5, 0, 0.25, 0.25, 0]),  # equal ones are kept together
        ({"top_k": 6}, [0.05, 0.4, 0.1, 0.2, 0.2, 0.05]),
        ({"top_k": 100}, [0.05, 0.4, 0.1, 0.2, 0.2, 0.05]),
        ({"top_p": 1e-9}, [0, 1, 0, 0, 0, 0]),
        ({"top_p": 0.7}, [0, 0.5, 0, 0.25, 0.25, 0]),
        ({"top_p": 0.85}, np.array([0, 0.4, 0.1, 0.2, 0.2, 0]) / 0.9),
        ({"top_k": 4, "top_p": 0.45}, [0, 0.5, 0, 0.25, 0.25, 0]),  # of the 0.9 that top_k keeps
        ({"temperature": 1e-6}, [0, 1, 0, 0, 0, 0]),
        ({"temperature": 0.0, "top_k": 3}, [0, 1, 0, 0, 0, 0]),
    ],
)
def test_tokens_are_drawn_by_their_probabilities(settings: dict[str, Any], wanted: Any) -> None:
    found = frequencies(**settings)
    np.testing.assert_array_equal(found > 0, np.asarray(wanted) > 0)
    np.testing.assert_allclose(found, wanted, atol=0.035)


def test_draws_depend_on_seed_and_position() -> None:
    logits = np.zeros((40, 1500), np.float32)
    first = chosen(logits)
    assert len(set(first.tolist())) > 30
    np.testing.assert_array_equal(chosen(logits), first)
    np.testing.assert_array_equal(chosen(logits[3:], n=3), first[3:])
    assert (chosen(logits, seed=1) != first).any()
    assert (chosen(logits, seed=(1 << 62) + 1) != chosen(logits, seed=1)).any()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_scores_that_are_no_numbers(temperature: float) -> None:
    nan, inf = float("nan"), float("inf")
    rows = [[0, nan, 1], [inf, 0, 0], [-inf, -inf, -inf], [-inf, 2, -inf], [0, 0, 90]]
    assert chosen(np.float32(rows), temperature).tolist() == [INVALID] * 3 + [1, 2]


def test_the_most_likely_token_is_the_first_of_equal_ones() -> None:
    logits = np.zeros((2, 3000), np.float32)
    logits[1, [1025, 2040, 2999]] = 1
    assert chosen(logits, 0.0).tolist() == [0, 1025]


WRONG: list[tuple[dict[str, Any], str]] = [
    *(({"max_new_tokens": n}, "max_new_tokens is") for n in (0, -1, 1.5, True, "3")),
    *(({"temperature": x}, "temperature is") for x in (-0.1, float("nan"), float("inf"), "hot", None, True)),
    *(({"top_k": n}, "top_k is") for n in (0, -1, 2.0, True)),
    *(({"top_p": x}, "top_p is") for x in (0, 0.0, -1, 1.1, float("nan"), None, "all")),
    *(({"seed": n}, "seed is") for n in (-1, 1 << 63, 0.5, True)),
    *(({"stop": x}, "stop is") for x in (-1, (1, -2), ("a",), 1.5, True, "ab")),
    *(({"timeout": x}, "timeout is") for x in (-1, float("nan"), "soon")),
]


@pytest.mark.parametrize("settings, message", WRONG, ids=[str(x) for x, _ in WRONG])
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Sampling(**settings)


def test_settings_that_are_accepted() -> None:
    assert Sampling(stop=3).stop == (3,)  # type: ignore[arg-type]
    assert Sampling(stop=np.array([1, 2]), top_k=np.int64(3), temperature=0).stop == (1, 2)  # type: ignore[arg-type]
