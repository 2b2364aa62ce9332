"""Serialise nodes: the format of programs on disk.

The text is JSON: the names of the classes used, then the constants, then rows. A row has the number of a class and, for
each field, the number of an earlier entry: a constant, or the node of an earlier row. A shared node is one row. Reading
makes nodes of the languages and nothing else, in time and memory linear in the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from . import contraction, graph, program, tile
from .dtype import DType, dtype_named
from .node import Structure
from .size import Size

PLAIN = (str, int, float, bool, type(None))
ROOMS = (tile, program, graph, contraction)
"""The modules that define the node classes of programs."""


class NotStored(Exception):
    """Raised for an object that has no serialised form."""


def text_of(root: Structure, names: Mapping[int, str] = {}) -> str:
    """Serialise a node. `names` are placeholders, by `id`, for contents that have no serialised form.

    >>> text_of(tile.Assign("i", tile.Apply("add", (tile.Name("x"), tile.Name("x")))))
    '[["Name","tuple","Apply","Assign"],["i","add","x"],[[0,2],[0,2],[1,3,4],[2,1,5],[3,0,6]]]'
    """
    return _NodeWriter(names).text(root)


def node_of(text: str | bytes, named: Mapping[str, Any] = {}) -> Any:
    """Read a node from its text; raises some exception if the text is invalid."""
    classes, made, rows = json.loads(text)
    makers = [_named(named) if name == "named" else _maker(name) for name in classes]
    add = made.append
    for row in rows:
        add(makers[row[0]](row, made))
    return made[-1]


Maker: TypeAlias = "Callable[[list[int], list[Any]], Any]"
"""Builds an object from its row and the entries before it."""


class _NodeWriter:
    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = names
        self.classes: dict[str, int] = {}
        self.constants: dict[tuple[type, str], tuple[int, Any]] = {}
        self.rows: dict[int, int] = {}
        self.lines: list[tuple[str, Sequence[Any]]] = []
        self.held: list[Any] = []

    def text(self, root: Structure) -> str:
        waiting: list[tuple[Any, Sequence[Any] | None]] = [(root, None)]
        while waiting:  # no recursion: expressions may be deep
            x, parts = waiting.pop()
            if type(x) in PLAIN:
                self.constant(x)
            elif id(x) not in self.rows:
                if parts is None:
                    parts = self.parts(x)
                    self.held.append(parts)  # no other thing gets the `id` of a part
                    waiting.append((x, parts))
                    waiting.extend([(part, None) for part in reversed(parts)])
                else:
                    self.rows[id(x)] = len(self.lines)
                    self.lines.append((self.class_of(x), parts))
        rows = [[self.kind(name), *map(self.number, parts)] for name, parts in self.lines]
        constants = [x for _, x in self.constants.values()]
        return json.dumps([list(self.classes), constants, rows], separators=(",", ":"))

    def parts(self, x: Any) -> Sequence[Any]:
        """List the children of an object."""
        if type(x) is tuple:
            return x
        if id(x) in self.names:
            return (self.names[id(x)],)
        if isinstance(x, DType):
            return (x.name,)
        if isinstance(x, Size):
            return (tuple(x.terms.items()),)
        if isinstance(x, tile.Kernel):
            return (*[x.__dict__[name] for name in x.fields], x.digest(), x.form())
        if isinstance(x, Structure) and getattr(_room(type(x)), type(x).__name__, None) is type(x):
            return [x.__dict__[name] for name in x.fields]
        raise NotStored(f"{type(x).__name__} in a program")

    def class_of(self, x: Any) -> str:
        if type(x) is tuple:
            return "tuple"
        if id(x) in self.names:
            return "named"
        return type(x).__name__

    def kind(self, name: str) -> int:
        return self.classes.setdefault(name, len(self.classes))

    def constant(self, x: Any) -> int:
        """Key constants by type and text: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
        return self.constants.setdefault((type(x), repr(x)), (len(self.constants), x))[0]

    def number(self, x: Any) -> int:
        return self.constant(x) if type(x) in PLAIN else len(self.constants) + self.rows[id(x)]


def _room(cls: type) -> Any:
    return next((room for room in ROOMS if room.__name__ == cls.__module__), None)


def _named(named: Mapping[str, Any]) -> Maker:
    return lambda row, made: named[made[row[1]]]


@cache
def _maker(name: str) -> Maker:
    """Find the constructor for objects of a class."""
    match name:
        case "tuple":
            return lambda row, made: tuple([made[n] for n in row[1:]])
        case "DType":
            return lambda row, made: dtype_named(made[row[1]])
        case "Size":
            return lambda row, made: Size(dict(made[row[1]]))
        case "Kernel":
            return lambda row, made: tile.Kernel.known(*[made[n] for n in row[1:]])
    cls = next((found for room in ROOMS if (found := vars(room).get(name)) is not None), None)
    if not (isinstance(cls, type) and issubclass(cls, Structure) and _room(cls) is not None):
        raise NotStored(f"there is no node {name}")
    # source of its own: a list of the fields and a call with it would take twice the time
    fields = ", ".join([f"made[row[{n}]]" for n in range(1, len(cls.fields) + 1)])
    return eval(f"lambda row, made: cls({fields})", {"cls": cls})  # type: ignore[no-any-return]
