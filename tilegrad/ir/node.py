"""Define the base classes of all IR nodes: named fields, set once, immutable.

A subclass of `Node` is declared like a frozen dataclass and behaves like one. It is cheaper to define, because its
`__init__` is compiled when the first node is made: `import tilegrad` defines hundreds of classes in a tenth of a
second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import RLock
from typing import Any, ClassVar, NoReturn, dataclass_transform
from weakref import WeakSet, WeakValueDictionary


class FrozenNodeError(AttributeError):
    """Raised on assignment to a field of a node."""


making = RLock()
"""Lock for node construction: each class has one `__init__`, each interned structure one object."""


@dataclass_transform(frozen_default=True, eq_default=False)
class Node:
    """Named fields in the order of their annotations; compares by identity."""

    fields: ClassVar[tuple[str, ...]] = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    annotations: ClassVar[dict[str, str]] = {}
    """The source of each field's annotation."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        written = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 - importing inspect takes long
        own = {name: as_written(a) for name, a in written.items() if "ClassVar" not in str(a)}
        if own:
            cls.annotations = {**cls.annotations, **own}
            cls.fields = tuple(cls.annotations)
            setattr(cls, "__match_args__", cls.fields)  # noqa: B010 - a dataclass_transform forbids the plain form
            cls.__init__ = _first_init  # type: ignore[method-assign,assignment]

    @classmethod
    def init_lines(cls) -> list[str]:
        """Return source lines to add to `__init__` after the fields are set (`own` is the node's `__dict__`)."""
        return []

    @classmethod
    def init_names(cls) -> dict[str, object]:
        """Return the names that `init_lines` refers to."""
        return {}

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenNodeError(f"{type(self).__name__} is frozen: make a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenNodeError(f"{type(self).__name__} is frozen: {name!r} stays")

    def __repr__(self) -> str:
        own = self.__dict__
        return f"{type(self).__name__}({', '.join([f'{name}={own[name]!r}' for name in self.fields])})"

    def field_values(self) -> tuple[Any, ...]:
        own = self.__dict__
        return tuple([own[name] for name in self.fields])

    def replaced(self, **changes: Any) -> Any:
        """Return the same node with some fields changed."""
        unknown = changes.keys() - set(self.fields)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        return type(self)(**{name: changes.get(name, self.__dict__[name]) for name in self.fields})


def amend(node: Node, **changes: Any) -> None:
    """Set fields and cached facts of a frozen node, for those who make nodes."""
    node.__dict__.update(changes)


cache_fact = object.__setattr__
"""Set a fact that follows from the fields of a frozen node, as `cache_fact(node, name, value)`."""


def set_fact_once(node: Node, name: str, value: Any) -> Any:
    """Set a fact of a frozen node unless it is set, maybe by another thread; return the one that counts."""
    return node.__dict__.setdefault(name, value)


def construction_source(node: str, new: str, cls: str, fields: str, **changes: str) -> list[str]:
    """Return source lines that make a node with known fields, for generated calls: cheaper than its constructor.

    >>> print("\\n".join(construction_source("x", "object.__new__", "Input", "like", buffer="memory")))
    x = object.__new__(Input)
    own = x.__dict__
    own |= like
    own['buffer'] = memory
    """
    lines = [f"{node} = {new}({cls})", f"own = {node}.__dict__", f"own |= {fields}"]
    return [*lines, *[f"own[{name!r}] = {source}" for name, source in changes.items()]]


def as_written(annotation: object) -> str:
    """Return an annotation as source, also if a module has evaluated it.

    >>> as_written("Value"), as_written(int), as_written(tuple[Node, ...])
    ('Value', 'int', 'tuple[Node, ...]')
    """
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__name__
    return re.sub(r"(\w+\.)+", "", str(annotation))


def _first_init(self: Node, *args: Any, **kwargs: Any) -> None:
    """Compile the `__init__` of a class when its first node is made, then call it.

    If another thread has already compiled it, the class's own `__init__` is called, not an inherited one.
    """
    with making:
        inits = ((c, c.__dict__.get("__init__")) for c in type(self).__mro__)
        cls, init = next((c, i) for c, i in inits if i is _first_init or i in _written)
        if init is _first_init:
            setattr(cls, "__init__", _written_init(cls))  # noqa: B010
    cls.__init__(self, *args, **kwargs)  # type: ignore[misc]


_written: WeakSet[Callable[..., None]] = WeakSet()
"""Every `__init__` generated here: a class may define its own, which calls the generated one of its base class."""


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
    """A node that compares by structure: equal class and equal fields."""

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
        """Pickle the fields without cached values: hashes of strings differ between processes."""
        own = self.__dict__.copy()  # another thread may find out the hash meanwhile
        return {name: x for name, x in own.items() if name not in ("_hash", "_parts", "_below", "_packed")}


class _Interning(type):
    """Metaclass that returns the same object for the same fields."""

    def __call__(cls, *args: Any) -> Any:
        key = cls.intern_key(*args)  # type: ignore[attr-defined]
        alive = _alive.get(key)  # the `get` of the dictionary itself is Python code
        known = None if alive is None else alive()
        if known is None:
            with making:
                known = _interned.get(key)  # another thread may have been faster
                if known is None:
                    known = _interned[key] = super().__call__(*args)
        return known


_interned: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()
_alive: dict[tuple[Any, ...], Callable[[], Any]] = vars(_interned)["data"]
"""The references in it."""


class Interned(Node, metaclass=_Interning):
    """A node with one object per structure, so that comparison is `is` and hashing is cheap.

    Expressions that share parts are graphs, not trees; without interning, a comparison would follow every path. Fields
    are passed by position.
    """

    @classmethod
    def intern_key(cls, *args: Any) -> tuple[Any, ...]:
        return (cls, *args)

    def __reduce__(self) -> tuple[type[Interned], tuple[Any, ...]]:
        return type(self), self.field_values()
