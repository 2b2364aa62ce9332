"""A reduction along one axis and another along a second one: of few rows, of many, and of as many as a call has."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.runtime.device import device

SHAPES = [(2, 3, 3), (2, 5, 3), (5, 2, 3), (3, 2, 5), (4, 4, 4), (1, 7, 2)]
FIRST: dict[str, Callable[[tg.Tensor, int], tg.Tensor]] = {
    "sum": lambda x, n: x.sum(n, keepdim=True) * x,
    "maximum": lambda x, n: x - x.amax(n, keepdim=True),
    "mean and more": lambda x, n: (x - x.mean(n, keepdim=True)) * x.amin(n, keepdim=True),
}
SECOND: dict[str, Callable[[tg.Tensor, int], tg.Tensor]] = {
    "sum": lambda x, n: x.sum(n),
    "least": lambda x, n: x.amin(n),
    "place": lambda x, n: x.argmax(n),
    "several": lambda x, n: x.sum(n) * x.amax(n),
}
AXES = list(permutations(range(3), 2))


def numbers(shape: tuple[int, ...]) -> tg.Tensor:
    return tg.tensor(np.random.default_rng(sum(shape)).integers(-9, 9, shape) / 4, dtype=tg.float32)


def wanted(x: tg.Tensor, first: str, second: str, axes: tuple[int, int]) -> np.ndarray:
    """Each reduction by itself, each computed before the next is recorded."""
    inner = FIRST[first](x.double(), axes[0]).realize()
    return SECOND[second](inner, axes[1]).numpy()


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("first", FIRST)
def test_for_all_sizes(first: str, axes: tuple[int, int]) -> None:
    for second in SECOND:
        jitted = tg.jit(lambda x, second=second: SECOND[second](FIRST[first](x, axes[0]), axes[1]))
        for shape in SHAPES:
            x = numbers(shape)
            assert np.allclose(jitted(x).numpy(), wanted(x, first, second, axes), rtol=1e-5, atol=1e-5), (second, shape)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("first", FIRST)
def test_beyond_the_longest_row(first: str, axes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows beyond the longest one are handled in short rows."""
    target = device("cpu").target
    short = target._replace(
        max_row_elements=4,
        single_instance_elements=2,
        max_row_footprint=2,
        loop_elements=4,
        column_tile_width=4,
        tile_elements=4,
        min_tile_elements=2,
    )
    monkeypatch.setitem(device("cpu").__dict__, "target", short)
    for second in SECOND:
        for shape in ((2, 9, 3), (3, 9, 11), (9, 2, 4)):
            x = numbers(shape)
            got = tg.jit(lambda x, second=second: SECOND[second](FIRST[first](x, axes[0]), axes[1]))(x).numpy()
            assert np.allclose(got, wanted(x, first, second, axes), rtol=1e-5, atol=1e-5), (second, shape)
