"""Flatten and unflatten nested containers (tuples, lists, dicts, named tuples, None).

>>> leaves, shape = flatten({"w": 1, "b": (2, None)})
>>> leaves, unflatten(shape, [10, 20])
([1, 2], {'w': 10, 'b': (20, None)})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple


class Tree(NamedTuple):
    """The structure of a container: its type, its keys if any, and the structures of its contents."""

    kind: type | None
    keys: tuple[Any, ...]
    parts: tuple[Tree, ...]


LEAF = Tree(None, (), ())
NOTHING = Tree(type(None), (), ())


def flatten(x: Any) -> tuple[list[Any], Tree]:
    """List the contents of a container, and its structure."""
    leaves: list[Any] = []
    return leaves, _flatten(x, leaves)


def _flatten(x: Any, leaves: list[Any]) -> Tree:
    if x is None:
        return NOTHING
    if isinstance(x, dict):
        return Tree(type(x), tuple(x), tuple([_flatten(y, leaves) for y in x.values()]))
    if isinstance(x, (tuple, list)):
        return Tree(type(x), (), tuple([_flatten(y, leaves) for y in x]))
    leaves.append(x)
    return LEAF


def unflatten(shape: Tree, leaves: Iterable[Any]) -> Any:
    """Build a container of this structure from its contents."""
    return _unflatten(shape, iter(leaves))


def _unflatten(shape: Tree, leaves: Iterator[Any]) -> Any:
    kind: Any = shape.kind
    if shape is LEAF or kind is None:
        return next(leaves)
    if kind is type(None):
        return None
    parts = [_unflatten(part, leaves) for part in shape.parts]
    if issubclass(kind, dict):
        return kind(zip(shape.keys, parts, strict=True))
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def mapped(fn: Callable[..., Any], x: Any, *others: Any) -> Any:
    """Apply a function to each leaf of a container (with the counterparts in others of its structure)."""
    leaves, shape = flatten(x)
    rows = [flatten(other)[0] for other in others]
    return unflatten(shape, [fn(*group) for group in zip(leaves, *rows, strict=True)])
