"""Tensors that a jitted function puts in places outside: each call puts new ones there, as in Python, and whoever
holds the ones from before keeps their elements.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

import tilegrad as tg
from tilegrad import nn

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

m: Any = None
n: Any = None


class Slots:
    __slots__ = ("m", "n")


class OfClass:
    m: Any = None
    n: Any = None


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.m = self.n = tg.zeros(())


class Buffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("m", tg.zeros(()))
        self.register_buffer("n", tg.zeros(()))


class Place:
    """Two places outside: how a function reads both, and puts tensors there."""

    def __init__(self) -> None:
        self.set(tg.zeros(2), tg.ones(2))

    def __init_subclass__(cls) -> None:
        PLACES.append(cls)

    def set(self, a: Any, b: Any) -> None:
        raise NotImplementedError

    def step(self, then: Any) -> Callable[..., Any]:
        raise NotImplementedError

    def get(self) -> tuple[Any, Any]:
        found: list[Any] = []
        self.step(lambda m, n, x: (found.extend([m, n]), (m, n, None))[1])(None)
        return found[0], found[1]

    def put(self, a: Any, b: Any) -> None:
        self.step(lambda m, n, x: (a, b, None))(None)


PLACES: list[type[Place]] = []


class Attributes(Place):
    made: Callable[[], Any] = SimpleNamespace

    def set(self, a: Any, b: Any) -> None:
        self.thing = type(self).made()
        self.thing.m, self.thing.n = a, b

    def step(self, then: Any) -> Callable[..., Any]:
        thing = self.thing

        def step(x: Any) -> Any:
            thing.m, thing.n, result = then(thing.m, thing.n, x)
            return result

        return step


class SlotPlaces(Attributes):
    made = Slots


class ClassPlaces(Attributes):
    made = lambda: OfClass  # noqa: E731


class ModulePlaces(Attributes):
    made = Plain


class BufferPlaces(Attributes):
    made = Buffers


class DictEntries(Place):
    def set(self, a: Any, b: Any) -> None:
        self.kept: Any = {"m": a, 7: b}

    def step(self, then: Any) -> Callable[..., Any]:
        kept = self.kept

        def step(x: Any) -> Any:
            kept["m"], kept[7], result = then(kept["m"], kept[7], x)
            return result

        return step


class ListEntries(Place):
    def set(self, a: Any, b: Any) -> None:
        self.kept = [a, b]

    def step(self, then: Any) -> Callable[..., Any]:
        kept = self.kept

        def step(x: Any) -> Any:
            kept[0], kept[-1], result = then(kept[0], kept[-1], x)
            return result

        return step


class Globals(Place):
    def set(self, a: Any, b: Any) -> None:
        global m, n
        m, n = a, b

    def step(self, then: Any) -> Callable[..., Any]:
        def step(x: Any) -> Any:
            global m, n
            m, n, result = then(m, n, x)
            return result

        return step


class Cells(Place):
    def set(self, a: Any, b: Any) -> None:
        def step(x: Any) -> Any:
            nonlocal a, b
            a, b, result = self.then(a, b, x)
            return result

        self.function = step

    def step(self, then: Any) -> Callable[..., Any]:
        self.then = then
        return self.function

    def get(self) -> tuple[Any, Any]:
        a, b = self.function.__closure__[:2]  # type: ignore[index]
        return a.cell_contents, b.cell_contents

    def put(self, a: Any, b: Any) -> None:
        first, second = self.function.__closure__[:2]  # type: ignore[index]
        first.cell_contents, second.cell_contents = a, b


class Context(Place):
    first: ContextVar[Any] = ContextVar("first")
    second: ContextVar[Any] = ContextVar("second")

    def set(self, a: Any, b: Any) -> None:
        self.first.set(a)
        self.second.set(b)

    def step(self, then: Any) -> Callable[..., Any]:
        first, second = self.first, self.second

        def step(x: Any) -> Any:
            a, b, result = then(first.get(), second.get(), x)
            first.set(a)
            second.set(b)
            return result

        return step


def written(m: Any, x: Any) -> Any:
    made = 0.5 * m + x
    made.add_(1)
    return made


def added(m: Any, x: Any) -> Any:
    m.add_(x)
    return m


def both(x: Any) -> Any:
    made = x * 2
    return made, made, made


def parts(x: Any) -> Any:
    made = tg.cat([x, x * 2])
    return made[:2], made[2:], made


ASSIGNED: dict[str, Callable[..., Any]] = {
    "new": lambda m, n, x: (0.5 * m + x, n, m * 2),
    "nothing returned": lambda m, n, x: (0.5 * m + x, n, None),
    "both": lambda m, n, x: (0.5 * m + x, n * m, m + n),
    "returned": lambda m, n, x: (made := tg.tanh(m + x), n, made),
    "argument": lambda m, n, x: (x, m, m * 1),
    "part of the argument": lambda m, n, x: (x[:], m, x[:1] * 1),
    "one for both": lambda m, n, x: both(x + m),
    "swapped": lambda m, n, x: (n, m, m + x),
    "moved on": lambda m, n, x: (m + x, m, n * 1),
    "unchanged": lambda m, n, x: (m, n, m + x),
    "written before": lambda m, n, x: (written(m, x), n, m * 1),
    "view": lambda m, n, x: (m.flip(0)[:], n[:], x * 1),
    "in place": lambda m, n, x: (added(m, x), n, m * 1),
    "in place, and new": lambda m, n, x: (m, added(n, x) * 2, m + n),
    "detached": lambda m, n, x: ((h := m * x).detach(), n, h),
    "part twice": lambda m, n, x: ((h := tg.cat([x, m * 2])[1:3]), n, h),
    "part of a part twice": lambda m, n, x: ((h := (g := tg.cat([x, m * 2]))[1:3]), g[2:], h),
    "parts": lambda m, n, x: parts(x + n),
    "shape": lambda m, n, x: (tg.cat([m, x]), n, m * 1),
    "type": lambda m, n, x: (m + x.double(), n, m * 1),
    "same first": lambda m, n, x: (m + x, n, x * (2 if m is n else 3)),
    "same last": lambda m, n, x: (m, n * x, x * (2 if m is n else 3)),
    "same there": lambda m, n, x: (m + 1 if m is n else m + x, n, x * 1),
}


def shown(x: Any) -> Any:
    return [x.dtype.name, x.tolist()] if isinstance(x, tg.Tensor) else x


def meanwhile(place: Place, k: int, do: str) -> None:
    """Actions between two calls on the variables that a function assigns."""
    a, b = place.get()
    match do, k:
        case "replaced", 2 | 3:
            place.put(tg.ones(2) * 5, b)
        case "written", 1 | 3:
            a.add_(1)
            b[:1].mul_(3)
        case "shared", 0 | 3:
            place.put(b, b)
        case "shared later", 2 | 4:
            place.put(b, b)
        case "a part", 2:
            place.put(a, tg.cat([a, b])[1:3])


DOINGS = ["", "replaced", "written", "shared", "shared later", "a part"]


def story(wrap: Wrap, place: Place, then: Any, do: str) -> list[Any]:
    """The results and effects of five calls, and what the holders of replaced tensors see at the end."""
    fn, held, seen = wrap(place.step(then)), [*place.get()], []
    for k in range(5):
        meanwhile(place, k, do)
        x = tg.tensor([1.0, k])
        result = fn(x)
        now = place.get()
        held += [*now, result, x]
        same = [[a is b for b in held if b is not None] for a in (*now, result)]
        seen.append([shown(result), *map(shown, now), same])
        if k == 3 and isinstance(result, tg.Tensor):
            result.add_(10)
    return [*seen, *map(shown, held)]


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
def test_who_holds_a_tensor_keeps_it(kind: type[Place]) -> None:
    for (name, then), do in product(ASSIGNED.items(), DOINGS):
        expected = story(lambda fn: fn, kind(), then, do)
        assert story(tg.jit, kind(), then, do) == expected, (name, do)


class Cell(nn.Module):
    """A recurrent layer that keeps its state, and what its hooks saw."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.h = tg.zeros(2)
        self.steps = [tg.zeros(()), tg.zeros(2)]
        self.seen: dict[str, Any] = {}
        self.inner.register_forward_hook(lambda layer, given, made: self.seen.update(made=made.detach() * 2))

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        h = (self.inner(x) + self.h).tanh()
        self.seen["h"] = h.detach()
        self.h = h.detach()
        self.steps[0] = self.steps[0] + 1
        self.steps[1] += x
        return (h * x).sum()


