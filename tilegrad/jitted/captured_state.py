"""Search what a function reads from outside by name: closures, globals, attributes, entries of lists and dicts.

A trace sees only the values of one call. So that nothing is silently frozen, jit compares them at every call. A number
that changes becomes an input of the program, or, if control flow depends on it, gets programs of its own; any other
replaced object (a tensor, a layer, a mode, a function) requires another program.
"""

from __future__ import annotations

import builtins
import functools
import operator
import os
import random
import sys
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from ..ir.node import Node
from ..lazy.handle import Handle
from .nondeterminism import is_asked
from .variables import (
    ABSENT,
    MAX_COMPARED_BYTES,
    AllEntries,
    ArrayContents,
    Attribute,
    Bytes,
    InCell,
    InContext,
    Length,
    OfClass,
    ReadOnly,
    Referent,
    SetMembers,
    WatchedVariable,
    is_number,
    unchanged,
)

MAX_ENTRIES = 256
"""Number of entries above which lists and dicts are watched as a whole."""
MAX_WATCHED_VARIABLES = 1 << 14
"""Number of watched variables in long lists and dicts above which a function runs without a program."""

_IMPLIED = frozenset(
    f"__{name}__"
    for name in "call getitem setitem len iter next contains bool enter exit getattr add radd sub rsub mul rmul matmul "
    "rmatmul truediv rtruediv floordiv mod pow neg abs eq lt le gt ge int float index get set delete missing hash "
    "iadd isub imul itruediv divmod round and or xor invert reversed getattribute".split()
)
"""Methods that are called without being named."""

MAYBE = "?"
"""Prefix of an attribute that may be missing."""
ANY = "*"
"""Stands for all attributes: the function looks some up by computed names."""

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_CALLED = ("__call__", "forward")


class CapturedState(Node):
    """All that a function reads outside."""

    numbers: list[WatchedVariable]
    others: list[tuple[WatchedVariable, Any]]
    """Other variables with their values."""
    layers: list[tuple[Any, Any]]
    """Layers of the library with their settings and hooks, compared when `Surroundings` change."""
    unseen: str
    """Why something that it reads cannot be compared before each call; empty if everything can."""
    asks: bool
    """Whether it mentions a clock, a file or the like."""
    drawn: list[Any]
    """Random generators of Python or numpy."""
    groups: list[dict[str, Any]]
    """Parameter groups of the library's optimizers: programs read them anew at every call."""

    def refreshed(self) -> CapturedState:
        """Read the tensors in variables again: another thread may have assigned others since the search."""
        others = [(w, w.read() if isinstance(x, Handle) else x) for w, x in self.others]
        return self.replaced(others=others)  # type: ignore[no-any-return]


def outside(fn: Callable[..., Any], arguments: Sequence[Any] = ()) -> CapturedState:
    """Find what the code of a function, and of the user's functions that it mentions, reads by name.

    Objects among its arguments are searched, too, but their numbers do not become inputs: they are not in every call.
    """
    attributes = set(_CALLED)
    while True:
        search = _StateSearch(attributes)
        search.follow([fn])
        numbers = len(search.numbers)
        search.follow(arguments)
        if search.attributes == attributes:
            others = [*search.others, *((w, w.read()) for w in search.numbers[numbers:])]
            layers = [(x, settings_of(x)) for x in search.layers]
            if len(others) > MAX_WATCHED_VARIABLES:
                search.unseen = (
                    f"it reads {len(others)} places in lists, dicts and objects: give what varies as arguments"
                )
            found = layers, search.unseen, search.asks, search.drawn, search.groups
            return CapturedState(search.numbers[:numbers], others, *found)
        attributes = search.attributes


def settings_of(layer: Any) -> dict[str, Any]:
    """Collect a layer's hooks and, if it is one of ours, its settings."""
    own = layer.__dict__
    kept = (*_REGISTRIES, "_training", "_hooks", "_passing")
    found = {name: x for name, x in own.items() if name not in kept} if layer._of_ours else {}
    found["_hooks"] = {kind: dict(hooks) for kind, hooks in own.get("_hooks", {}).items() if hooks}
    return found


