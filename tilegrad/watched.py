"""Python numbers that a function reads from outside: closures, globals, attributes of objects it mentions.

A trace sees only their values. So that none is silently frozen, jit looks at them at every call: a number that
changes becomes an input of the program, or, where it decides what is computed, gets programs of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .handle import Handle
from .ir.node import Node


class Watched(Node):
    """One number: where it is, under which name."""

    place: Any
    """A cell, or the dict of a module or of an object."""
    name: str

    def read(self) -> Any:
        return self.place.cell_contents if isinstance(self.place, CellType) else self.place.get(self.name)

    def write(self, value: Any) -> None:
        if isinstance(self.place, CellType):
            self.place.cell_contents = value
        else:
            self.place[self.name] = value


def numbers_of(fn: Callable[..., Any]) -> list[Watched]:
    """The numbers from outside that the code of a function mentions."""
    found: list[Watched] = []
    objects: list[Any] = []
    if isinstance(fn, MethodType):
        objects.append(fn.__self__)
        fn = fn.__func__
    if not isinstance(fn, FunctionType):
        return found
    code = fn.__code__
    names = _names(code)
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        _notice(Watched(cell, name), found, objects)
    for name in names:
        if name in fn.__globals__:
            _notice(Watched(fn.__globals__, name), found, objects)
    for thing in objects:
        attributes = getattr(thing, "__dict__", None)
        if attributes is not None and not isinstance(thing, ModuleType | FunctionType | type | Handle):
            found += [Watched(attributes, name) for name in names if _is_number(attributes.get(name))]
    return found


def _notice(watched: Watched, found: list[Watched], objects: list[Any]) -> None:
    try:
        value = watched.read()
    except ValueError:  # a cell that is not filled yet
        return
    if _is_number(value):
        found.append(watched)
    else:
        objects.append(value)


def _is_number(x: object) -> bool:
    return x.__class__ is int or x.__class__ is float or x.__class__ is bool


def _names(code: CodeType) -> list[str]:
    """The names that code, and the functions defined in it, look up outside."""
    names = dict.fromkeys(code.co_names)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            names |= dict.fromkeys(_names(part))
    return list(names)
