"""Long scans are computed in stretches: the same numbers and gradients, by programs that are made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import chunked_scan, control
from tilegrad.lazy.realize import compiled_programs


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_scan, "LENGTH", 4)
    monkeypatch.setattr(control, "LENGTH", 4)


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Calls a function that scans in one piece."""

    def call(fn: Callable[..., Any], *args: Any) -> Any:
        with monkeypatch.context() as now:
            now.setattr(control, "LENGTH", 1000)
            return fn(*args)

    return call


def inputs(count: int) -> list[tg.Tensor]:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype(np.float32) for s in ((3,), (count, 3), (3, 3))]
    return [tg.tensor(a, requires_grad=True) for a in arrays]


def scanned(c: tg.Tensor, xs: tg.Tensor, w: tg.Tensor, reverse: bool = False) -> Any:
    scaled = w * 0.5  # from outside of the body, and not a leaf

    def body(carry: Any, x: Any) -> Any:
        state, turns = carry
        state = ((state @ scaled) + x["a"]).tanh()
        return (state, turns + 1), (state * 2, {"turn": turns + x["b"]})

    numbers = tg.arange(xs.shape[0])
    (state, turns), (ys, more) = tg.scan(body, (c, tg.tensor(0)), {"a": xs, "b": numbers}, reverse=reverse)
    return state, ys, turns, more["turn"]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [5, 10, 12])
def test_the_same_numbers_and_gradients(count: int, reverse: bool, whole: Callable[..., Any]) -> None:
    given = inputs(count)
    results = []
    for call in (lambda fn, *args: fn(*args), whole):

        def loss(c: tg.Tensor, xs: tg.Tensor, w: tg.Tensor, call: Any = call) -> Any:
            found = call(scanned, c, xs, w, reverse)
            return found[0].sum() + (found[1] * found[1]).sum(), found

        value, found = loss(*given)
        slopes = tg.autograd.grad(value, given)
        results.append([x.detach().numpy() for x in (*found, *slopes)])
    assert results[0][2] == count
    for ours, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)


def test_gradients_of_gradients(whole: Callable[..., Any]) -> None:
    given = inputs(6)
    results = []
    for call in (lambda fn, *args: fn(*args), whole):

        def slopes(call: Any = call) -> Any:
            value = (call(scanned, *given)[1] ** 2).sum()
            first = tg.autograd.grad(value, given, create_graph=True)
            return tg.autograd.grad(sum((g * g).sum() for g in first), given)

        results.append([g.numpy() for g in slopes()])
    for ours, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("compiled")
def test_more_turns_take_no_more_programs() -> None:
    made = []
    for count in (8, 8, 24):
        given = inputs(count)
        before = len(compiled_programs())
        value = scanned(*given)[0].sum()
        tg.autograd.grad(value, given)[2].numpy()
        made.append(len(compiled_programs()) - before)
    assert made[1] == 0
    assert made[2] <= 4  # what the whole is cut into and put together of


def test_random_numbers_go_on(whole: Callable[..., Any]) -> None:
    def draw() -> Any:
        tg.manual_seed(1)
        return tg.scan(lambda c, x: (c, tg.rand(3) + x), tg.zeros(()), tg.zeros(9, 3))[1].numpy()

    np.testing.assert_array_equal(draw(), whole(draw))


def test_under_other_transforms() -> None:
    """Scans are not chunked in a jitted function and under vmap, where elements are unknown."""
    c, xs, w = (x.detach() for x in inputs(6))
    wanted = scanned(c, xs, w)[1].numpy()
    np.testing.assert_allclose(tg.jit(lambda *args: scanned(*args)[1])(c, xs, w).numpy(), wanted, rtol=1e-5)
    many = tg.vmap(lambda c: scanned(c, xs, w)[1])(tg.stack([c, c * 2]))
    np.testing.assert_allclose(many[0].numpy(), wanted, rtol=1e-5)
    slope = tg.grad(lambda c: scanned(c, xs, w)[0].sum())(c)
    found = tg.vmap(tg.grad(lambda c: scanned(c, xs, w)[0].sum()))(tg.stack([c, c * 2]))
    np.testing.assert_allclose(found[0].numpy(), slope.numpy(), rtol=1e-4, atol=1e-6)


def test_nothing_is_made_of_no_y() -> None:
    carry, ys = tg.scan(lambda c, x: (c + x, None), tg.zeros(2), tg.ones(9, 2))
    assert (carry.tolist(), ys) == ([9, 9], None)
    with tg.no_grad():
        carry, _ = tg.scan(lambda c, x: (c + x, None), tg.zeros(2, requires_grad=True), tg.ones(9, 2))
    assert not carry.requires_grad
