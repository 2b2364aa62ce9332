"""Rewrite tile code: replace parts of statements and expressions, and substitute for names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .node import Structure
from .tile import Name, Tile

T = TypeVar("T")


def rewrite(part: Any, change: Callable[[Any], Any]) -> Any:
    """Rebuild tile code bottom-up, replacing each part for which `change` returns something.

    >>> print(rewrite(Name("x") + Name("y"), lambda part: Name("z") if part == Name("y") else None))
    x + z
    """
    if isinstance(part, tuple):
        return tuple([rewrite(p, change) for p in part])
    if not isinstance(part, Structure):
        return part
    made = type(part)(*[rewrite(part.__dict__[name], change) for name in part.fields])
    found = change(made)
    return made if found is None else found


def map_operands(x: Tile, change: Callable[[Tile], Tile]) -> Tile:
    """Rebuild an expression with each operand changed; the same object if none is.

    >>> print(map_operands(Name("x") + Name("y"), lambda operand: operand * 2))
    x * 2 + y * 2
    """
    changed: dict[str, Any] = {}
    for field in x.children:
        value = x.__dict__[field]
        if isinstance(value, tuple):
            new = tuple([change(v) for v in value])
            if any(a is not b for a, b in zip(new, value, strict=True)):
                changed[field] = new
        elif value is not None and (one := change(value)) is not value:
            changed[field] = one
    return x.replaced(**changed) if changed else x


def substitute(part: T, values: Mapping[str, Tile]) -> T:
    """Substitute expressions for names; the same object if none of the names occurs."""
    if not values:
        return part
    made: T = rewrite(part, lambda x: values.get(x.name) if type(x) is Name else None)
    return part if made == part else made


def strings_in(part: Any) -> set[str]:
    """Return every name in tile code, and other strings that must not be mistaken for new names."""
    if isinstance(part, tuple):
        return {name for p in part for name in strings_in(p)}
    if isinstance(part, Structure):
        return {name for field in part.fields for name in strings_in(part.__dict__[field])}
    return {part} if isinstance(part, str) else set()
