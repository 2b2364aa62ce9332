"""What the nodes of the four languages share: named fields, given once, never changed.

A subclass of `Node` is written like a frozen dataclass and behaves like one, but costs 20 us to
define where `dataclasses` takes 500 (it compiles source when the class is made; we when the first
node is): `import tilegrad` defines some hundreds of them and has a tenth of a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import RLock
from typing import Any, ClassVar, NoReturn, dataclass_transform
from weakref import WeakSet, WeakValueDictionary


class FrozenNodeError(AttributeError):
    """Somebody assigned to a field of a node."""


making = RLock()
"""Threads make nodes at the same time: of each class there is one `__init__`, of each interned node one object."""


@dataclass_transform(frozen_default=True, eq_default=False)
class Node:
    """Named fields in the order of their annotations; equal only to itself."""

    fields: ClassVar[tuple[str, ...]] = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    annotations: ClassVar[dict[str, str]] = {}
    """The type of each field as it is written."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        written = cls.__dict__.get("__annotations__", {})
        own = {name: as_written(a) for name, a in written.items() if "ClassVar" not in str(a)}
        if own:
            cls.annotations = {**cls.annotations, **own}
            cls.fields = tuple(cls.annotations)
            setattr(cls, "__match_args__", cls.fields)  # noqa: B010 - a dataclass_transform forbids the plain form
            cls.__init__ = _first_init  # type: ignore[method-assign,assignment]

    @classmethod
    def init_lines(cls) -> list[str]:
        """What `__init__` does besides keeping its arguments, as source (`own` is the node's dict)."""
        return []

    @classmethod
    def init_names(cls) -> dict[str, object]:
        """The names that `init_lines` uses."""
        return {}

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenNodeError(f"{type(self).__name__} is frozen: make a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenNodeError(f"{type(self).__name__} is frozen: {name!r} stays")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.fields)})"

    def field_values(self) -> tuple[Any, ...]:
        own = self.__dict__
        return tuple([own[name] for name in self.fields])

    def replaced(self, **changes: Any) -> Any:
        """The same node with some fields changed."""
        return type(self)(**{name: changes.get(name, self.__dict__[name]) for name in self.fields})


def as_written(annotation: object) -> str:
    """An annotation as its source, also where a module has evaluated it.

    >>> as_written("Value"), as_written(int), as_written(tuple[Node, ...])
    ('Value', 'int', 'tuple[Node, ...]')
    """
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__name__
    return re.sub(r"(\w+\.)+", "", str(annotation))


def _first_init(self: Node, *args: Any, **kwargs: Any) -> None:
    """Write the `__init__` of a class when its first node is made, and call it.

    Another thread may have been faster: then the one of this class is called, and not that of a class above it which
    is still to be written.
    """
    with making:
        inits = ((c, c.__dict__.get("__init__")) for c in type(self).__mro__)
        cls, init = next((c, i) for c, i in inits if i is _first_init or i in _written)
        if init is _first_init:
            setattr(cls, "__init__", _written_init(cls))  # noqa: B010
    cls.__init__(self, *args, **kwargs)  # type: ignore[misc]


_written: WeakSet[Callable[..., None]] = WeakSet()
"""Every `__init__` that was made here: a class may have one of its own, which calls that of the class above."""


def _written_init(cls: type[Node]) -> Callable[..., None]:
    parameters, lines = ["self"], ["own = self.__dict__"]
    for name in cls.fields:
        default = f"={cls.__name__}.{name}" if hasattr(cls, name) else ""
        parameters.append(name + default)
        lines.append(f"own[{name!r}] = {name}")
    lines.extend(cls.init_lines())
    source = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(lines)
    made: dict[str, Any] = {}
    exec(source, {**cls.init_names(), cls.__name__: cls}, made)
    _written.add(made["__init__"])
    return made["__init__"]  # type: ignore[no-any-return]


class Structure(Node):
    """A node that equals every node of the same class with equal fields."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        return self.field_values() == other.field_values()

    def __hash__(self) -> int:
        own = self.__dict__
        if "_hash" not in own:
            own["_hash"] = hash((type(self).__name__, *self.field_values()))
        return own["_hash"]  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: not the hash, since in another process words have other ones, nor what is quickly made."""
        own = self.__dict__.copy()  # another thread may find out the hash meanwhile
        return {name: x for name, x in own.items() if name not in ("_hash", "_parts")}


class _Interning(type):
    """Makes a class hand out the same object for the same fields."""

    def __call__(cls, *args: Any) -> Any:
        key = cls.intern_key(*args)  # type: ignore[attr-defined]
        known = _interned.get(key)
        if known is None:
            with making:
                known = _interned.get(key)  # another thread may have been faster
                if known is None:
                    known = _interned[key] = super().__call__(*args)
        return known


_interned: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


class Interned(Node, metaclass=_Interning):
    """A node of which there is one object for each structure: comparing is `is`, a set of them cheap.

    Expressions that share parts are graphs, not trees; without this, comparing two of them would
    walk every path. Fields are given by position.
    """

    @classmethod
    def intern_key(cls, *args: Any) -> tuple[Any, ...]:
        return (cls, *args)

    def __reduce__(self) -> tuple[type[Interned], tuple[Any, ...]]:
        return type(self), self.field_values()
