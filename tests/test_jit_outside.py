"""Captured state may be replaced, shared or given a gradient: results stay those without jit."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import ArgumentError

weight = tg.ones(2)
settings: dict[str, Any] = {"scale": 1.0, "weights": [tg.ones(2)]}


def ones(factor: float = 1.0) -> tg.Tensor:
    return tg.ones(2) * factor


def replace_global(wrap: Callable[..., Any]) -> Any:
    global weight
    weight = ones()
    fn = wrap(lambda x: x * weight)
    before = fn(ones())
    weight = ones(5)
    return before, fn(ones())


def replace_in_closure(wrap: Callable[..., Any]) -> Any:
    kept, mode, act = ones(), "twice", tg.relu
    fn = wrap(lambda x: act(x * kept * (2 if mode == "twice" else 3)))
    results = [fn(ones(-1))]
    kept = ones(5)
    results.append(fn(ones()))
    mode = "thrice"
    results.append(fn(ones()))
    act = tg.abs
    return [*results, fn(ones(-1))]


def replace_in_containers(wrap: Callable[..., Any]) -> Any:
    settings.update(scale=1.0, weights=[ones()])

    def scaled(x: tg.Tensor) -> tg.Tensor:
        return functools.reduce(tg.mul, settings["weights"], x) * settings["scale"]

    fn = wrap(lambda x: scaled(x))
    results = [fn(ones())]
    settings["scale"] = 3.0
    results.append(fn(ones()))
    settings["weights"].append(ones(7))
    results.append(fn(ones()))
    settings["weights"][0] = ones(2)
    return [*results, fn(ones())]


def replace_attribute(wrap: Callable[..., Any]) -> Any:
    thing = SimpleNamespace(inner=SimpleNamespace(w=ones(), power=1))
    fn = wrap(lambda x: x * thing.inner.w**thing.inner.power)
    results = [fn(ones())]
    thing.inner.w = ones(3)
    results.append(fn(ones()))
    thing.inner.power = 2
    results.append(fn(ones()))
    thing.inner = SimpleNamespace(w=ones(), power=0)
    return [*results, fn(ones())]


def replace_layers(wrap: Callable[..., Any]) -> Any:
    net = tg.nn.Sequential(tg.nn.Linear(2, 1, bias=False))
    fn = wrap(lambda x: net(x))
    fn(ones())
    net[0].weight = tg.nn.Parameter(tg.ones(1, 2))
    results = [fn(ones())]
    net[0] = tg.nn.Linear(2, 2, bias=False)
    net[0].weight.data.fill_(4)
    return [*results, fn(ones())]


def arguments_that_share(wrap: Callable[..., Any]) -> Any:
    def move(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        x.add_(1)
        return y * 1

    fn, base, other = wrap(move), tg.zeros(4), tg.zeros(2)
    results = [fn(base[:2], other), fn(base[:2], base[1:3]), fn(base[2:], base[2:]), fn(other, other)]
    return [*results, base, other]


def argument_that_is_captured(wrap: Callable[..., Any]) -> Any:
    state = ones()

    def count(x: tg.Tensor) -> tg.Tensor:
        state.add_(1)
        return x * 1

    fn = wrap(count)
    return fn(ones()), fn(state), fn(state[:1]), state


def gradients_that_accumulate(wrap: Callable[..., Any]) -> Any:
    p = tg.ones(2, requires_grad=True)
    fn = wrap(lambda x: (p * x).sum().backward())
    results = []
    for n in range(5):
        if n == 3:
            p.grad = None
        fn(ones())
        results.append(p.grad.clone())
    p.grad = ones(10)
    fn(ones())
    return [*results, p.grad]


def numpy_arguments(wrap: Callable[..., Any]) -> Any:
    fn, x = wrap(lambda x, k: tg.as_tensor(x) * k), np.ones(2, np.float32)
    results = [fn(x, np.float32(1))]
    x[:] = 7
    return [*results, fn(x, np.float32(2)), fn(x, np.float64(3)), fn(x, np.int64(4))]


def sizes_that_come_back(wrap: Callable[..., Any]) -> Any:
    fn = wrap(lambda x: (x.shape[0], x.shape, x.sum()))
    return [fn(tg.ones(n, 3)) for n in (2, 5, 7)]


def replace_in_an_argument(wrap: Callable[..., Any]) -> Any:
    thing = SimpleNamespace(w=ones(), power=1)
    fn = wrap(lambda x, t: x * t.w**t.power)
    results = [fn(ones(3), thing)]
    thing.power = 2
    results.append(fn(ones(3), thing))
    thing.w = ones(3)
    return [*results, fn(ones(3), thing), fn(ones(3), SimpleNamespace(w=ones(7), power=1))]


def assigned_outside(wrap: Callable[..., Any]) -> Any:
    a, b, thing = ones(), ones(), SimpleNamespace(mean=tg.zeros(2))

    def step(x: tg.Tensor) -> tg.Tensor:
        nonlocal a, b
        a, b = b, a + b
        thing.mean = 0.5 * thing.mean + 0.5 * x
        return a * thing.mean

    fn = wrap(step)
    results = [fn(ones(n)) for n in range(4)]
    thing.mean = tg.zeros(2)
    return [*results, a.tolist(), b.tolist(), thing.mean.tolist(), fn(ones()), a, thing.mean]


SCRIPTS = [
    replace_global, replace_in_closure, replace_in_containers, replace_attribute, replace_layers, arguments_that_share,
    argument_that_is_captured, gradients_that_accumulate, numpy_arguments, sizes_that_come_back,
    replace_in_an_argument, assigned_outside,
]  # fmt: skip


def plain(x: Any) -> Any:
    if isinstance(x, tg.Tensor):
        return x.tolist()
    assert isinstance(x, (int, float, tuple, list))
    return [plain(y) for y in x] if isinstance(x, (tuple, list)) else x


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.__name__)
def test_jit_changes_nothing(script: Callable[[Callable[..., Any]], Any]) -> None:
    assert plain(script(tg.jit)) == plain(script(lambda fn: fn))


class Scaled:
    power = 1
    scales = tg.ones(2)

    def __init__(self, factor: float) -> None:
        self.w = ones(factor)

    @tg.jit
    def of(self, x: tg.Tensor) -> tg.Tensor:
        return x * (self.w * self.scales) ** self.power

    @classmethod
    @tg.jit
    def by_class(cls, x: tg.Tensor) -> tg.Tensor:
        return x * cls.power


class Slim:
    __slots__ = ("w",)

    @tg.jit
    def of(self, x: tg.Tensor) -> tg.Tensor:
        return x * self.w  # type: ignore[attr-defined]


def test_methods_know_their_object() -> None:
    thing = Scaled(2)
    assert thing.of(ones()).tolist() == [2, 2]
    for twin in (copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
        twin.w = ones(5)
        assert (twin.of(ones()).tolist(), thing.of(ones()).tolist()) == ([5, 5], [2, 2])
    slim, other = Slim(), Slim()
    slim.w, other.w = ones(), ones(3)  # type: ignore[attr-defined]
    assert (slim.of(ones()).tolist(), other.of(ones()).tolist()) == ([1, 1], [3, 3])


def test_classes_keep_state_too() -> None:
    thing = Scaled(2)
    results = []
    for Scaled.power, Scaled.scales in ((1, ones()), (2, ones()), (1, ones(2))):
        results.append([thing.of(ones())[0].item(), Scaled.by_class(ones())[0].item()])
    assert results == [[2, 1], [4, 2], [4, 1]]


@tg.jit
def doubled(x: tg.Tensor) -> tg.Tensor:
    return x * 2


def test_jitted_functions_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert repr(doubled) == "<jitted doubled>"
    assert pickle.loads(pickle.dumps(tg.device("cpu"))) is tg.device("cpu")


def test_replacing_what_is_not_mentioned_costs_nothing() -> None:
    thing = SimpleNamespace(w=ones(), loss=None)
    fn = tg.jit(lambda x: x * thing.w)
    for n in range(3):
        thing.loss = fn(ones(n))
    assert len(fn.programs) == 1


def test_what_cannot_be_assigned_in_place_runs_plainly(capsys: Any) -> None:
    thing = SimpleNamespace(mean=tg.zeros(2), name="x")

    def grow(x: tg.Tensor) -> None:
        thing.mean = tg.cat([thing.mean, x])

    jitted = tg.jit(grow)
    jitted(ones())
    jitted(ones(2))
    assert thing.mean.tolist() == [0, 0, 1, 1, 2, 2]
    assert capsys.readouterr().err.count("another shape or type where one was outside, at 'mean'") == 1


def test_functions_that_do_not_return_once_are_refused() -> None:
    def rows(x: tg.Tensor) -> Any:
        yield x + 1

    async def later(x: tg.Tensor) -> tg.Tensor:
        return x + 1

    for fn in (rows, later):
        with pytest.raises(ArgumentError, match="return"):
            tg.jit(fn)
