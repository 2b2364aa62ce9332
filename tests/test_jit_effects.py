"""Side effects of a jitted function on counters, flags and containers happen once per call, as without jit."""

from __future__ import annotations

import contextlib
import copy
import io
from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilegrad as tg

Story = tuple[Callable[[tg.Tensor], tg.Tensor], Callable[[], Any]]
"""A function, and what to look at after each call."""
CALLS = 6

counted = 0


def with_global() -> Story:
    global counted
    counted = 0

    def fn(x: tg.Tensor) -> tg.Tensor:
        global counted
        counted += 1
        return x / counted

    return fn, lambda: counted


def with_closure() -> Story:
    rate = 1.0

    def fn(x: tg.Tensor) -> tg.Tensor:
        nonlocal rate
        rate *= 0.5
        return x * rate

    return fn, lambda: rate


def with_layer() -> Story:
    class Counting(tg.nn.Module):
        times = 0

        def forward(self, x: tg.Tensor) -> tg.Tensor:
            self.times += 1
            return x * self.times

    layer = Counting()
    return layer, lambda: layer.times


def with_object() -> Story:
    thing = SimpleNamespace(n=0, last=None, kind="even")

    def fn(x: tg.Tensor) -> tg.Tensor:
        thing.n += 1
        thing.kind = "odd" if thing.kind == "even" else "even"
        thing.last = "seen" if thing.last is None else None
        return x * (thing.n if thing.kind == "odd" else -1)

    return fn, lambda: (thing.n, thing.last, thing.kind)


def with_cursor() -> Story:
    held, table = {"at": 0}, [1.0, 2.0, 5.0]

    def fn(x: tg.Tensor) -> tg.Tensor:
        at = held["at"]
        held["at"] = (at + 1) % 3
        return x + table[at]

    return fn, lambda: dict(held)


def with_turned_list() -> Story:
    turned, lines = [1.0, 2.0, 3.0], deque(["a", "b"])

    def fn(x: tg.Tensor) -> tg.Tensor:
        turned.append(turned.pop(0))
        lines.rotate(1)
        return x * turned[0] + (1 if lines[0] == "a" else 0)

    return fn, lambda: (list(turned), list(lines))


def with_lists_that_grow() -> Story:
    told: list[Any] = []
    seen: set[int] = set()
    memory = np.zeros(3)

    def fn(x: tg.Tensor) -> tg.Tensor:
        told.append(len(seen))
        told.insert(0, "x")
        seen.add(len(told))
        memory[len(told) % 3] += 1
        return x * len(told) + float(memory[0])

    return fn, lambda: (list(told), sorted(seen), memory.tolist())


def with_first_time() -> Story:
    state = {"first": True, "count": 0}

    def fn(x: tg.Tensor) -> tg.Tensor:
        if state["first"]:
            state["first"] = False
            return x * 0
        return x

    return fn, lambda: dict(state)


def with_kept_tensor() -> Story:
    kept: dict[str, Any] = {}
    thing = SimpleNamespace(mask=None)

    def fn(x: tg.Tensor) -> tg.Tensor:
        if thing.mask is None:
            thing.mask = tg.tril(tg.ones(2, 2))
        kept["activation"] = (thing.mask @ x).detach()
        return kept["activation"] + 1

    return fn, lambda: (thing.mask.tolist(), kept["activation"].tolist())


def with_growing_cache() -> Story:
    cache: dict[str, Any] = {"keys": None}
    weight = tg.ones(2, requires_grad=True)
    thing = SimpleNamespace(a=tg.zeros(2), b=tg.ones(2))

    def fn(x: tg.Tensor) -> tg.Tensor:
        thing.a, thing.b = thing.b, thing.a + x
        cache["keys"] = x[None] if cache["keys"] is None else tg.cat([cache["keys"], x[None]])
        cache["last"] = weight * x
        return (cache["keys"].sum(0) * cache["last"] * thing.a).detach()

    return fn, lambda: (cache["keys"].tolist(), cache["last"].tolist(), thing.a.tolist(), thing.b.tolist())


