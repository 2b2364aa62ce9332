"""Watch variables outside of a function that its program depends on, and generate the guards that compare them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any, ClassVar

from ..ir.node import Node
from ..lazy.handle import Handle
from ..runtime.guarded import GuardedCall
from .numbers import NumberPlaceholder, same_number

replaced_tensors: dict[int, Handle] = {}
"""The tensors replaced by placeholders during a trace, by the `id` of the placeholder."""

ABSENT = object()
"""The value of a variable that does not exist now."""

MAX_COMPARED_BYTES = 1 << 20
"""Size up to which mutable arrays are compared by their contents, in bytes."""


_FIXED = (int, float, bool, str, bytes, complex, range, frozenset)


def same(x: Any, y: Any) -> bool:
    """Whether a program can use one argument for another: identical, or equal and immutable."""
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
    """Whether a captured object is identical to the earlier one, or equal and immutable."""
    return x is y or (x.__class__ in _FIXED and same(x, y))


def is_number(x: object) -> bool:
    return x.__class__ is int or x.__class__ is float or x.__class__ is bool


class WatchedVariable(Node):
    """A watched variable: its container and its name."""

    place: Any
    """A list or a dict: a user's, or that of a module or object."""
    name: Any

    writable = True
    """Whether a placeholder can be assigned to it."""
    reading: ClassVar[str] = "{place}[{name}]"
    """Source that reads it."""
    writing: ClassVar[str] = "{reading} = {value}"
    """Source that assigns it."""
    holding: ClassVar[str] = "{reading} is {value}"
    """Source that tests whether it holds a value."""

    def read(self) -> Any:
        found = self.read_actual()
        if found.__class__ is NumberPlaceholder:  # another thread traces
            return found._number
        return replaced_tensors.get(id(found), found) if replaced_tensors else found

    def read_actual(self) -> Any:
        """Read the variable, or the placeholder in it while the function is traced."""
        try:
            return self.place[self.name]
        except LookupError:
            return ABSENT

    def write(self, value: Any) -> None:
        self.place[self.name] = value

    def read_source(self, call: GuardedCall) -> str:
        return self._source(call, "{reading}")

    def write_source(self, call: GuardedCall, value: str) -> str:
        return self._source(call, self.writing, value)

    def guard_source(self, call: GuardedCall, found: Any) -> str:
        """Return source that tests whether the variable holds the same value."""
        if found is ABSENT and self.reading == WatchedVariable.reading:
            return self._source(call, "{name} not in {place}")
        return self._source(call, self.holding, call.bind("found", found))

    def _source(self, call: GuardedCall, template: str, value: str = "") -> str:
        place = call.bind("place", self.place)
        name = repr(self.name) if self.name.__class__ in (str, int) else call.bind("name", self.name)
        return template.format(place=place, name=name, value=value, reading=self.reading.format(place=place, name=name))

    def holds_same(self, found: Any) -> bool:
        """Whether the variable holds the same value."""
        return unchanged(self.read(), found)

    def key(self) -> tuple[int, Any]:
        """Return a key that is equal for the same container and name."""
        return id(self.place), self.name


class InCell(WatchedVariable):
    """A variable of an enclosing function."""

    reading = "{place}.cell_contents"

    def read_actual(self) -> Any:
        try:
            return self.place.cell_contents
        except ValueError:
            return ABSENT

    def write(self, value: Any) -> None:
        self.place.cell_contents = value


class ReadOnly(WatchedVariable):
    """An entry that cannot be assigned to: of a dict behind a proxy."""

    writable = False


class Length(WatchedVariable):
    """The number of entries."""

    def read_actual(self) -> int:
        return len(self.place)

    def guard_source(self, call: GuardedCall, found: Any) -> str:
        return self._source(call, "len({place}) == {value}" if found else "not {place}", str(found))


class Attribute(WatchedVariable):
    """An attribute that is not in a `__dict__`: defaults of a function, slots."""

    reading = "getattr({place}, {name}, None)"
    writing = "setattr({place}, {name}, {value})"

    def read_actual(self) -> Any:
        return getattr(self.place, self.name, ABSENT)

    def write(self, value: Any) -> None:
        setattr(self.place, self.name, value)


class OfClass(Attribute):
    """An attribute of the class itself."""

    reading = "vars({place})[{name}]"

    def read_actual(self) -> Any:
        return vars(self.place).get(self.name, ABSENT)


class EntriesSnapshot:
    """The entries of a container at one time."""

    def __init__(self, container: Any) -> None:
        self.entries = entries(container)

    def __eq__(self, other: object) -> bool:
        """Whether all entries are identical: equal mutable ones would have to be watched again."""
        return isinstance(other, EntriesSnapshot) and self.are(other.entries)

    __hash__ = None  # type: ignore[assignment]

    def are(self, now: list[Any]) -> bool:
        return len(now) == len(self.entries) and all(map(is_, now, self.entries))


def entries(container: Any) -> list[Any]:
    """List the keys and values of a dict or the entries of a list."""
    return [*container, *container.values()] if isinstance(container, Mapping) else list(container)


class ContentsSnapshot(WatchedVariable):
    """An object whose contents are compared with a snapshot."""

    writable = False
    holding = "{reading} == {value}"

    def holds_same(self, found: Any) -> bool:
        return bool(self.read() == found)


class AllEntries(ContentsSnapshot):
    """All entries of a long list or dict."""

    reading = "{place}"

    def read(self) -> Any:
        return EntriesSnapshot(self.place)

    def guard_source(self, call: GuardedCall, found: Any) -> str:
        values = "[*{place}, *{place}.values()]" if isinstance(self.place, Mapping) else "[*{place}]"
        return self._source(call, f"{{value}}.are({values})", call.bind("found", found))


class SetMembers(ContentsSnapshot):
    """The members of a set."""

    reading = "{place}"

    def read(self) -> Any:
        return frozenset(self.place)


class ArrayContents(ContentsSnapshot):
    """The elements of a numpy array or another mutable buffer."""

    reading = "({place}.shape, {place}.tobytes())"

    def read(self) -> Any:
        return self.place.shape, self.place.tobytes()


class Bytes(ArrayContents):
    """The elements of a bytearray or an `array.array`."""

    reading = "bytes({place})"

    def read(self) -> Any:
        return bytes(self.place)


class InContext(WatchedVariable):
    """The value of a context variable."""

    reading = "{place}.get(None)"
    writing = "{place}.set({value})"

    def read_actual(self) -> Any:
        return self.place.get(ABSENT)

    def write(self, value: Any) -> None:
        self.place.set(value)


class Referent(WatchedVariable):
    """The object of a weak reference."""

    writable = False
    reading = "{place}()"

    def read_actual(self) -> Any:
        return self.place()
