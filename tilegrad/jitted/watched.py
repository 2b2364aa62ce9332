"""What a function reads from outside by name: closures, globals, attributes, entries of lists and dicts.

A trace sees only what is there at the time. So that nothing is silently frozen, jit looks again at every call. A
number that changes becomes an input of the program, or, where it decides what is computed, gets programs of its own;
anything else that was replaced (a tensor, a layer, a mode, a function) makes the program one for other calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from ..ir.node import Node
from ..lazy.handle import Handle

ABSENT = object()
"""What is read where nothing is any more."""

_FIXED = (int, float, bool, str, bytes, complex, range, frozenset)

MOST_ENTRIES = 256
"""Longer lists and dicts are data rather than settings, and are not looked at."""

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_CALLED = ("__call__", "forward")


class Watched(Node):
    """Something outside: where it is, under which name."""

    place: Any
    """A cell, a list, or a dict: one of the user's, or that of a module or of an object."""
    name: Any

    def read(self) -> Any:
        try:
            return self.place.cell_contents if self.place.__class__ is CellType else self.place[self.name]
        except (LookupError, ValueError):
            return ABSENT

    def write(self, value: Any) -> None:
        if self.place.__class__ is CellType:
            self.place.cell_contents = value
        else:
            self.place[self.name] = value

    def key(self) -> tuple[int, Any]:
        """Equal for what is at one place under one name."""
        return id(self.place), self.name


class Length(Watched):
    """How many entries there are."""

    def read(self) -> int:
        return len(self.place)


class Outside(Node):
    """All that a function reads outside."""

    numbers: list[Watched]
    others: list[tuple[Watched, Any]]
    """With what was found there."""


def outside(fn: Callable[..., Any], arguments: Sequence[Any] = ()) -> Outside:
    """What the code of a function, and that of the user's functions which it mentions, reads by name.

    Of objects among its arguments, too, but their numbers do not become inputs: they are not there in every call.
    """
    attributes = set(_CALLED)
    while True:
        search = _Search(attributes)
        search.visit(fn)
        numbers = len(search.numbers)
        for x in arguments:
            search.visit(x)
        if search.attributes == attributes:
            others = [*search.others, *((w, w.read()) for w in search.numbers[numbers:])]
            return Outside(search.numbers[:numbers], others)
        attributes = search.attributes


def same(x: Any, y: Any) -> bool:
    """Whether one argument stands for another in a program: the same thing, or an equal one."""
    if x is y:
        return True
    if x.__class__ is not y.__class__ or isinstance(x, Handle):
        return False
    try:
        equal = x == y
    except Exception:  # things that cannot be compared, such as objects with arrays in them
        return False
    return equal is True


def unchanged(x: Any, y: Any) -> bool:
    """Whether what stands outside is the same thing as before, or an equal one that cannot change."""
    return x is y or (x.__class__ in _FIXED and x.__class__ is y.__class__ and x == y)


def is_number(x: object) -> bool:
    return x.__class__ is int or x.__class__ is float or x.__class__ is bool


class _Search:
    """One walk from a function through what it mentions; attributes are followed if they have one of some names."""

    def __init__(self, attributes: set[str]) -> None:
        self.known = attributes
        self.attributes = set(attributes)
        self.numbers: list[Watched] = []
        self.others: list[tuple[Watched, Any]] = []
        self.seen: dict[int, Any] = {}

    def visit(self, x: Any) -> None:
        """Notes what is mentioned in a function, or kept in a container or an object."""
        if x is None or isinstance(x, (Handle, str, bytes)) or is_number(x) or id(x) in self.seen:
            return
        self.seen[id(x)] = x
        match x:
            case FunctionType():
                self._function(x)
            case MethodType():
                self.visit(x.__self__)
                self.visit(x.__func__)
            case functools.partial():
                self.visit(x.func)
            case tuple():
                for part in x:
                    self.visit(part)
            case dict() | list():
                self._container(x)
            case type():
                self._class(x)
            case _:
                self._object(x)

    def notice(self, place: Any, name: Any) -> None:
        """Notes what is at a place, and follows it."""
        watched = Watched(place, name)
        value = watched.read()
        if value is ABSENT or isinstance(value, ModuleType):
            self.visit(value)
        elif is_number(value):
            self.numbers.append(watched)
        else:
            self.others.append((watched, value))
            self.visit(value)

    def _function(self, fn: FunctionType) -> None:
        if _is_ours(fn.__module__):
            return
        names, attributes = _mentioned(fn.__code__)
        self.attributes |= attributes
        for cell in fn.__closure__ or ():
            self.notice(cell, None)
        for name in names:
            if name in fn.__globals__:
                self.notice(fn.__globals__, name)

    def _container(self, x: Any) -> None:
        if len(x) > MOST_ENTRIES:
            return
        self.others.append((Length(x, None), len(x)))
        for name in list(x) if isinstance(x, dict) else range(len(x)):
            self.notice(x, name)

    def _object(self, x: Any) -> None:
        own = getattr(x, "__dict__", None)
        if own is None:
            return
        self.visit(own.get("__wrapped__"))
        kind = type(x)
        module = x.__name__ if isinstance(x, ModuleType) else kind.__module__
        for name in _REGISTRIES:
            if isinstance(own.get(name), dict):
                self._container(own[name])
        if _is_ours(module):
            return
        for name in self.known:
            if name in own and (not isinstance(x, ModuleType) or isinstance(own[name], (Handle, str, float, int))):
                self.notice(own, name)
            elif isinstance(method := getattr(kind, name, None), FunctionType):
                self.visit(method)
        if not isinstance(x, ModuleType):
            self.visit(kind)

    def _class(self, x: type) -> None:
        """What stands in a class for all its objects."""
        for name in () if _is_ours(x.__module__) else self.known & vars(x).keys():
            if isinstance(vars(x)[name], (Handle, str, float, int)):
                self.notice(vars(x), name)
        for base in x.__bases__:
            self.visit(base)


def _is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] in ("tilegrad", "numpy", "builtins", "functools")


@functools.cache
def _mentioned(code: CodeType) -> tuple[list[str], set[str]]:
    """The globals, and the attributes, that code and the functions defined in it look up."""
    import dis

    names: dict[str, None] = {}
    attributes: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[step.argval] = None
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"):
            attributes.add(step.argval)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            inner, more = _mentioned(part)
            names |= dict.fromkeys(inner)
            attributes |= more
    return list(names), attributes


def title(fn: Callable[..., Any]) -> str:
    """What a function is called where people read of it; a module by its class."""
    if isinstance(fn, functools.partial):
        return title(fn.func)
    name: str = getattr(fn, "__name__", type(fn).__name__)
    return type(fn.__self__).__name__ if name == "__call__" and isinstance(fn, MethodType) else name