def with_class_and_slots() -> Story:
    class Both:
        __slots__ = ("n",)
        times = 0

    held = Both()
    held.n = 0  # type: ignore[attr-defined]

    def fn(x: tg.Tensor) -> tg.Tensor:
        held.n += 1  # type: ignore[attr-defined]
        Both.times += 2
        return x * held.n + Both.times  # type: ignore[attr-defined]

    return fn, lambda: (held.n, Both.times)  # type: ignore[attr-defined]


def with_arguments() -> Story:
    told: dict[str, Any] = {"n": 0.0, "list": [1], "mean": tg.zeros(2)}

    def fn(x: tg.Tensor, told: dict[str, Any]) -> tg.Tensor:
        told["n"] += 1
        told["list"].append(told["list"].pop(0) + 1)
        told["mean"] = told["mean"] * 0.5 + x
        told["last"] = x * told["n"]
        return told["mean"] + told["list"][0]

    return partial(fn, told=told), lambda: (told["n"], told["list"], told["mean"].tolist(), told["last"].tolist())


def with_rate() -> Story:
    weight = tg.zeros(2, requires_grad=True)
    optimizer = tg.optim.SGD([weight], 1.0)

    def fn(x: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
        return weight.detach().clone()

    return fn, lambda: optimizer.param_groups[0]["lr"]


def with_recording() -> Story:
    tg.set_grad_enabled(True)

    def fn(x: tg.Tensor) -> tg.Tensor:
        tg.set_grad_enabled(not tg.is_grad_enabled())
        return x * 2

    return fn, tg.is_grad_enabled


STORIES = [
    with_global, with_closure, with_layer, with_object, with_cursor, with_turned_list, with_lists_that_grow,
    with_first_time, with_kept_tensor, with_growing_cache, with_class_and_slots, with_arguments, with_rate,
    with_recording,
]  # fmt: skip


def told(story: Callable[[], Story], jitted: bool) -> list[Any]:
    fn, look = story()
    given = fn.keywords if isinstance(fn, partial) else {}
    called: Callable[..., tg.Tensor] = fn.func if isinstance(fn, partial) else fn
    called = tg.jit(called) if jitted else called
    seen = [(called(tg.full((2,), float(n + 1)), **given).tolist(), copy.deepcopy(look())) for n in range(CALLS)]
    tg.set_grad_enabled(True)
    return seen


@pytest.mark.parametrize("story", STORIES)
def test_changes_outside_happen_at_each_call(story: Callable[[], Story]) -> None:
    with contextlib.redirect_stderr(io.StringIO()):
        assert told(story, jitted=True) == told(story, jitted=False)


def test_a_step_that_counts_says_so_once(capsys: Any) -> None:
    fn, _ = with_closure()
    jitted = tg.jit(fn)
    for _ in range(CALLS):
        jitted(tg.ones(2))
    assert capsys.readouterr().err.count("runs without a program: it changes a variable outside") == 1
    assert len(jitted.programs) == 2


def test_what_is_made_at_the_first_call_is_compiled_from_the_second_on() -> None:
    fn, _ = with_kept_tensor()
    jitted = tg.jit(fn)
    with contextlib.redirect_stderr(io.StringIO()):
        for _ in range(CALLS):
            jitted(tg.ones(2))
    assert [bool(p.unjitted_reason) for p in jitted.programs] == [False, True]


def test_changes_stay_undone_when_the_trace_is_given_up() -> None:
    told, x = [], tg.ones(2)

    def fn(x: tg.Tensor) -> tg.Tensor:
        told.append(1)
        x.requires_grad_()
        return x * 2

    with contextlib.redirect_stderr(io.StringIO()):
        tg.jit(fn)(x)
    assert told == [1]


def test_an_error_that_is_caught_may_depend_on_sizes(capsys: Any) -> None:
    def fn(x: tg.Tensor) -> tg.Tensor:
        try:
            return x.view(7)
        except RuntimeError:
            return x * 2

    jitted = tg.jit(fn)
    for size in (2, 7, 3, 7, 2):
        x = tg.arange(float(size))
        assert jitted(x).tolist() == fn(x).tolist()
    assert "compiled for all sizes" not in capsys.readouterr().err
