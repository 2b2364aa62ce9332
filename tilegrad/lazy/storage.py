"""Memory that several tensors share: what a write through one of them changes for the others.

Values never change; a write gives the storage a new one. A tensor that shares its storage is a `Base` (one
history for gradients: the tensor that was made first, or one that was detached from it) and a chain of
`Move`s (how its view is cut from the base). A write goes back through the chain and makes a new whole from
the old whole and the new part (`ops.indexing.put`); whoever reads later runs its chain forwards on the new whole.

A tensor that has neither views nor writes behind it has no storage at all.

Memory that a value holds is never written to. A storage can *own* memory instead, which programs and kernels write in
place: nobody else knows that memory. Whoever reads the storage is given a value on a `Loan` of it; as long as a loan is
alive (in a value, in what is recorded, in an array of numpy) the owner writes to a copy. So it does not matter how a
buffer gets from value to value: nothing that was ever read changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from typing import Any, NamedTuple, TypeAlias
from weakref import ref

from ..ir.graph import Input, Value
from ..ir.location import Location, current_location
from ..ops.broadcasting import Fill, fill
from ..ops.cast import Detach
from ..ops.joint import joint_outputs
from ..runtime.buffer import Buffer, Loan
from ..runtime.once import lock

_lending = lock()
"""Makes two threads that read a storage at once find the same loan."""

one_writer = lock()
"""Held by who writes to memory that threads have in common (the random state): while a function is traced, when what
it writes to has placeholders for elements; while its program runs, which writes in place; while numbers are drawn."""

Move: TypeAlias = "Callable[[Value], Value]"
"""Cuts a part out of a whole, by movement ops."""


class Change(NamedTuple):
    """What happened to a value that a tensor no longer has."""

    op: str
    location: Location | None
    by: ref[Value]
    """What the operation computed; weak, as that is often computed from the value to which this happened."""


class Epoch:
    """The time between two writes to a storage."""

    __slots__ = ("change",)

    def __init__(self) -> None:
        self.change: Change | None = None
        """The write that ended it."""


class Storage:
    """One piece of memory, as users see it."""

    __slots__ = ("__weakref__", "change", "changes", "common", "epoch", "lent", "owned", "traced", "value", "version")

    def __init__(self, value: Value) -> None:
        self.traced = 0
        """The thread that traces a function which writes to it: it has placeholders for elements meanwhile."""
        self.value = value
        """The elements; where memory is owned only a stand-in for them, of the same type."""
        self.version = 0
        """Counts writes, for users and for the check of saved values."""
        self.change: Change | None = None
        """The last of them."""
        self.epoch: Epoch | None = None
        """Where the next change is noted for values that are not `value` itself, if there are any."""
        self.changes = 0
        """Counts all writes, those through `.data` too, which hide from that check."""
        self.common = False
        """Whether threads that know nothing of each other write to it (random state): they do so one at a time."""
        self.owned: Buffer | None = None
        """The memory that is written in place: known to nobody else."""
        self.lent: Callable[[], Loan | None] | None = None
        """The last loan of it (a weak reference)."""

    def wait(self) -> None:
        """Waits until no other thread traces a function that writes to it."""
        while self.traced and self.traced != get_ident():
            with one_writer:
                pass

    def free(self) -> Buffer | None:
        """The memory that it owns, if nobody reads it, so that it can be written in place."""
        return self.owned if self.lent is None or self.lent() is None else None

    def loan(self) -> Loan | None:
        """The memory that it owns, to read: it stays as it is as long as the loan is alive. None if it owns none."""
        with _lending:
            owned, found = self.owned, None if self.lent is None else self.lent()
            if owned is not None and found is None:
                found = owned.lend()
                self.lent = ref(found)
            return found if owned is not None else None

    def seen_by(self, value: Value) -> None:
        """Lets the check of saved values find the next change at a value of another history, which has the elements
        that the storage has now."""
        if self.epoch is None:
            self.epoch = Epoch()
        value.__dict__["epoch"] = self.epoch


class State(NamedTuple):
    """The state of a base and its storage, to restore it."""

    value: Value
    whole: Value
    owned: Buffer | None
    lent: Callable[[], Loan | None] | None
    epoch: Epoch | None


class Base:
    """A storage together with one history for gradients."""

    __slots__ = ("__weakref__", "hidden", "keeper", "reader", "seen", "storage", "unrecorded", "value")

    def __init__(self, storage: Storage, value: Value, hidden: bool = False) -> None:
        self.storage = storage
        self.value = value
        """The whole value; where memory is owned, a stand-in with its type and its history."""
        self.seen = storage.changes
        self.hidden = hidden
        """Whether writes hide from the check of saved values (`.data`)."""
        self.unrecorded = False
        """Whether it was made within `no_grad`, from what requires gradients: writes are allowed there only."""
        self.reader: ref[Value] | None = None
        """The last value on a loan of memory that is owned."""
        self.keeper: tuple[list[Any], Any] | None = None
        """The last of the hooks of the value, which keeps its gradient (`retain_grad`)."""

    def current(self) -> Value:
        """The whole value, after what others wrote."""
        storage = self.storage
        while True:  # other threads may write meanwhile: what was found counts if nothing has happened since
            if storage.traced:
                storage.wait()
            if storage.owned is not None:
                loan = storage.loan()
                if loan is not None:
                    return self._reader(loan)
            changes, whole, value = storage.changes, storage.value, self.value
            if storage.owned is None and storage.changes == changes:
                if self.seen != changes:
                    value = replaced(value, whole)
                    if value is not whole:
                        storage.seen_by(value)
                    self.value = value
                    self.seen = changes
                return value

    def cut(self, whole: Value, moves: Sequence[Move]) -> Value:
        """What a tensor of this history has of a whole."""
        return cut(whole, moves)

    def is_leaf(self, whole: Value) -> bool:
        """Whether gradients arrive here, so that writes have to be within `no_grad`."""
        return "leaf" in whole.__dict__

    def is_tracked(self) -> bool:
        """Whether what is computed of it has gradients."""
        return self.standing().tracked

    def standing(self) -> Value:
        """The type and the history of the whole value, without its elements where memory is owned."""
        if self.storage.owned is None:
            return self.current()
        if self.seen != self.storage.changes:
            self.value = stand_in(self.value)
            self.seen = self.storage.changes
        return self.value

    def _reader(self, loan: Loan) -> Value:
        """A value on a loan; the same as long as somebody has it."""
        found = None if self.reader is None else self.reader()
        if found is None or found.buffer is not loan:
            value = self.standing()
            found = value.copied() if isinstance(value, Input) else replaced(value, Input(value.type))
            found.hold(loan)
            if "severed" in self.storage.value.__dict__:
                found.__dict__["severed"] = self.storage.value.__dict__["severed"]
            self.reader = ref(found)
        return found

    def own(self, memory: Buffer) -> None:
        """The storage has its elements in this memory, which nobody else knows, from now on."""
        storage = self.storage
        value = self.standing()
        storage.owned, storage.lent = memory, None  # first: see `current`
        self.value = stand_in(value)
        if not isinstance(storage.value, Input) or storage.value.buffer is not None:
            storage.value = Input(value.type)
        storage.changes += 1
        self.seen = storage.changes

    def hooks(self) -> list[Any]:
        """The hooks of the value that it has now, which go with its history."""
        values = {self.standing(), self.current()}
        hooks: list[Any] = next((v.__dict__["hooks"] for v in values if "hooks" in v.__dict__), [])
        for value in values:
            value.__dict__["hooks"] = hooks
        return hooks

    def write(self, value: Value, op: str, by: Value) -> None:
        """The whole has another value from now on; `by` is what an operation computed for it, or for a part of it."""
        storage, before = self.storage, self.state()
        if not self.hidden:
            self.note(op, by)
        self.value = storage.value = value
        storage.owned = storage.lent = None  # last: see `current`
        storage.changes += 1
        self.seen = storage.changes
        if self.keeper is not None:
            self._keep_gradient_of(value)
        for listener in write_listeners:
            listener(self, before)

    def _keep_gradient_of(self, value: Value) -> None:
        """Moves what keeps a gradient on to a new value: the gradient wanted is that of the elements there are."""
        assert self.keeper is not None
        before, keep = self.keeper
        before.remove(keep)
        hooks = value.__dict__.setdefault("hooks", [])
        hooks.append(keep)
        self.keeper = hooks, keep

    def wrote(self, op: str) -> None:
        """The elements in the memory that the storage owns are others now: nobody had a loan of it."""
        storage, before = self.storage, self.state()
        if not self.hidden:
            self.note(op, self.value)
        storage.changes += 1
        self.seen = storage.changes
        for listener in write_listeners:
            listener(self, before)

    def note(self, op: str, by: Value) -> None:
        """Notes a write for users, and that gradients which need the value from before are not those of the program."""
        storage = self.storage
        change = storage.change = Change(op, current_location(), ref(by))
        reader = None if self.reader is None else self.reader()
        olds = {self.value, storage.value} if storage.owned is None else {reader}
        olds |= {old.inputs[0] for old in olds if old is not None and "lays" in old.__dict__}
        for old in olds:
            if old is not None and "common" not in old.__dict__:
                old.__dict__["changed"] = change
        if storage.epoch is not None:
            storage.epoch.change, storage.epoch = change, None
        mark_changes()
        storage.version += 1

    def state(self) -> State:
        """Save the state for `restore`."""
        storage = self.storage
        return State(self.standing(), storage.value, storage.owned, storage.lent, storage.epoch)

    def restore(self, state: State) -> None:
        """Has again what it had before writes that must not count."""
        storage = self.storage
        self.value, storage.value, storage.owned, storage.lent, storage.epoch = state
        if state.epoch is not None:
            state.epoch.change = None
        reader = None if self.reader is None else self.reader()
        for old in (state.value, state.whole, reader):
            if old is not None:
                old.__dict__.pop("changed", None)
        storage.changes += 1
        self.seen = storage.changes


class Part(Base):
    """A storage with a history that begins at a part of it: that of a leaf which is a view."""

    __slots__ = ("_found", "_of", "moves", "root")

    def __init__(self, of: Base, whole: Value, moves: tuple[Move, ...], root: Value) -> None:
        super().__init__(of.storage, whole)
        self.moves = moves
        """How the part is cut from the whole, of which `value` has no history."""
        root.__dict__.setdefault("hooks", [])
        self.root = stand_in(root)
        """The history of the part, without its elements."""
        self._of, self._found = ref(whole), ref(root)

    def cut(self, whole: Value, moves: Sequence[Move]) -> Value:
        """What a tensor of this history has of a whole: the part, or a view of the part."""
        return cut(self._part(whole), moves[len(self.moves) :])

    def _part(self, whole: Value) -> Value:
        """The part of a whole with its history; the same value as long as somebody has it."""
        found = self._found()
        if found is None or self._of() is not whole:
            found = replaced(self.root, cut(whole, self.moves))
            self.storage.seen_by(found)
            self._of, self._found = ref(whole), ref(found)
        return found

    def is_leaf(self, whole: Value) -> bool:
        """Whether gradients arrive here, so that writes have to be within `no_grad`."""
        return "leaf" in self.root.__dict__

    def is_tracked(self) -> bool:
        """Whether what is computed of it has gradients."""
        return self.root.tracked


def rooted(of: Base, whole: Value, moves: tuple[Move, ...], root: Value) -> Base:
    """A history of its own for what a tensor shares with others; `root` is the first value of it."""
    of.storage.seen_by(root)
    return Part(of, whole, moves, root) if moves else Base(of.storage, root)


write_listeners: list[Callable[[Base, State], None]] = []
"""Called with each base that was written to, and with what it and its storage had before."""

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


def vanishing(new: Value, *olds: Value) -> Value:
    """Elements whose gradients with respect to others are zero: those that they replace in place, for example."""
    zeros = [fill(0.0, old.shape, old.dtype, old.device) for old in olds]
    return joint_outputs([new], olds, lambda upstreams: zeros)[0]


def stand_in(value: Value) -> Value:
    """The type and the history of a value without its elements. (What is computed keeps them: its history does.)"""
    own = value.__dict__
    if (own["tracked"] and "leaf" not in own) or (isinstance(value, Input) and "buffer" not in own):
        return value
    made = Input(value.type)
    made.__dict__.update({name: own[name] for name in ("leaf", "hooks", "tracked") if name in own})
    return made


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
