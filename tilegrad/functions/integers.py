"""Convert sizes, axes and counts to Python integers where users pass them.

A tensor of one element and a number of numpy have `__index__`, too. Kept in a shape or in a view they would be
compared as tensors ever after: each comparison computes, and each computation compares. So the public functions convert
what they annotate as integers before anything is made of it; bools are refused, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from ..errors import ArgumentError
from ..ir.size import Size
from ..lazy.handle import Handle
from .promotion import kind_of

ALONE = frozenset(("int", "int | None"))
SEVERAL = frozenset((
    "Dims", "Sequence[Dim]", "Sequence[int]", "Sequence[int] | None", "Sizes", "int | Sequence[int]",
    "int | Sequence[int] | None",
))  # fmt: skip
"""What parameters are annotated with that hold integers."""


def integer(given: Any, function: str, name: str) -> Any:
    """An integer, or a size that is not known yet, from anything that is one.

    >>> import numpy, tilegrad as tg
    >>> integer(numpy.int64(3), "narrow", "length"), integer(tg.tensor(3), "narrow", "length")
    (3, 3)
    """
    if given is None or given.__class__ is int or isinstance(given, Size):
        return given
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise ArgumentError(f"{function}: {name} is an integer, not {kind_of(given)}")
    return given.__index__()


def integers(given: Any, function: str, name: str) -> Any:
    """One integer, or several: a tensor or an array with an axis counts as a list of them."""
    if given is None or given.__class__ is int or isinstance(given, Size):
        return given
    if isinstance(given, Handle) or hasattr(given, "__array__"):
        given = given.tolist() if len(given.shape) else given
    if not hasattr(given, "__iter__") or isinstance(given, (str, Handle)) or getattr(given, "shape", None) == ():
        return integer(given, function, name)
    # PyTorch looks at the first only
    found = [int(x) if n and isinstance(x, bool) else integer(x, function, name) for n, x in enumerate(given)]
    return tuple(found) if isinstance(given, tuple) else found


def taking_integers(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which gets Python integers for the parameters that it annotates as such."""
    inner: Any = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    if not isinstance(inner, FunctionType):
        return function
    code, annotations = inner.__code__, inner.__annotations__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    converted = {
        name: integer if annotations[name] in ALONE else integers
        for name in names
        if annotations.get(name) in ALONE or annotations.get(name) in SEVERAL
    }
    if not converted:
        return function
    places = [(n, converted[name], name) for n, name in enumerate(names[: code.co_argcount]) if name in converted]
    called = function.__name__

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for place, convert, name in places:
            if place >= len(args):
                break
            if args[place].__class__ is not int and args[place] is not None:
                args = (*args[:place], convert(args[place], called, name), *args[place + 1 :])
        for name in kwargs:
            if name in converted and kwargs[name].__class__ is not int:
                kwargs[name] = converted[name](kwargs[name], called, name)
        return function(*args, **kwargs)

    return checked


def take_integers(space: dict[str, Any]) -> None:
    """Every public function that a module defines converts its integers: called at the module's end."""
    for name, found in list(space.items()):
        if name[0] != "_" and isinstance(found, FunctionType) and found.__module__ == space["__name__"]:
            space[name] = taking_integers(found)
