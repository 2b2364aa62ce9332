"""Make methods from signatures: real functions, whose arguments Python binds and `declared.py` checks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from inspect import Parameter
from types import new_class
from typing import Any, TypeVar

C = TypeVar("C")

MARKS: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


def add_method(owner: type, name: str, given: Sequence[Parameter], body: str, result: str, **space: Any) -> None:
    """Give a class a method with the parameters `given` after `self`. Its body is one expression of them and `space`.

    >>> class Point: ...
    >>> add_method(Point, "scaled", [Parameter("factor", Parameter.KEYWORD_ONLY, default=2)], "factor * 3", "int")
    >>> Point().scaled(), Point().scaled(factor=5)
    (6, 15)
    """
    shown, is_starred = ["self"], False
    for parameter in given:
        if parameter.kind is Parameter.KEYWORD_ONLY and not is_starred:
            shown.append("*")
        is_starred |= parameter.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL)
        default = "" if parameter.default is Parameter.empty else f"=defaults[{parameter.name!r}]"
        shown.append(f"{MARKS.get(parameter.kind, '')}{parameter.name}{default}")
    space |= {"defaults": {parameter.name: parameter.default for parameter in given}}
    exec(f"def {name}({', '.join(shown)}):\n    return {body}\n", space)
    made = space[name]
    made.__annotations__ = {parameter.name: parameter.annotation for parameter in given} | {"return": result}
    made.__module__, made.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"
    setattr(owner, name, made)


def subclass(name: str, base: type[C], space: dict[str, Any], **options: Any) -> type[C]:
    """Return a subclass with these attributes, as a `class` statement with these options where this is called.

    >>> subclass("Flag", int, {"is_set": True}).is_set
    True
    """
    module = sys._getframe(1).f_globals["__name__"]
    return new_class(name, (base,), options, lambda own: own.update({"__module__": module} | space))