def hooks_of(tensor: Handle) -> tuple[Any, ...]:
    """Collect the hooks that are called with gradients of a tensor."""
    hooks = tensor.own_value().provenance.hooks or ()
    return *hooks, None, *tensor.__dict__.get("_after_gradient", ())


def same_settings(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether settings are unchanged; an equal mutable object may have been another one."""
    hooks = now["_hooks"] == before["_hooks"]
    return (
        hooks
        and now.keys() == before.keys()
        and all(unchanged(now[name], before[name]) or name == "_hooks" for name in now)
    )


class _StateSearch:
    """One search from a function through what it mentions; attributes are followed by name."""

    def __init__(self, attributes: set[str]) -> None:
        self.known = attributes
        self.attributes = set(attributes)
        self.numbers: list[WatchedVariable] = []
        self.others: list[tuple[WatchedVariable, Any]] = []
        self.layers: list[Any] = []
        self.seen: dict[int, Any] = {}
        self.waiting: deque[Any] = deque()
        self.unseen = ""
        self.asks = False
        self.drawn: list[Any] = []
        self.groups: list[dict[str, Any]] = []

    def follow(self, beginnings: Sequence[Any]) -> None:
        """Follow all references from some objects, iteratively, so that a long chain does not overflow the stack."""
        for x in beginnings:
            self.visit(x)
        while self.waiting:
            self._visit_object(self.waiting.popleft())

    def visit(self, x: Any) -> None:
        """Queue an object, unless it was visited or has no references."""
        if x is None or isinstance(x, (Handle, str, bytes)) or is_number(x) or id(x) in self.seen:
            return
        self.seen[id(x)] = x
        self.waiting.append(x)

    def _visit_object(self, x: Any) -> None:
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
            case dict() | list() | deque():
                self._container(x)
            case MappingProxyType():
                self._container(x, ReadOnly)
            case set():
                self._snapshot(SetMembers(x, None))
                for part in x:
                    self.visit(part)
            case type():
                self._watch_class(x)
            case _:
                self._visit_other(x)

    def _visit_other(self, x: Any) -> None:
        match x:
            case np.ndarray():
                self._watch_array(x)
            case bytearray() | array():
                self._snapshot(Bytes(x, None))
            case weakref.ref():
                self.watch_variable(x, None, Referent)
            case ContextVar():
                self.watch_variable(x, None, InContext)
            case operator.attrgetter() | operator.methodcaller():
                self.attributes.add(ANY)
            case random.Random():
                self.drawn.append(x)
            case os._Environ():
                self._snapshot(AllEntries(vars(x)["_data"], None))
            case BuiltinFunctionType():
                self.asks = self.asks or is_asked(x)
                self.visit(None if isinstance(x.__self__, ModuleType) else x.__self__)
            case Iterator() if not isinstance(type(x).__dict__.get("__next__"), FunctionType):
                self.unseen = f"it takes from {type(x).__name__} outside, which gives something else each time"
            case _:
                self._object(x)

    def watch_variable(self, place: Any, name: Any, kind: type[WatchedVariable] = WatchedVariable) -> None:
        """Record a variable, and follow its value."""
        watched = kind(place, name)
        value = watched.read()
        if value is ABSENT or isinstance(value, ModuleType):
            self.visit(value)
        elif is_number(value) and watched.writable:
            self.numbers.append(watched)
        else:
            self.others.append((watched, value))
            self.visit(value)

    def _function(self, fn: FunctionType) -> None:
        if _is_ours(fn.__module__):
            return
        if _is_stdlib_module(fn.__module__) or _is_installed_package((fn.__module__ or "").partition(".")[0]):
            self._visit_library_function(fn)
            return
        if fn.__defaults__:
            self.others.append((Attribute(fn, "__defaults__"), fn.__defaults__))
            self.visit(fn.__defaults__)
        if fn.__kwdefaults__:
            self.others.append((Attribute(fn, "__kwdefaults__"), fn.__kwdefaults__))
            self._container(fn.__kwdefaults__)
        self.others.append((Attribute(fn, "__code__"), fn.__code__))
        names, attributes = _names_in(fn.__code__)
        self.attributes |= attributes
        for cell in fn.__closure__ or ():
            self.watch_variable(cell, None, InCell)
        for name in names:
            self._global(fn.__globals__, name)
        for name in sorted(self._attributes_of(vars(fn)) - {"__wrapped__"}):
            self.watch_variable(vars(fn), name)
        self.visit(fn.__dict__.get("__wrapped__"))

    def _visit_library_function(self, fn: FunctionType) -> None:
        """Search the arguments of a function of the standard library or of an installed package, not its code."""
        self.asks = self.asks or is_asked(fn)
        if fn is os.getenv:
            self.visit(os.environ)
        for cell in fn.__closure__ or ():
            self.watch_variable(cell, None, InCell)
        self.visit(fn.__dict__.get("__wrapped__"))

    def _global(self, found: dict[str, Any], name: str) -> None:
        """Watch a global name that may later shadow a builtin."""
        if name in found:
            self.watch_variable(found, name)
            return
        self.others.append((WatchedVariable(found, name), ABSENT))
        builtin = vars(builtins).get(name, ABSENT)
        if builtin is not ABSENT:
            self.others.append((WatchedVariable(vars(builtins), name), builtin))
            self.asks = self.asks or builtin in (open, input)
            if builtin in (eval, exec, globals, locals):
                self.unseen = f"it looks up names by `{name}`"
            elif builtin is vars:
                self.attributes.add(ANY)
            elif isinstance(builtin, (FunctionType, type)) and not _is_ours(builtin.__module__):
                self.visit(builtin)

    def _attributes_of(self, names: Mapping[str, Any]) -> set[str]:
        """Select the attribute names that the function may look up on an object."""
        return {n for n in names if isinstance(n, str)} if ANY in self.known else self.known & names.keys()

    def _container(self, x: Any, kind: type[WatchedVariable] = WatchedVariable) -> None:
        if len(x) > MAX_ENTRIES:
            self._snapshot(AllEntries(x, None))
            for part in x.values() if isinstance(x, Mapping) else x:
                self.visit(part)
            return
        self.others.append((Length(x, None), len(x)))
        for name in list(x) if isinstance(x, Mapping) else range(len(x)):
            self.watch_variable(x, name, kind)

    def _snapshot(self, watched: WatchedVariable) -> None:
        self.others.append((watched, watched.read()))

    def _watch_array(self, x: np.ndarray) -> None:
        """Watch the elements of an array, unless it is read-only."""
        whole: Any = x
        while not whole.flags.writeable and isinstance(whole.base, np.ndarray):
            whole = whole.base
        if not whole.flags.writeable:
            return
        if x.nbytes > MAX_COMPARED_BYTES or x.dtype.hasobject:
            self.unseen = (
                f"it reads an array of numpy's of shape {list(x.shape)} outside, which may change: give it as an "
                "argument, make a tensor of it before, or say A.flags.writeable = False"
            )
            return
        self._snapshot(ArrayContents(x, None))

    def _object(self, x: Any) -> None:
        own = getattr(x, "__dict__", None)
        module = x.__name__ if isinstance(x, ModuleType) else type(x).__module__
        if module.startswith("numpy.random") and (hasattr(x, "bit_generator") or hasattr(x, "get_state")):
            self.drawn.append(x)
        if own is not None:
            self._visit_layer(x, own)
            if _is_ours(module) and "param_groups" in self.known:
                self.groups += own.get("param_groups", ())
        if _is_ours(module):
            return
        if isinstance(x, ModuleType):
            self._watch_module(x)
        else:
            self._watch_attributes(x, own)

    def _visit_layer(self, x: Any, own: dict[str, Any]) -> None:
        """Visit what a wrapper wraps, and the registries of a layer."""
        self.visit(own.get("__wrapped__"))
        for name in _REGISTRIES:
            if isinstance(own.get(name), dict):
                self._container(own[name])
        if hasattr(type(x), "_of_ours") and "_hooks" in own:
            self.layers.append(x)

    def _watch_attributes(self, x: Any, own: dict[str, Any] | None) -> None:
        """Watch the attributes that the function may look up on an object of the user."""
        for name in sorted((self.known - {ANY}) | (self._attributes_of(own) if own is not None else set())):
            if own is not None and name in own:
                self.watch_variable(own, name)
            else:
                self._watch_inherited(x, own, name)
        if own is not None and type(x).__module__ == "collections":
            self.visit(own.get("data"))
            self.visit(own.get("maps"))
        self.visit(type(x))

    def _watch_module(self, x: ModuleType) -> None:
        """Watch the names of a Python module; follow them in the user's own modules."""
        own = vars(x)
        for name in sorted(self.known & own.keys()):
            self.asks = self.asks or is_asked(own[name])
            if x is os and name in ("environ", "getenv"):
                self.visit(os.environ)
            elif isinstance(own[name], (Handle, str, float, int)) or (_is_user_module(x) and not name.startswith("__")):
                self.watch_variable(own, name)

    def _watch_inherited(self, x: Any, own: dict[str, Any] | None, name: str) -> None:
        """Watch an inherited class attribute, which an instance attribute may shadow later."""
        holder = next((c for c in type(x).__mro__ if name in vars(c)), None)
        if holder is None and own is not None and MAYBE + name in self.known:
            self.others.append((WatchedVariable(own, name), ABSENT))
        if holder is None or _is_ours(holder.__module__):
            return
        found = vars(holder)[name]
        if isinstance(found, MemberDescriptorType):
            self.watch_variable(x, name, Attribute)
        elif own is not None and not isinstance(found, property):
            self.others.append((WatchedVariable(own, name), ABSENT))

    def _watch_class(self, x: type) -> None:
        if not _is_ours(x.__module__):
            own = vars(x)
            for name in sorted(own.keys() & self.known | own.keys() & _IMPLIED):
                if not isinstance(own[name], (MemberDescriptorType, GetSetDescriptorType)):
                    self.watch_variable(x, name, OfClass)
        for base in x.__bases__:
            self.visit(base)


def _is_user_module(module: ModuleType) -> bool:
    """Whether a module is neither of the standard library nor installed."""
    file = getattr(module, "__file__", None) or ""
    return module.__name__.partition(".")[0] not in sys.stdlib_module_names and "-packages" not in file


def _is_stdlib_module(module: str | None) -> bool:
    return (module or "").partition(".")[0] in sys.stdlib_module_names


@functools.cache
def _is_installed_package(package: str) -> bool:
    """Whether a package is installed and independent of tilegrad: its functions are not searched, as PyTorch's."""
    modules = [m for m in list(sys.modules.values()) if isinstance(m, ModuleType)]
    modules = [m for m in modules if m.__name__.partition(".")[0] == package]
    if not any("-packages" in (getattr(m, "__file__", None) or "") for m in modules):
        return False
    parts = [
        x for m in modules for x in list(vars(m).values()) if issubclass(type(x), (ModuleType, FunctionType, type))
    ]
    homes = [x.__name__ if issubclass(type(x), ModuleType) else x.__module__ for x in parts]
    return not any(str(home).partition(".")[0] == "tilegrad" for home in homes)


def _is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] in ("tilegrad", "numpy", "builtins", "functools")


