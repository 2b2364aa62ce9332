"""Everything outside that a jitted function reads is changed between calls: results stay those without jit.

Every place where Python keeps a value meets every kind of value; every setting of the process meets functions that
depend on it. The judge is the plain function.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import TilegradError

Put = Callable[[Any], None]
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
ABSENT: Any = object()


def plain(x: Any) -> Any:
    """A result as something that can be compared: types count, and the sign of a zero."""
    if isinstance(x, tg.Tensor):
        return str(x.dtype), x.requires_grad, repr(x.tolist())
    if isinstance(x, (tuple, list)):
        return [plain(y) for y in x]
    return repr(x)


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    """The result of a call, or its exception."""
    try:
        return plain(fn(*args))
    except (TilegradError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        return type(error).__name__


# --- where a value may be ----------------------------------------------------------------------

kept: Any = 1


def in_global(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    def put(value: Any) -> None:
        global kept
        kept = value

    put(1)
    return wrap(lambda x: formula(x, kept)), put


def in_closure(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    held: Any = 1

    def put(value: Any) -> None:
        nonlocal held
        held = value

    return wrap(lambda x: formula(x, held)), put


def in_default(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    def fn(x: Any, held: Any = 1) -> Any:
        return formula(x, held)

    return wrap(fn), lambda value: setattr(fn, "__defaults__", (value,))


def in_keyword_default(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    def fn(x: Any, *, held: Any = 1) -> Any:
        return formula(x, held)

    return wrap(fn), lambda value: fn.__kwdefaults__.update(held=value)


def in_default_of_another(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    def inner(x: Any, held: Any = 1) -> Any:
        return formula(x, held)

    return wrap(lambda x: inner(x)), lambda value: setattr(inner, "__defaults__", (value,))


def in_mutable_default(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    options: dict[str, Any] = {"held": 1}

    def fn(x: Any, options: Any = options) -> Any:
        return formula(x, options["held"])

    return wrap(fn), lambda value: options.update(held=value)


def in_attribute(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    thing = types.SimpleNamespace(held=1)
    return wrap(lambda x: formula(x, thing.held)), lambda value: setattr(thing, "held", value)


def in_attribute_by_name(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    thing = types.SimpleNamespace(held=1)
    return wrap(lambda x: formula(x, getattr(thing, "held"))), lambda value: setattr(thing, "held", value)  # noqa: B009


def in_list(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    things: list[Any] = [0, 1]
    return wrap(lambda x: formula(x, things[1])), lambda value: things.__setitem__(1, value)


def in_dict(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    things: dict[str, Any] = {"a": {"held": 1}}
    return wrap(lambda x: formula(x, things["a"]["held"])), lambda value: things["a"].update(held=value)


def in_tuple(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    things: tuple[Any, ...] = (1, types.SimpleNamespace(held=1))
    return wrap(lambda x: formula(x, things[1].held)), lambda value: setattr(things[1], "held", value)


def in_class(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    class Thing:
        held: Any = 1

        def __call__(self, x: Any) -> Any:
            return formula(x, self.held)

    thing = Thing()
    return wrap(lambda x: thing(x)), lambda value: setattr(Thing, "held", value)


def in_base_class(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    class Base:
        held: Any = 1

    class Thing(Base):
        def __call__(self, x: Any) -> Any:
            return formula(x, self.held)

    thing = Thing()
    return wrap(thing.__call__), lambda value: setattr(Base, "held", value)


def over_a_class(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    class Thing:
        held: Any = 1

        def __call__(self, x: Any) -> Any:
            return formula(x, self.held)

    thing = Thing()
    return wrap(lambda x: thing(x)), lambda value: setattr(thing, "held", value)


def in_slot(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    @dataclasses.dataclass(slots=True)
    class Thing:
        held: Any = 1

    thing = Thing()
    return wrap(lambda x: formula(x, thing.held)), lambda value: setattr(thing, "held", value)


def behind_a_property(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    class Thing:
        _own: Any = 1

        @property
        def held(self) -> Any:
            return self._own

    thing = Thing()
    return wrap(lambda x: formula(x, thing.held)), lambda value: setattr(thing, "_own", value)


def in_module(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    class Layer(tg.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held: Any = 1

        def forward(self, x: Any) -> Any:
            return formula(x, self.held)

    layer = tg.nn.Sequential(Layer())
    return wrap(lambda x: layer(x)), lambda value: setattr(layer[0], "held", value)


def in_partial(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    things: dict[str, Any] = {"held": 1}

    def fn(things: Any, x: Any) -> Any:
        return formula(x, things["held"])

    return wrap(functools.partial(fn, things)), lambda value: things.update(held=value)


def in_python_module(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    module: Any = types.ModuleType("settings_of_a_user")
    module.formula, module.held = formula, 1
    exec("def fn(x): return formula(x, held)", module.__dict__)
    return wrap(lambda x: module.fn(x)), lambda value: setattr(module, "held", value)


def as_argument(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    given: list[Any] = [1]
    fn = wrap(lambda x, held: formula(x, held))
    return (lambda x: fn(x, given[0])), lambda value: given.__setitem__(0, value)


def within_an_argument(formula: Any, wrap: Wrap) -> tuple[Any, Put]:
    given: dict[str, Any] = {"held": 1}
    fn = wrap(lambda x, options: formula(x, options["held"]))
    return (lambda x: fn(x, given)), lambda value: given.update(held=value)


PLACES = [
    in_global, in_closure, in_default, in_keyword_default, in_default_of_another, in_mutable_default, in_attribute,
    in_attribute_by_name, in_list, in_dict, in_tuple, in_class, in_base_class, over_a_class, in_slot,
    behind_a_property, in_module, in_partial, in_python_module, as_argument, within_an_argument,
]  # fmt: skip

# --- what may be there -------------------------------------------------------------------------

SERIES: dict[str, list[Any]] = {
    "int, then float": [1, 2, 0.5, 3, 0.25],
    "float, then int": [0.5, 1.5, 2, 3, 0.5],
    "bool among them": [True, 1, 1.0, False, 0, 0.0, -0.0, 2],
    "zeros with signs": [0.0, -0.0, 0.0, 0, -0.0],
    "numpy": [1, np.float32(2.5), np.int64(3), np.float64(1.5), 2.5, np.bool_(True)],
    "huge": [1, 2, 10**18, 10**18 + 1, 2**62, 2**70, 3],
    "not finite": [1.0, math.inf, -math.inf, math.nan, 2.0, math.nan],
    "complex": [1.0, 2.0, 2j, 3.0],
    "tensors": [1, 2, tg.tensor(3.0), tg.tensor([4, 5]), 2],
    "none and text": [1, 2, None, "three", 2],
}
FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "times": lambda x, s: x * s,
    "divided": lambda x, s: x / s,
    "of numbers": lambda x, s: x * (s / 4 + 1) - (s - 3) * 0.1,
    "reversed": lambda x, s: (s - x, s * 2 + x),
    "by type": lambda x, s: x * 2 if isinstance(s, int) else x * s,
    "by value": lambda x, s: x * 2 if s == 1 else x + s,
    "by key": lambda x, s: x + {1: 10, 2.0: 20}.get(s, 30),
}
TENSORS = {"f32": tg.tensor([1.0, -2.0]), "i64": tg.tensor([1, -2]), "0-d": tg.tensor(1.5), "bool": tg.tensor([True])}


def of_all(series: list[Any], place: Any, formula: Any, wrap: Wrap, x: Any) -> list[Any]:
    fn, put = place(formula, wrap)
    found = [outcome(fn, x)]
    for value in series:
        put(value)
        found += [outcome(fn, x), outcome(fn, x)]
    return found


def draws() -> Iterator[tuple[str, str, str, str]]:
    """All places with all series, each of these with some formula and some tensor; and all of those at one place."""
    names = [p.__name__ for p in PLACES]
    cases = itertools.cycle(itertools.product(FORMULAS, TENSORS))
    for place, series in itertools.product(names, SERIES):
        yield (place, series, *next(cases))
    for formula, tensor in itertools.product(FORMULAS, TENSORS):
        yield "in_closure", "int, then float", formula, tensor
        yield "as_argument", "bool among them", formula, tensor


@pytest.mark.parametrize("place", PLACES, ids=lambda p: p.__name__)
def test_values_outside(place: Any) -> None:
    for name, series, formula, tensor in draws():
        if name == place.__name__:
            found, expected = [
                of_all(SERIES[series], place, FORMULAS[formula], wrap, TENSORS[tensor])
                for wrap in (tg.jit, lambda fn: fn)
            ]
            refused = {"TraceError"} if (series, formula) == ("tensors", "by value") else set()
            for jitted, own in zip(found, expected, strict=True):
                assert jitted == own or jitted in refused, (series, formula, tensor)
