"""The guards of a jitted network: no replaced or rewritten state is missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import nn


def network() -> Any:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()


def written(model: Any) -> None:
    with tg.no_grad():
        model[0].weight.copy_(tg.ones(3, 4))


def given_other_data(model: Any) -> None:
    model[2].bias.data = tg.full((2,), 5.0)


def with_another_layer(model: Any) -> None:
    model[1] = nn.Tanh()


def with_another_parameter(model: Any) -> None:
    model[0].weight = nn.Parameter(tg.full((3, 4), 0.5))


def without_a_layer(model: Any) -> None:
    del model[3]


def in_training(model: Any) -> None:
    model.train()


def loaded(model: Any) -> None:
    model.load_state_dict({name: tg.ones_like(x) for name, x in model.state_dict().items()})


CHANGES = (written, given_other_data, with_another_layer, with_another_parameter, without_a_layer, in_training, loaded)


@pytest.mark.parametrize("times", [1, 3, 6])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_seen(change: Callable[[Any], None], times: int) -> None:
    model, x = network(), tg.tensor(np.arange(20, dtype=np.float32).reshape(5, 4))
    quick = tg.jit(lambda x: model(x))
    with tg.no_grad():
        for _ in range(times):
            quick(x)
        change(model)
        for _ in range(3):
            found = quick(x).numpy()
    expected = model.eval() if change is not in_training else model
    with tg.no_grad():
        np.testing.assert_allclose(found, expected(x).numpy(), rtol=1e-5, atol=1e-6)


def test_what_changes_at_every_call_is_seen() -> None:
    model, x = network(), tg.ones(5, 4)
    quick = tg.jit(lambda x: model(x))
    with tg.no_grad():
        for n in range(12):
            model[0].weight.copy_(tg.full((3, 4), float(n)))
            np.testing.assert_allclose(quick(x).numpy(), model(x).numpy(), rtol=1e-5, atol=1e-6)


def test_looks_at_what_hangs_on_extents_alone() -> None:
    """A choice by elements that are known, of as many as the argument has: each extent gets a program of its own."""

    @tg.jit
    def cleared(x: tg.Tensor) -> tg.Tensor:
        x.zero_()
        return x.to(tg.uint8) if x.min() >= 0 else x

    for n in (2, 3, 5, 3):
        made = cleared(tg.ones(n))
        assert made.dtype == tg.uint8
        assert made.tolist() == [0] * n


def test_a_number_in_another_group_than_rows() -> None:
    """Optimizer scalars next to rows that are read in another order, also with symbolic sizes."""

    def step(x: tg.Tensor) -> tg.Tensor:
        w = x.detach().clone().requires_grad_()
        optimizer = tg.optim.Adagrad([w], lr=0.05, eps=0.25)
        for _ in range(2):
            optimizer.zero_grad()
            tg.cat([w, x.detach()]).sigmoid().prod().backward()
            optimizer.step()
        return x.sum(dim=2) + w.sum(dim=2)

    jitted = tg.jit(step)
    for n in (3, 2, 4):
        x = tg.arange(float(n**3)).reshape(n, n, n) / n**3
        assert (jitted(x) - step(x)).abs().max().item() < 1e-5


FIRST: dict[str, Callable[[tg.Tensor, tg.Tensor], object]] = {
    "copied": lambda s, x: s.copy_(x),
    "multiplied": lambda s, x: s.mul_(2),
    "given": lambda s, x: tg.add(x, 1, out=s),
    "nothing": lambda s, x: None,
}
THEN: dict[str, Callable[[tg.Tensor], tg.Tensor]] = {
    "a leaf": lambda r: tg.nn.Parameter(tg.ones(2)),
    "a leaf of it": lambda r: tg.nn.Parameter(r.detach())[0],
    "computed of both": lambda r: (tg.nn.Parameter(tg.ones(3, 2)) * r)[0],
    "detached": lambda r: r.detach()[0],
}


@pytest.mark.parametrize("then", THEN)
@pytest.mark.parametrize("first", FIRST)
def test_another_view_first_met_after_a_write(first: str, then: str) -> None:
    """A tensor that shares memory with one that was written to: nothing of a trace stays in it."""

    def elements(jit: Callable[..., Any]) -> list[Any]:
        s = tg.ones(3, 2)
        r, seen = s.detach(), []

        def fn(x: tg.Tensor, k: float) -> tg.Tensor:
            FIRST[first](s, x)
            r[2] = THEN[then](r)
            return x * k

        called = jit(fn)
        for k in (0.5, 2, 3.5, 4):
            made = called(tg.full((3, 2), float(k)), k)
            seen += [made.tolist(), s.tolist(), r.tolist()]
        return seen

    assert elements(tg.jit) == elements(lambda fn: fn)