@functools.cache
def _names_in(code: CodeType) -> tuple[list[str], set[str]]:
    """List the globals and attributes that code and its nested functions look up."""
    import dis

    names: dict[str, None] = {}
    attributes: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[step.argval] = None
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"):
            attributes.add(step.argval)
    if "__dict__" in attributes or _computes_names(code):
        attributes.add(ANY)
    for part in code.co_consts:
        if isinstance(part, str) and {"getattr", "hasattr"} & {*code.co_names} and part.isidentifier():
            attributes |= {part, MAYBE + part}
        elif isinstance(part, CodeType):
            inner, more = _names_in(part)
            names |= dict.fromkeys(inner)
            attributes |= more
    return list(names), attributes


def _computes_names(code: CodeType) -> bool:
    """Whether code calls `getattr` with a computed name."""
    import dis

    waiting = False
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval == "getattr":
            waiting = True
        elif step.opname == "LOAD_CONST" and isinstance(step.argval, str):
            waiting = False
        elif step.opname.startswith("CALL") and waiting:
            return True
    return False


def display_name(fn: Callable[..., Any]) -> str:
    """Return the display name of a function; of a module its class."""
    if isinstance(fn, functools.partial):
        return display_name(fn.func)
    name: str = getattr(fn, "__name__", type(fn).__name__)
    return type(fn.__self__).__name__ if name == "__call__" and isinstance(fn, MethodType) else name