def recurrent(wrap: Wrap) -> list[Any]:
    tg.manual_seed(0)
    cell = Cell()
    optimizer, kept = tg.optim.SGD(cell.parameters(), lr=0.1), list[Any]()

    def step(x: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = cell(x)
        loss.backward()
        optimizer.step()
        return loss

    fn = wrap(step)
    for k in range(5):
        kept += [fn(tg.tensor([1.0, k])), cell.h, *cell.steps, *cell.seen.values()]
    return [[x.tolist() for x in kept], [[a is b for a in kept] for b in kept]]


def running_mean(wrap: Wrap) -> list[Any]:
    """A state for rows of any number, and a gradient outside."""
    kept, state = list[Any](), SimpleNamespace(mean=tg.zeros(3), last=tg.zeros(2, 3))
    weight = tg.ones(3, requires_grad=True)

    def step(x: tg.Tensor) -> tg.Tensor:
        with tg.no_grad():
            state.mean = 0.9 * state.mean + x.mean(0)
        return ((x - state.mean) * weight).sum()

    fn = wrap(step)
    for k in (2, 5, 7, 5, 9, 2):
        loss = fn(tg.arange(3.0 * k).reshape(k, 3))
        loss.backward()
        kept += [loss.detach(), state.mean, weight.grad.clone()]
    return [x.tolist() for x in kept]


def two_functions(wrap: Wrap) -> list[Any]:
    """One writes what the other one reads, and both what a third one does."""
    state, kept = SimpleNamespace(m=tg.zeros(2), n=tg.ones(2)), list[Any]()

    def write(x: tg.Tensor) -> None:
        state.m = state.m + x

    def back(x: tg.Tensor) -> None:
        state.n = state.m * x
        state.m = state.m - 2 * x

    functions = [wrap(fn) for fn in (write, lambda x: state.m * x + state.n, back, lambda x: state.m is state.n)]
    for k in range(6):
        kept += [fn(tg.ones(2) * (k + 1)) for fn in functions] + [state.m, state.n]
    return [x.tolist() if isinstance(x, tg.Tensor) else x for x in kept]


def objects_in_turn(wrap: Wrap) -> list[Any]:
    """The object whose attribute is assigned to is an argument."""
    things, kept = [SimpleNamespace(m=tg.ones(2) * k) for k in range(3)], list[Any]()

    def step(thing: Any, x: tg.Tensor) -> tg.Tensor:
        thing.m = thing.m * x + 1
        return thing.m + x

    fn = wrap(step)
    for k in range(9):
        kept += [fn(things[k % 3], tg.ones(2) * k), *[t.m for t in things]]
    return [[x.tolist() for x in kept], [[a is b for a in kept] for b in kept]]


def that_raises(wrap: Wrap) -> list[Any]:
    state, kept = SimpleNamespace(m=tg.zeros(2)), list[Any]()

    def step(x: tg.Tensor) -> tg.Tensor:
        if x.shape[0] == 3:
            raise ValueError
        state.m = state.m + x
        return state.m @ x

    fn = wrap(step)
    for k in (2, 3, 2, 4, 2):
        try:
            kept.append(fn(tg.ones(k)))
        except Exception as error:
            kept.append(tg.tensor(isinstance(error, ValueError)))
        kept.append(state.m)
    return [x.tolist() for x in kept]


def gradients_tracked(wrap: Wrap) -> list[Any]:
    """A state that keeps its history runs without a program."""
    state, kept = SimpleNamespace(h=tg.zeros(2)), list[Any]()
    weight = tg.ones(2, requires_grad=True)

    def step(x: tg.Tensor) -> tg.Tensor:
        state.h = state.h * weight + x
        return state.h.sum()

    fn = wrap(step)
    for k in range(3):
        kept += [fn(tg.ones(2) * k), state.h]
    kept[-1].sum().backward()
    return [x.tolist() for x in [*kept, weight.grad]]


def close(x: Any) -> Any:
    if isinstance(x, list):
        return [close(y) for y in x]
    return pytest.approx(x, rel=1e-5, abs=1e-6) if isinstance(x, float) else x


STORIES = [recurrent, running_mean, two_functions, objects_in_turn, that_raises, gradients_tracked]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_assigned_as_without_jit(story: Callable[[Wrap], list[Any]]) -> None:
    assert story(tg.jit) == close(story(lambda fn: fn))


def test_programs_are_made_once() -> None:
    state = SimpleNamespace(m=tg.zeros(2), n=tg.ones(2))

    def write(x: tg.Tensor) -> tg.Tensor:
        state.m = state.m + x
        return state.m

    functions = [tg.jit(write), tg.jit(lambda x: state.m * x), tg.jit(lambda x: (state.m - x).sum())]
    for _ in range(10):
        for fn in functions:
            fn(tg.ones(2))
    assert [len(fn.programs) for fn in functions] == [1, 3, 3]
    assert all(fn.fast_call is not None for fn in functions)


@pytest.mark.parametrize("repetition", range(5))
def test_threads_that_assign(repetition: int) -> None:
    """Neither a run nor a trace of one function undoes what another thread assigns meanwhile."""
    interval = sys.getswitchinterval()
    state, held = SimpleNamespace(m=tg.zeros(2)), list[Any]()

    def write(x: tg.Tensor) -> None:
        state.m = state.m + x

    fn, read = tg.jit(write), tg.jit(lambda x: state.m * x)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                fn(tg.ones(2))
                held.append(read(tg.ones(2)))
        except BaseException as failure:
            failures.append(failure)

    team = [threading.Thread(target=work) for _ in range(4)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    assert state.m.tolist() == [80.0, 80.0]
    assert all(0 < x[0].item() == x[1].item() <= 80 for x in held)
