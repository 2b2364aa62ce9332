"""Places outside of a function that its program depends on, and what is compared there before each call."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from types import CellType
from typing import Any

from ..ir.node import Node
from ..lazy.handle import Handle
from .numbers import Number, same_number

stood: dict[int, Handle] = {}
"""The tensors at whose places something else stands while a function is traced, by the number of what stands there."""

ABSENT = object()
"""Read at a place that is empty now."""

MOST_BYTES = 1 << 20
"""Arrays that can change are compared with what they were up to this size."""


_FIXED = (int, float, bool, str, bytes, complex, range, frozenset)


def same(x: Any, y: Any) -> bool:
    """Whether one argument stands for another in a program: the same thing, or an equal one."""
    if x is y:
        return True
    if x.__class__ is not y.__class__ or isinstance(x, Handle):
        return False
    if is_number(x):
        return same_number(x, y)
    try:
        equal = x == y
    except Exception:  # things that cannot be compared, such as objects with arrays in them
        return False
    return equal is True and (x.__class__ is not complex or repr(x) == repr(y))


def unchanged(x: Any, y: Any) -> bool:
    """Whether what stands outside is the same thing as before, or an equal one that cannot change."""
    return x is y or (x.__class__ in _FIXED and same(x, y))


def is_number(x: object) -> bool:
    return x.__class__ is int or x.__class__ is float or x.__class__ is bool


class Watched(Node):
    """Something outside: where it is, under which name."""

    place: Any
    """A cell, a list, or a dict: one of the user's, or that of a module or of an object."""
    name: Any

    writable = True
    """Whether a placeholder of a number can be put there."""

    def read(self) -> Any:
        found = self.there()
        if found.__class__ is Number:  # another thread traces
            return found._number
        return stood.get(id(found), found) if stood else found

    def there(self) -> Any:
        """The same, or the placeholder that stands there while the function is traced."""
        try:
            return self.place.cell_contents if self.place.__class__ is CellType else self.place[self.name]
        except (LookupError, ValueError):
            return ABSENT

    def write(self, value: Any) -> None:
        if self.place.__class__ is CellType:
            self.place.cell_contents = value
        else:
            self.place[self.name] = value

    def reading(self, n: str) -> str:
        """The text that reads what stands there."""
        cell = self.place.__class__ is CellType
        return f"place{n}.cell_contents" if cell else f"place{n}[name{n}]"

    def writing(self, n: str, value: str) -> str:
        """The text that puts something there."""
        return f"{self.reading(n)} = {value}"

    def test(self, n: str, found: Any) -> str:
        """The text of the test that what was found is still there; `n` is behind the names of what it compares."""
        if self.place.__class__ is CellType:
            return f"place{n}.cell_contents is found{n}"
        if found is ABSENT:
            return f"name{n} not in place{n}"
        return f"place{n}[name{n}] is found{n}"

    def keeps(self, found: Any) -> bool:
        """Whether what was found is still there."""
        return unchanged(self.read(), found)

    def key(self) -> tuple[int, Any]:
        """Equal for what is at one place under one name."""
        return id(self.place), self.name


class ReadOnly(Watched):
    """An entry that cannot be assigned to: of a dict behind a proxy."""

    writable = False


class Length(Watched):
    """How many entries there are."""

    def there(self) -> int:
        return len(self.place)

    def test(self, n: str, found: Any) -> str:
        return f"len(place{n}) == found{n}" if found else f"not place{n}"


class Attribute(Watched):
    """An attribute without a dict: defaults of a function, slots."""

    def there(self) -> Any:
        return getattr(self.place, self.name, ABSENT)

    def write(self, value: Any) -> None:
        setattr(self.place, self.name, value)

    def reading(self, n: str) -> str:
        return f"getattr(place{n}, name{n}, None)"

    def writing(self, n: str, value: str) -> str:
        return f"setattr(place{n}, name{n}, {value})"

    def test(self, n: str, found: Any) -> str:
        return f"getattr(place{n}, name{n}, None) is found{n}"


class OfClass(Attribute):
    """An attribute of a class itself."""

    def there(self) -> Any:
        return vars(self.place).get(self.name, ABSENT)

    def reading(self, n: str) -> str:
        return f"vars(place{n})[name{n}]"

    def test(self, n: str, found: Any) -> str:
        return f"vars(place{n})[name{n}] is found{n}"


class Kept:
    """The entries of a container at one time."""

    def __init__(self, container: Any) -> None:
        self.entries = entries(container)

    def __eq__(self, other: object) -> bool:
        """Whether they are the very same things: equal ones that can change would have to be looked at again."""
        return isinstance(other, Kept) and self.are(other.entries)

    __hash__ = None  # type: ignore[assignment]

    def are(self, now: list[Any]) -> bool:
        return len(now) == len(self.entries) and all(map(is_, now, self.entries))


def entries(container: Any) -> list[Any]:
    """Keys and values of a dict, the entries of a list."""
    return [*container, *container.values()] if isinstance(container, Mapping) else list(container)


class Snapshot(Watched):
    """Something whose contents are compared with what they were."""

    writable = False

    def keeps(self, found: Any) -> bool:
        return bool(self.read() == found)


class Entries(Snapshot):
    """All entries of a long list or dict."""

    def read(self) -> Any:
        return Kept(self.place)

    def test(self, n: str, found: Any) -> str:
        values = f"[*place{n}, *place{n}.values()]" if isinstance(self.place, Mapping) else f"[*place{n}]"
        return f"found{n}.are({values})"


class Members(Snapshot):
    """The members of a set."""

    def read(self) -> Any:
        return frozenset(self.place)

    def test(self, n: str, found: Any) -> str:
        return f"place{n} == found{n}"


class Contents(Snapshot):
    """The elements of an array of numpy's, or of bytes that can change."""

    def read(self) -> Any:
        return self.place.shape, self.place.tobytes()

    def test(self, n: str, found: Any) -> str:
        return f"(place{n}.shape, place{n}.tobytes()) == found{n}"


class Bytes(Contents):
    """The elements of a bytearray or an `array.array`."""

    def read(self) -> Any:
        return bytes(self.place)

    def test(self, n: str, found: Any) -> str:
        return f"bytes(place{n}) == found{n}"


class InContext(Watched):
    """The value of a context variable."""

    def there(self) -> Any:
        return self.place.get(ABSENT)

    def write(self, value: Any) -> None:
        self.place.set(value)

    def reading(self, n: str) -> str:
        return f"place{n}.get(None)"

    def writing(self, n: str, value: str) -> str:
        return f"place{n}.set({value})"

    def test(self, n: str, found: Any) -> str:
        return f"place{n}.get(None) is found{n}"


class Referent(Watched):
    """The object of a weak reference."""

    writable = False

    def there(self) -> Any:
        return self.place()

    def test(self, n: str, found: Any) -> str:
        return f"place{n}() is found{n}"
