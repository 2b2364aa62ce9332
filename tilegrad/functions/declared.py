"""Convert sizes, axes and counts to Python integers where users pass them.

A tensor of one element and a number of numpy have `__index__`, too. Kept in a shape or in a view they would be
compared as tensors ever after: each comparison computes, and each computation compares. So the public functions convert
what they annotate as integers before anything is made of it; bools are refused, as in PyTorch. Where a call fails
with an error of Python's, the argument that does not fit is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from types import FunctionType
from typing import Any

import numpy as np

from ..errors import ArgumentError, TilegradError
from ..ir.size import Size
from ..lazy.handle import Handle
from .promotion import kind_of

ALONE = frozenset(("int", "int | None"))
SEVERAL = frozenset((
    "Dims", "Sequence[Dim]", "Sequence[int]", "Sequence[int] | None", "Sizes", "int | Sequence[int]",
    "int | Sequence[int] | None",
))  # fmt: skip
"""Annotations of parameters that hold integers."""
FLAGS = frozenset(("bool",))
OFTEN = frozenset(f"tilegrad.functions.{name}" for name in ("arithmetic", "comparing", "elementary"))
"""Their functions of operands alone refuse others in words already, and are called too often to be wrapped."""


def integer(given: Any, function: str, name: str) -> Any:
    """An integer, or a size that is not known yet, from anything that is one.

    >>> import numpy, tilegrad as tg
    >>> integer(numpy.int64(3), "narrow", "length"), integer(tg.tensor(3), "narrow", "length")
    (3, 3)
    """
    if given is None or given.__class__ is int or isinstance(given, Size):
        return given
    if isinstance(given, (bool, type)) or not hasattr(given, "__index__"):
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


def flag(given: Any, function: str, name: str) -> Any:
    """Check that a flag is a bool, or a number in its place."""
    if given is None or isinstance(given, (bool, int, np.bool_, Handle)):
        return given
    raise ArgumentError(f"{function}: {name} is a bool, not {kind_of(given)}")


CONVERTED: tuple[tuple[frozenset[str], Callable[[Any, str, str], Any]], ...] = (
    (ALONE, integer),
    (SEVERAL, integers),
    (FLAGS, flag),
)


def taking_integers(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which gets Python integers for the parameters that it annotates as such."""
    inner: Any = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    if not isinstance(inner, FunctionType) or "takes_integers" in function.__dict__:
        return function
    code, annotations = inner.__code__, inner.__annotations__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    converted = {name: by for name in names for kinds, by in CONVERTED if annotations.get(name) in kinds}
    operands = [annotations.get(name) for name in names[1:]]
    if not converted and inner.__module__ in OFTEN and all(kind == "Operand" for kind in operands):
        return function
    places = [(n, converted[name], name) for n, name in enumerate(names[: code.co_argcount]) if name in converted]
    called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2].strip("_")

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for place, convert, name in places:
            if place >= len(args):
                break
            if args[place].__class__ is not int and args[place] is not None:
                found = convert(args[place], called, name)
                if found is not args[place]:
                    args = (*args[:place], found, *args[place + 1 :])
        for name in kwargs:
            if name in converted and kwargs[name].__class__ is not int:
                kwargs[name] = converted[name](kwargs[name], called, name)
        try:
            return function(*args, **kwargs)
        except TilegradError:
            raise
        except Exception as error:
            from .explained import explain

            explain(error, called, function, args, kwargs)
            raise

    checked.__dict__["takes_integers"] = True
    return checked


def take_integers(space: dict[str, Any]) -> None:
    """Every public function that a module defines converts its integers: called at the module's end."""
    for name, found in list(space.items()):
        if name[0] != "_" and isinstance(found, FunctionType) and found.__module__ == space["__name__"]:
            space[name] = taking_integers(found)


def take_integers_in_constructors(classes: Iterable[Any]) -> None:
    """Modules and optimizers convert the integers that they are made with."""
    made: Any
    for made in {base for given in classes if isinstance(given, type) for base in given.__mro__}:
        if made.__module__.startswith("tilegrad.") and "__init__" in vars(made):
            made.__init__ = taking_integers(made.__init__)
