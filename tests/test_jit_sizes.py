"""Decisions of a jitted function about sizes hold for the sizes of each call, also in programs for symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import pytest

import tilegrad as tg
from tilegrad.ir.size import Size, comparisons, may_be_equal

ONE = [(2,), (3,), (4,), (5,), (8,), (4,)]
"""The second call makes a program for all sizes; one of the next ones is decided differently."""
TWO = [(4, 3), (3, 3), (2, 3), (5, 3), (2, 3)]
TWICE = {4: 2.0}

BY_SIZES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "equal": (lambda x: x + 1 if x.shape[0] == 4 else x - 1, ONE),
    "not equal": (lambda x: x + 1 if x.shape[0] != 5 else x - 1, ONE),
    "greater": (lambda x: x + 1 if x.shape[0] > 3 else x - 1, ONE),
    "the shape": (lambda x: x + 1 if x.shape == (4,) else x - 1, ONE),
    "one of two": (lambda x: x + 1 if x.size(0) in (5, 4) else x - 1, ONE),
    "one of a set": (lambda x: x + 1 if x.size(0) in {5, 4} else x - 1, ONE),
    "length": (lambda x: x + 1 if len(x) == 4 else x - 1, ONE),
    "a key": (lambda x: x * TWICE.get(x.shape[0], 3.0), ONE),
    "remainder": (lambda x: x * (2 if x.shape[0] % 2 else 3), ONE),
    "the larger": (lambda x: x * max(x.shape[0], 4), ONE),
    "half": (lambda x: x[: x.shape[0] // 2] + 1, ONE),
    "elements": (lambda x: x * 1 if x.numel() == 12 else x * 2, TWO),
    "twice": (lambda x: x + 1 if 2 * x.shape[0] == 4 else x - 1, TWO),
    "rest": (lambda x: x[2:].sum() if x.shape[0] - 2 else x.sum() * 100, TWO),
    "no rest": (lambda x: x * 2 if not x.shape[0] - 2 else x, TWO),
    "empty": (lambda x: x[2:].numel() == 0, TWO),
    "square": (lambda x: x.t() if x.shape[0] == x.shape[1] else x, TWO),
    "without ones": (lambda x: x[1:].squeeze(0), TWO),
    "without any ones": (lambda x: x[1:].squeeze(), TWO),
    "pooled without ones": (lambda x: tg.nn.functional.max_pool1d(x.t()[None], 2, 1).squeeze(2), TWO),
    "differences beside ones": (lambda x: x.diff(dim=0) * tg.ones(1, 3), TWO),
    "expanded": (lambda x: x[1:].expand(x.shape[0] - 1, 3) * 2, TWO),
    "a loop": (lambda x: sum(x[i] for i in range(x.shape[0])), TWO),
}


def numbers(shape: tuple[int, ...]) -> tg.Tensor:
    return tg.arange(float(prod(shape))).reshape(shape)


@pytest.mark.parametrize("name", BY_SIZES)
def test_decisions_by_sizes(name: str) -> None:
    fn, shapes = BY_SIZES[name]
    jitted = tg.jit(fn)
    for shape in shapes:
        got, want = jitted(numbers(shape)), fn(numbers(shape))
        if isinstance(want, tg.Tensor):
            assert tuple(got.shape) == tuple(want.shape), shape
            got, want = got.tolist(), want.tolist()
        assert got == want, shape


def test_sizes_of_two_arguments() -> None:
    def fn(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        return x + 1 if x.shape == y.shape else x - y.sum()

    jitted = tg.jit(fn)
    for m, n in ((4, 3), (5, 2), (3, 3), (6, 7), (2, 2), (3, 4), (7, 7)):
        assert jitted(tg.ones(m), tg.ones(n)).tolist() == fn(tg.ones(m), tg.ones(n)).tolist(), (m, n)


def test_few_programs() -> None:
    """Only sizes that are decided differently have programs of their own."""
    jitted = tg.jit(lambda x: x + 1 if x.shape[0] == 4 else x - 1)
    for n in (2, 3, 5, 6, 7, 4, 8, 4, 9, 2, 4):
        assert jitted(tg.zeros(n)).tolist() == [1.0 if n == 4 else -1.0] * n
    assert len(jitted.programs) == 3  # for 2, for all, for 4


@pytest.mark.parametrize("other", [-3, 0, 1, 2, 3, 4, 7, 12])
def test_sizes_that_may_be_equal(other: int) -> None:
    """Against all values that small sizes have; what says no is sure."""
    n, m = Size.named("n"), Size.named("m")
    for size in (n, n - 1, 2 * n, 3 * n - 2, n * m, n + m - 3, -n + 4, n - m, n * n - m):
        assert isinstance(size, Size)
        equal = any(size.value({"n": a, "m": b}) == other for a in range(2, 20) for b in range(2, 20))
        assert may_be_equal(size, other) or not equal


def test_what_dies_during_a_trace_leaves_weak_dictionaries() -> None:
    """Nodes of an earlier program are collected at any time: their sizes are hashed to remove their entries."""
    node = type("Node", (), {})()
    entries = WeakValueDictionary({("node", Size.named("n")): node})
    with comparisons():
        del node
    assert not entries.data  # type: ignore[attr-defined]
