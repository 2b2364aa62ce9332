"""Memory that several tensors share: what a write through one of them changes for the others.

Values never change; a write gives the storage a new one. A tensor that shares its storage is a `Base` (one
history for gradients: the tensor that was made first, or one that was detached from it) and a chain of
`Move`s (how its view is cut from the base). A write goes back through the chain and makes a new whole from
the old whole and the new part (`ops.indexing.put`); whoever reads later runs its chain forwards on the new whole.

A tensor that has neither views nor writes behind it has no storage at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias
from weakref import ref

from ..ir.graph import Input, Value
from ..ir.location import Location, current_location
from ..ops.broadcasting import Fill
from ..ops.cast import Detach
from ..ops.joint import joint_outputs

Move: TypeAlias = "Callable[[Value], Value]"
"""Cuts a part out of a whole, by movement ops."""


class Change(NamedTuple):
    """What happened to a value that a tensor no longer has."""

    op: str
    location: Location | None
    by: ref[Value]
    """What the operation computed; weak, as that is often computed from the value to which this happened."""


class Storage:
    """One piece of memory, as users see it."""

    __slots__ = ("__weakref__", "change", "changes", "common", "value", "version")

    def __init__(self, value: Value) -> None:
        self.value = value
        self.version = 0
        """Counts writes, for users and for the check of saved values."""
        self.change: Change | None = None
        """The last of them."""
        self.changes = 0
        """Counts all writes, those through `.data` too, which hide from that check."""
        self.common = False
        """Whether threads that know nothing of each other write to it (random state): they do so one at a time."""


class Base:
    """A storage together with one history for gradients."""

    __slots__ = ("__weakref__", "hidden", "seen", "storage", "value")

    def __init__(self, storage: Storage, value: Value, hidden: bool = False) -> None:
        self.storage = storage
        self.value = value
        self.seen = storage.changes
        self.hidden = hidden
        """Whether writes hide from the check of saved values (`.data`)."""

    def current(self) -> Value:
        """The whole value, after what others wrote."""
        storage = self.storage
        changes = storage.changes
        if self.seen != changes:
            self.value = replaced(self.value, storage.value)
            self.seen = changes
        return self.value

    def write(self, value: Value, op: str, by: Value) -> None:
        """The whole has another value from now on; `by` is what an operation computed for it, or for a part of it."""
        storage, before = self.storage, (self.value, self.storage.value)
        if not self.hidden:
            change = storage.change = Change(op, current_location(), ref(by))
            for old in {self.value, storage.value}:
                if "common" not in old.__dict__:
                    old.__dict__["changed"] = change
            mark_changes()
            storage.version += 1
        self.value = storage.value = value
        storage.changes += 1
        self.seen = storage.changes
        for listener in write_listeners:
            listener(self, before)

    def restore(self, value: Value, shared: Value) -> None:
        """Has the value and the storage's value again that it had before writes that must not count."""
        self.value, self.storage.value = value, shared
        for old in {value, shared}:
            old.__dict__.pop("changed", None)
        self.storage.changes += 1
        self.seen = self.storage.changes


write_listeners: list[Callable[[Base, tuple[Value, Value]], None]] = []
"""Called with each base that was written to, and with the value that it and its storage had before."""

changes_of_saved_values = False


def mark_changes() -> None:
    """From now on it can be that a value which a gradient needs was changed."""
    global changes_of_saved_values
    changes_of_saved_values = True


def replaced(old: Value, new: Value) -> Value:
    """New elements for a history: a leaf stays a leaf, a computed value keeps how gradients flow from it."""
    if "leaf" in old.__dict__:
        renewed = leaf(new, old.__dict__["leaf"])
        if "hooks" in old.__dict__:
            renewed.__dict__["hooks"] = old.__dict__["hooks"]
        return renewed
    if old.tracked:
        (kept,) = joint_outputs([detached(new)], [old], lambda upstreams: upstreams)
        kept.__dict__["renews"] = old
        return kept
    return detached(new)


def detached(value: Value) -> Value:
    """The same elements, without history."""
    return _cut(value) if value.tracked else value


def kept_separate(value: Value) -> Value:
    """The same elements and history as a value of its own, so that changes to one are not taken for the other's."""
    copy = Detach(value)
    if not value.tracked:
        return copy
    (made,) = joint_outputs([copy], [value], lambda upstreams: upstreams)
    return made


def leaf(value: Value, holder: object) -> Value:
    """The same elements as a place where gradients arrive; `holder` is a weak reference to who keeps them."""
    made = _cut(value)
    made.__dict__["leaf"] = holder
    made.__dict__["tracked"] = True
    return made


def _cut(value: Value) -> Value:
    if value.buffer is None:
        made: Value = Detach(value)
        made.__dict__["within"] = True
        return made
    made = Input(value.type)
    made.hold(value.buffer)
    made.__dict__["shares"] = value  # who overwrites memory counts the references to its value
    return made


def cut(whole: Value, moves: Iterable[Move]) -> Value:
    """What a view has of a whole. Its values are noted to be in the memory of the whole: the same operations make
    copies, too."""
    for move in moves:
        made = move(whole)
        value = made
        while value is not whole and value.inputs and "within" not in value.__dict__:
            value.__dict__["within"] = True
            value = value.inputs[0]
        whole = made
    return whole


def path_to(view: Value, whole: Value) -> list[Value]:
    """The movements by which a view came from a whole, the first one first."""
    path: list[Value] = []
    while view is not whole:
        path.append(view)
        view = view.inputs[0]
    return path[::-1]


def own(value: Value) -> Value:
    """What is written to a tensor: a number that many share is copied, since only that of a tensor may hold elements.

    If the shared one did, it would be a tensor from outside to all that is computed with this number afterwards.
    """
    return Fill(value.value, value.type) if isinstance(value, Fill) and "common" in value.__dict__ else value
