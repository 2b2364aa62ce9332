"""Rewrite tile code: replace parts of statements and expressions, and substitute for names."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import chain, count
from typing import Any, TypeVar

from .node import Structure
from .tile import For, If, Name, Statement, Tile, While

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


def map_statements(
    body: tuple[Statement, ...], change: Callable[[Statement], Sequence[Statement] | None]
) -> tuple[Statement, ...]:
    """Rebuild a block, nested blocks first: each statement becomes what `change` returns for it (None: it stays).

    >>> from .tile import Assign, While
    >>> body = (While(Name("go"), (Assign("x", Name("y")),)),)
    >>> map_statements(body, lambda s: [] if isinstance(s, Assign) else None)
    (While(condition=Name(name='go'), body=()),)
    """
    made: list[Statement] = []
    for statement in body:
        match statement:
            case For(body=inner) | While(body=inner):
                new = map_statements(inner, change)
                statement = statement if new is inner else statement.replaced(body=new)
            case If(condition, then, otherwise):
                first, second = map_statements(then, change), map_statements(otherwise, change)
                if first is not then or second is not otherwise:
                    statement = If(condition, first, second)
        found = change(statement)
        made += [statement] if found is None else found
    same = len(made) == len(body) and all(x is y for x, y in zip(made, body, strict=True))
    return body if same else tuple(made)


def fresh_name(stem: str, taken: Container[str]) -> str:
    """Return the first of stem, stem2, stem3, ... that is not taken.

    >>> fresh_name("x", {"x", "x2"})
    'x3'
    """
    names = chain([stem], (f"{stem}{n}" for n in count(2)))
    return next(name for name in names if name not in taken)


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
