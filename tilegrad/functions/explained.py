"""Name the argument that does not fit, where a call of a public function ended in an error of Python's.

Arguments are not looked at while calls succeed. After an error from inside ("NoneType has no attribute ...") those that
were given are compared with what the function declares; if all of them fit, the error stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from inspect import signature
from typing import Any

import numpy as np

from ..errors import ArgumentError, AxisError
from ..ir.dtype import DType
from ..lazy.handle import Handle
from ..runtime.device import Device
from .promotion import kind_of

ALIASES = {
    "Operand": "Tensor | float", "Number": "float", "Each": "int | Sequence[int]", "R": "Tensor", "Dim": "int",
    "Sizes": "int | Sequence[int | None] | None", "Dims": "int | Sequence[int] | None", "Params": "Sequence[Any]",
    "DimsOrFlag": "bool | int | Sequence[int] | None", "DeviceLike": "Device | str | int | None", "Handle": "Tensor",
    "Tensors": "Tensor | Sequence[Tensor]", "Shapes": "int | Sequence[int]",
    "Ratio": "float | Sequence[float] | None",
}  # fmt: skip
"""The classes that names of types in signatures stand for."""
KINDS: dict[str, Callable[[Any], bool]] = {
    "None": lambda x: x is None,
    "Tensor": lambda x: isinstance(x, Handle),
    "int": lambda x: hasattr(x, "__index__") and not isinstance(x, (bool, type)),
    "float": lambda x: hasattr(x, "__float__") and not isinstance(x, (type, Handle)),
    "bool": lambda x: isinstance(x, (bool, int, np.bool_, Handle)),
    "str": lambda x: isinstance(x, str),
    "DType": lambda x: isinstance(x, DType) or x in (bool, int, float),
    "Device": lambda x: isinstance(x, Device),
    "Generator": lambda x: hasattr(x, "draw"),
    "Module": callable,
}
WORDS = {
    "Tensor": "a tensor", "int": "an integer", "float": "a number", "bool": "a bool", "str": "a string",
    "DType": "a dtype", "Device": "a device", "Generator": "a generator", "Module": "a module",
}  # fmt: skip
SEVERAL = ("Sequence[", "Iterable[", "tuple[", "list[", "Mapping[")
LARGEST = 2**63
"""Sizes and axes are below this."""


def explain(error: Exception, called: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> None:
    """Raise in words of the user's, if an argument is none that the function takes."""
    declared = signature(function)
    try:
        given = declared.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return
    for name, value in _by_name(declared, given):
        annotation = declared.parameters[name].annotation
        if name == "self" and function.__name__ != "__init__":
            annotation = "Tensor"
        if isinstance(annotation, str) and not fits(value, annotation):
            remedy = "; wrap it: tilegrad.tensor(...)" if annotation.startswith("Tensor") else ""
            raise ArgumentError(f"{called}: {name} is {kind_of(value)}, not {_words(annotation)}{remedy}") from None
        large = next((x for x in _elements(value) if isinstance(x, int) and abs(x) >= LARGEST), None)
        if large is not None and isinstance(error, (OverflowError, IndexError, ValueError)):
            raise ArgumentError(f"{called}: {name} is {kind_of(large)}, which is too large") from None
        if name.startswith(("dim", "axis")) and isinstance(value, int) and isinstance(error, IndexError):
            axes = next((len(x.value.shape) for x in (*args, *kwargs.values()) if isinstance(x, Handle)), None)
            if axes is not None and not -axes <= value < axes:
                raise AxisError(f"{called}: {name} is {value}, but the tensor has {axes} axes") from None


def fits(value: Any, annotation: str) -> bool:
    """Whether a value is what a parameter is declared to take; what is not known here fits.

    >>> fits(3, "int | Sequence[int]"), fits((3, None), "int | Sequence[int]"), fits(None, "Tensor | None")
    (True, False, True)
    """
    return any(_fits_one(value, kind) for kind in _alternatives(annotation))


def _fits_one(value: Any, kind: str) -> bool:
    if kind.startswith(SEVERAL):
        if not hasattr(value, "__iter__") or isinstance(value, (str, bytes)):
            return False
        if not isinstance(value, (list, tuple)):
            return not isinstance(value, Handle) or (bool(value.value.shape) and "Tensor" not in kind)
        inside = [part for part in _parts(kind[kind.index("[") + 1 : -1], ", ") if part != "..."]
        return all(any(fits(x, part) for part in inside) for x in value)
    known = KINDS.get(kind)
    try:
        return known is None or known(value)
    except (TypeError, ValueError):  # an array is compared element by element
        return False


@lru_cache(1024)
def _alternatives(annotation: str) -> tuple[str, ...]:
    found: list[str] = []
    for part in _parts(annotation, " | "):
        found += _alternatives(ALIASES[part]) if part in ALIASES else (part,)
    return tuple(found)


def _parts(text: str, between: str) -> list[str]:
    """The parts of a type, cut where no bracket is open."""
    parts = [""]
    for piece in text.split(between):
        whole = parts[-1].count("[") == parts[-1].count("]")
        parts = (
            [*parts, piece]
            if whole and parts[-1]
            else [*parts[:-1], parts[-1] + (between if parts[-1] else "") + piece]
        )
    return parts


def _words(annotation: str) -> str:
    """Say in words what an annotation takes."""
    kinds = [kind for kind in _alternatives(annotation) if kind != "None"]
    return " or ".join(dict.fromkeys("several of them" if k.startswith(SEVERAL) else WORDS.get(k, k) for k in kinds))


def _by_name(declared: Any, given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        kind = declared.parameters[name].kind
        if kind is declared.parameters[name].VAR_POSITIONAL:
            yield from ((name, x) for x in value)
        elif kind is not declared.parameters[name].VAR_KEYWORD:
            yield name, value


def _elements(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)
