"""What a function reads from outside by name: closures, globals, attributes, entries of lists and dicts.

A trace sees only what is there at the time. So that nothing is silently frozen, jit looks again at every call. A
number that changes becomes an input of the program, or, where it decides what is computed, gets programs of its own;
anything else that was replaced (a tensor, a layer, a mode, a function) makes the program one for other calls.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from types import (
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from ..ir.node import Node
from ..lazy.handle import Handle
from .numbers import Number, same_number

ABSENT = object()
"""What is read where nothing is any more."""

_FIXED = (int, float, bool, str, bytes, complex, range, frozenset)

MOST_ENTRIES = 256
"""Longer lists and dicts are data rather than settings, and are not looked at."""

_IMPLIED = frozenset(
    f"__{name}__"
    for name in "call getitem setitem len iter next contains bool enter exit getattr add radd sub rsub mul rmul matmul "
    "rmatmul truediv rtruediv floordiv mod pow neg abs eq lt le gt ge int float index".split()
)
"""Methods that are called without being named."""

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_CALLED = ("__call__", "forward")


class Watched(Node):
    """Something outside: where it is, under which name."""

    place: Any
    """A cell, a list, or a dict: one of the user's, or that of a module or of an object."""
    name: Any

    def read(self) -> Any:
        try:
            found = self.place.cell_contents if self.place.__class__ is CellType else self.place[self.name]
        except (LookupError, ValueError):
            return ABSENT
        return found._number if found.__class__ is Number else found  # another thread traces

    def write(self, value: Any) -> None:
        if self.place.__class__ is CellType:
            self.place.cell_contents = value
        else:
            self.place[self.name] = value

    def test(self, n: str, found: Any) -> str:
        """The text of the test that what was found is still there; `n` is behind the names of what it compares."""
        if self.place.__class__ is CellType:
            return f"place{n}.cell_contents is found{n}"
        if found is ABSENT:
            return f"name{n} not in place{n}"
        return f"place{n}[name{n}] is found{n}"

    def key(self) -> tuple[int, Any]:
        """Equal for what is at one place under one name."""
        return id(self.place), self.name


class Length(Watched):
    """How many entries there are."""

    def read(self) -> int:
        return len(self.place)

    def test(self, n: str, found: Any) -> str:
        return f"len(place{n}) == found{n}" if found else f"not place{n}"


class Attribute(Watched):
    """An attribute without a dict: defaults of a function, slots."""

    def read(self) -> Any:
        return getattr(self.place, self.name, ABSENT)

    def write(self, value: Any) -> None:
        setattr(self.place, self.name, value)

    def test(self, n: str, found: Any) -> str:
        return f"getattr(place{n}, name{n}, None) is found{n}"


class OfClass(Attribute):
    """An attribute of a class itself."""

    def read(self) -> Any:
        return vars(self.place).get(self.name, ABSENT)

    def test(self, n: str, found: Any) -> str:
        return f"vars(place{n})[name{n}] is found{n}"


class Outside(Node):
    """All that a function reads outside."""

    numbers: list[Watched]
    others: list[tuple[Watched, Any]]
    """With what was found there."""
    layers: list[tuple[Any, Any]]
    """Layers of the library, and their settings and hooks, which are looked at when `Surroundings` change."""


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
            return Outside(search.numbers[:numbers], others, [(x, settings_of(x)) for x in search.layers])
        attributes = search.attributes


def same(x: Any, y: Any) -> bool:
    """Whether one argument stands for another in a program: the same thing, or an equal one."""
    if x is y:
        return True
    if x.__class__ is not y.__class__ or isinstance(x, Handle):
        return False
    if is_number(x):
        return same_number(x, y)
    try:
        equal = x == y
    except Exception:  # things that cannot be compared, such as objects with arrays in them
        return False
    return equal is True and (x.__class__ is not complex or repr(x) == repr(y))


def unchanged(x: Any, y: Any) -> bool:
    """Whether what stands outside is the same thing as before, or an equal one that cannot change."""
    return x is y or (x.__class__ in _FIXED and same(x, y))


def settings_of(layer: Any) -> dict[str, Any]:
    """Collect a layer's hooks and, if it is one of ours, its settings."""
    own = layer.__dict__
    kept = (*_REGISTRIES, "_training", "_hooks", "_passing")
    found = {name: x for name, x in own.items() if name not in kept} if layer._of_ours else {}
    found["_hooks"] = {kind: dict(hooks) for kind, hooks in own.get("_hooks", {}).items() if hooks}
    return found


