"""Ops on element types other than float64: half precision, small integers, and casts between all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ops.registry import floats, given
from tests.ops.test_examples import array_of
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir import dtype
from tilegrad.ir.graph import Graph, Value
from tilegrad.ops import activation, arithmetic, cast, contraction, exponential, movement, reduction, scan, statistics

HALF = {"float16": dtype.float16, "bfloat16": dtype.bfloat16}
FUNCTIONS: list[tuple[Callable[[Value], Value], Callable[[Any, Any], Any]]] = [
    (lambda x: reduction.reduce_sum(x, 1), lambda t, x: x.sum(1)),
    (lambda x: statistics.mean(x, 1), lambda t, x: x.mean(1)),
    (lambda x: statistics.var(x, 1), lambda t, x: x.var(1)),
    (lambda x: statistics.norm(x, 2.0, 1), lambda t, x: x.norm(2, 1)),
    (lambda x: statistics.logsumexp(x, 1), lambda t, x: x.logsumexp(1)),
    (lambda x: activation.softmax(x, 1), lambda t, x: x.softmax(1)),
    (lambda x: activation.log_softmax(x, 1), lambda t, x: x.log_softmax(1)),
    (lambda x: scan.cumsum(x, 1), lambda t, x: x.float().cumsum(1).to(x.dtype)),
    (lambda x: reduction.amax(x, 1), lambda t, x: x.amax(1)),
    (lambda x: reduction.argmax(x, 1), lambda t, x: x.argmax(1)),
    (lambda x: contraction.matmul(x, movement.transpose(x)), lambda t, x: (x.float() @ x.float().T).to(x.dtype)),
    (lambda x: exponential.exp(arithmetic.mul(x, 0.5)), lambda t, x: (x * 0.5).exp()),
    (lambda x: arithmetic.maximum(x, 0.25), lambda t, x: t.maximum(x, t.tensor(0.25, dtype=x.dtype))),
]


@pytest.mark.parametrize("half", HALF)
@pytest.mark.parametrize("n", range(len(FUNCTIONS)))
def test_half_precision_is_computed_in_float32(half: str, n: int) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = FUNCTIONS[n]
    numbers = floats(3, 300).astype(np.float32)
    x = given(numbers)
    y = ours(cast.cast(x, HALF[half]))
    found = interpret(Graph((x,), (y,)), [numbers])[0].astype(np.float32)
    wanted = theirs(torch, torch.tensor(numbers).to(getattr(torch, half)))
    np.testing.assert_allclose(found, array_of(torch, wanted), rtol=2 ** (-9 if half == "float16" else -6), atol=1e-4)


def test_sums_of_many_halves_do_not_stall() -> None:
    x = given(np.ones(5000, np.float16))
    total = interpret(
        Graph((x,), (reduction.reduce_sum(x), statistics.mean(arithmetic.mul(x, 60000.0)))), [np.ones(5000, np.float16)]
    )
    assert total[0] == np.float16(5000)
    assert total[1] == np.float16(60000)


@pytest.mark.parametrize("source", dtype.DTYPES, ids=str)
def test_casts_are_those_of_numpy(source: dtype.DType) -> None:
    array = np.array([0, 1, 1, 2, 7, 100]).astype(source.numpy)
    x = given(array)
    made = interpret(Graph((x,), tuple(cast.cast(x, to) for to in dtype.DTYPES)), [array])
    for to, y in zip(dtype.DTYPES, made, strict=True):
        np.testing.assert_array_equal(y, array.astype(to.numpy))


@pytest.mark.parametrize("d", [d for d in dtype.DTYPES if d.is_integer], ids=str)
def test_integers_wrap(d: dtype.DType) -> None:
    array = np.array([d.min, d.max, 1, 3], d.numpy)
    x = given(array)
    outputs = (arithmetic.add(x, x), arithmetic.mul(x, x), arithmetic.floor_divide(x, 0), arithmetic.remainder(x, 2))
    found = interpret(Graph((x,), outputs), [array])
    for y, wanted in zip(found, (array + array, array * array, array * 0, array % 2), strict=True):
        np.testing.assert_array_equal(y, wanted)


def test_bools_have_extremes_and_places() -> None:
    array = np.array([[False, True], [False, False]])
    x = given(array)
    found = interpret(
        Graph((x,), (reduction.amax(x, 1), reduction.argmax(x, 1), arithmetic.maximum(x, False))), [array]
    )
    np.testing.assert_array_equal(found[0], [True, False])
    np.testing.assert_array_equal(found[1], [1, 0])
    np.testing.assert_array_equal(found[2], array)