def hooks_of(tensor: Handle) -> tuple[Any, ...]:
    """Collect the hooks that are called with gradients of a tensor."""
    hooks = tensor.own_value().__dict__.get("hooks", ())
    return *hooks, None, *tensor.__dict__.get("_after_gradient", ())


def same_settings(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether settings are what they were; an equal thing that can change may have been another."""
    hooks = now["_hooks"] == before["_hooks"]
    return (
        hooks
        and now.keys() == before.keys()
        and all(unchanged(now[name], before[name]) or name == "_hooks" for name in now)
    )


def is_number(x: object) -> bool:
    return x.__class__ is int or x.__class__ is float or x.__class__ is bool


class _Search:
    """One walk from a function through what it mentions; attributes are followed if they have one of some names."""

    def __init__(self, attributes: set[str]) -> None:
        self.known = attributes
        self.attributes = set(attributes)
        self.numbers: list[Watched] = []
        self.others: list[tuple[Watched, Any]] = []
        self.layers: list[Any] = []
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
                self.visit(x.args)
                self._container(x.keywords)
            case property():
                self.visit(x.fget)
            case staticmethod() | classmethod():
                self.visit(x.__func__)
            case functools.cached_property():
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

    def notice(self, place: Any, name: Any, kind: type[Watched] = Watched) -> None:
        """Notes what is at a place, and follows it."""
        watched = kind(place, name)
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
        if fn.__defaults__:
            self.others.append((Attribute(fn, "__defaults__"), fn.__defaults__))
            self.visit(fn.__defaults__)
        if fn.__kwdefaults__:
            self.others.append((Attribute(fn, "__kwdefaults__"), fn.__kwdefaults__))
            self._container(fn.__kwdefaults__)
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
        module = x.__name__ if isinstance(x, ModuleType) else type(x).__module__
        if own is not None:
            self.visit(own.get("__wrapped__"))
            for name in _REGISTRIES:
                if isinstance(own.get(name), dict):
                    self._container(own[name])
            if hasattr(type(x), "_of_ours") and "_hooks" in own:
                self.layers.append(x)
        if isinstance(x, ModuleType):
            if not _is_ours(module):
                self._module(x)
        elif not _is_ours(module):
            for name in sorted(self.known):
                if own is not None and name in own:
                    self.notice(own, name)
                else:
                    self._inherited(x, own, name)
            self.visit(type(x))

    def _module(self, x: ModuleType) -> None:
        """Watch the names of a Python module; search on in the user's own."""
        own = vars(x)
        for name in sorted(self.known & own.keys()):
            if isinstance(own[name], (Handle, str, float, int)) or (_is_the_users(x) and not name.startswith("__")):
                self.notice(own, name)

    def _inherited(self, x: Any, own: dict[str, Any] | None, name: str) -> None:
        """Watch an attribute inherited from the class: an own one may replace it."""
        holder = next((c for c in type(x).__mro__ if name in vars(c)), None)
        if holder is None or _is_ours(holder.__module__):
            return
        found = vars(holder)[name]
        if isinstance(found, MemberDescriptorType):
            self.notice(x, name, Attribute)
        elif own is not None and not isinstance(found, property):
            self.others.append((Watched(own, name), ABSENT))

    def _class(self, x: type) -> None:
        """What stands in a class for all its objects."""
        if not _is_ours(x.__module__):
            own = vars(x)
            for name in sorted(own.keys() & self.known | own.keys() & _IMPLIED):
                if not isinstance(own[name], (MemberDescriptorType, GetSetDescriptorType)):
                    self.notice(x, name, OfClass)
        for base in x.__bases__:
            self.visit(base)


def _is_the_users(module: ModuleType) -> bool:
    """Whether a module of Python is neither of the standard library nor installed."""
    file = getattr(module, "__file__", None) or ""
    return module.__name__.partition(".")[0] not in sys.stdlib_module_names and "-packages" not in file


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
        if isinstance(part, str) and "getattr" in code.co_names and part.isidentifier():
            attributes.add(part)
        elif isinstance(part, CodeType):
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
