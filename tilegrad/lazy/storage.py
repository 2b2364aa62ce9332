"""Implement storage that several tensors share: a write through one changes the others.

Values are immutable; a write gives the storage a new one. A tensor that shares its storage is a `Base` (one gradient
history: that of the tensor made first, or of one detached from it) and a chain of `Move`s (how its view is cut from the
base). A write follows the chain backwards and makes a new whole from the old whole and the new part
(`ops.indexing.put`); a later reader applies its chain to the new whole.

A tensor without views or writes has no storage.

Memory that a value holds is never written to. A storage can instead *own* memory, which programs and kernels update in
place: nothing else refers to that memory. A reader of the storage gets a value on a `Loan` of it; while a loan is alive
(in a value, in a recorded graph, in a numpy array) the owner writes to a copy. So nothing that was ever read changes,
however a buffer travels between values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from typing import Any, NamedTuple, TypeAlias
from weakref import ref

from ..ir.graph import Input, Value
from ..ir.location import Location, current_location
from ..ir.node import amend
from ..ops.broadcasting import Fill, fill
from ..ops.cast import Detach
from ..ops.joint import identity_rule, joint_outputs
from ..runtime.buffer import DeviceBuffer, Loan
from ..runtime.singletons import lock

_lending = lock()
"""Lock that lets concurrent readers of a storage find the same loan."""

one_writer = lock()
"""Serialises writers of memory shared by threads (the random state): while a traced function has placeholders in it,
while its program updates it in place, and while random numbers are drawn.
"""

Move: TypeAlias = "Callable[[Value], Value]"
"""Cuts a part out of a whole, by movement ops."""


class WriteRecord(NamedTuple):
    """A write that replaced a value of a tensor."""

    op: str
    location: Location | None
    by: ref[Value]
    """The value that the write stored; a weak reference, as it is often computed from the replaced value."""


class Epoch:
    """The period between two writes to a storage."""

    __slots__ = ("change",)

    def __init__(self) -> None:
        self.change: WriteRecord | None = None
        """The write that ended it."""


class Storage:
    """Memory shared by tensors."""

    __slots__ = ("__weakref__", "change", "changes", "common", "epoch", "lent", "owned", "traced", "value", "version")

    def __init__(self, value: Value) -> None:
        self.traced = 0
        """The thread that traces a function that writes to it; it holds placeholders meanwhile."""
        self.value = value
        """The elements; if memory is owned, only a placeholder of the same type."""
        self.version = 0
        """Counts the writes visible to users and to the check of saved values."""
        self.change: WriteRecord | None = None
        """The last write."""
        self.epoch: Epoch | None = None
        """The current epoch, if values other than `value` need to learn of the next write."""
        self.changes = 0
        """Counts all writes, including those through `.data` that are hidden from that check."""
        self.common = False
        """Whether unrelated threads write to it (random state): writes are serialised."""
        self.owned: DeviceBuffer | None = None
        """The owned memory that is updated in place: nothing else refers to it."""
        self.lent: Callable[[], Loan | None] | None = None
        """A weak reference to its last loan."""

    def wait(self) -> None:
        """Wait until no other thread traces a function that writes to it."""
        while self.traced and self.traced != get_ident():
            with one_writer:
                pass

    def free(self) -> DeviceBuffer | None:
        """Return the owned memory if there is no reader, so that it can be updated in place."""
        return self.owned if self.lent is None or self.lent() is None else None

    def loan(self) -> Loan | None:
        """Lend the owned memory to a reader: it is unchanged while the loan is alive. None if there is none."""
        with _lending:
            owned, found = self.owned, None if self.lent is None else self.lent()
            if owned is not None and found is None:
                found = owned.lend()
                self.lent = ref(found)
            return found if owned is not None else None

    def seen_by(self, value: Value) -> None:
        """Attach the current epoch to a value of another history that has the current elements, so that the check of
        saved values finds the next write.
        """
        if self.epoch is None:
            self.epoch = Epoch()
        value.note().epoch = self.epoch


class SavedState(NamedTuple):
    """The state of a base and its storage, to restore it."""

    value: Value
    whole: Value
    owned: DeviceBuffer | None
    lent: Callable[[], Loan | None] | None
    epoch: Epoch | None


class Base:
    """A storage with one gradient history."""

    __slots__ = ("__weakref__", "hidden", "keeper", "reader", "seen", "storage", "unrecorded", "value")

    def __init__(self, storage: Storage, value: Value, hidden: bool = False) -> None:
        self.storage = storage
        self.value = value
        """The whole value; if memory is owned, a placeholder with its type and its history."""
        self.seen = storage.changes
        self.hidden = hidden
        """Whether writes are hidden from the check of saved values (`.data`)."""
        self.unrecorded = False
        """Whether it was made within `no_grad` from what requires gradients: writes are allowed there only."""
        self.reader: ref[Value] | None = None
        """The last value on a loan of owned memory."""
        self.keeper: tuple[list[Any], Any] | None = None
        """The last hook of the value, which keeps its gradient (`retain_grad`)."""

    def current(self) -> Value:
        """Return the whole value, including writes of other bases."""
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
        """Cut the part of a tensor of this history from the whole."""
        return cut(whole, moves)

    def is_leaf(self, whole: Value) -> bool:
        """Whether gradients accumulate here, so that writes need `no_grad`."""
        return whole.provenance.is_leaf

    def is_tracked(self) -> bool:
        """Whether gradients flow through what is computed from it."""
        return self.standing().tracked

    def standing(self) -> Value:
        """Return the type and history of the whole value, without its elements if memory is owned."""
        if self.storage.owned is None:
            return self.current()
        if self.seen != self.storage.changes:
            self.value = stand_in(self.value)
            self.seen = self.storage.changes
        return self.value

    def _reader(self, loan: Loan) -> Value:
        """Return a value on a loan; the same while it is referenced."""
        found = None if self.reader is None else self.reader()
        if found is None or found.buffer is not loan:
            value = self.standing()
            found = value.copied() if isinstance(value, Input) else replaced(value, Input(value.type))
            found.hold(loan)
            if self.storage.value.provenance.severed:
                found.note().severed = self.storage.value.provenance.severed
            self.reader = ref(found)
        return found

    def own(self, memory: DeviceBuffer) -> None:
        """Take ownership of memory that nothing else refers to and that has the storage's elements."""
        storage = self.storage
        value = self.standing()
        storage.owned, storage.lent = memory, None  # first: see `current`
        self.value = stand_in(value)
        if not isinstance(storage.value, Input) or storage.value.buffer is not None:
            storage.value = Input(value.type)
        storage.changes += 1
        self.seen = storage.changes

    def hooks(self) -> list[Any]:
        """Return the hooks of the current value, which belong to its history."""
        values = {self.standing(), self.current()}
        hooks: list[Any] = next((h for v in values if (h := v.provenance.hooks) is not None), [])
        for value in values:
            value.note().hooks = hooks
        return hooks

    def write(self, value: Value, op: str, by: Value) -> None:
        """Assign a new value to the whole; `by` is the value that an operation stored in it or in a part of it."""
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
        """Move `retain_grad` to a new value: the gradient wanted is that of the current elements."""
        assert self.keeper is not None
        before, keep = self.keeper
        before.remove(keep)
        hooks = hooks_of(value)
        hooks.append(keep)
        self.keeper = hooks, keep

    def wrote(self, op: str) -> None:
        """Record that a program has updated the owned memory in place."""
        storage, before = self.storage, self.state()
        if not self.hidden:
            self.note(op, self.value)
        storage.changes += 1
        self.seen = storage.changes
        for listener in write_listeners:
            listener(self, before)

    def note(self, op: str, by: Value) -> None:
        """Record a write: bump the version, and mark the old value for the check of saved values."""
        storage = self.storage
        change = storage.change = WriteRecord(op, current_location(), ref(by))
        reader = None if self.reader is None else self.reader()
        olds = {self.value, storage.value} if storage.owned is None else {reader}
        olds |= {old.inputs[0] for old in olds if old is not None and old.provenance.is_reordered}
        for old in olds:
            if old is not None and not old.provenance.is_interned:
                old.note().change = change
        if storage.epoch is not None:
            storage.epoch.change, storage.epoch = change, None
        mark_changes()
        storage.version += 1

    def state(self) -> SavedState:
        """Save the state for `restore`."""
        storage = self.storage
        return SavedState(self.standing(), storage.value, storage.owned, storage.lent, storage.epoch)

    def restore(self, state: SavedState) -> None:
        """Restore the state before writes that must not count."""
        storage = self.storage
        self.value, storage.value, storage.owned, storage.lent, storage.epoch = state
        if state.epoch is not None:
            state.epoch.change = None
        reader = None if self.reader is None else self.reader()
        for old in (state.value, state.whole, reader):
            if old is not None:
                old.note().change = None
        storage.changes += 1
        self.seen = storage.changes


class PartialBase(Base):
    """A storage with a history that begins at a part of it: that of a leaf which is a view."""

    __slots__ = ("_found", "_of", "moves", "root")

    def __init__(self, of: Base, whole: Value, moves: tuple[Move, ...], root: Value) -> None:
        super().__init__(of.storage, whole)
        self.moves = moves
        """The moves that cut the part from the whole, of which `value` has no history."""
        hooks_of(root)
        self.root = stand_in(root)
        """The history of the part, without its elements."""
        self._of, self._found = ref(whole), ref(root)

    def cut(self, whole: Value, moves: Sequence[Move]) -> Value:
        """Cut a tensor of this history from the whole: the part, or a view of it."""
        return cut(self._part(whole), moves[len(self.moves) :])

    def _part(self, whole: Value) -> Value:
        """Return the part of a whole with its history; the same value while it is referenced."""
        found = self._found()
        if found is None or self._of() is not whole:
            found = replaced(self.root, cut(whole, self.moves))
            self.storage.seen_by(found)
            self._of, self._found = ref(whole), ref(found)
        return found

    def is_leaf(self, whole: Value) -> bool:
        """Whether gradients accumulate here, so that writes need `no_grad`."""
        return self.root.provenance.is_leaf

    def is_tracked(self) -> bool:
        """Whether gradients flow through what is computed from it."""
        return self.root.tracked


def rooted(of: Base, whole: Value, moves: tuple[Move, ...], root: Value) -> Base:
    """Give a tensor on shared memory a history of its own that begins with `root`."""
    of.storage.seen_by(root)
    return PartialBase(of, whole, moves, root) if moves else Base(of.storage, root)


write_listeners: list[Callable[[Base, SavedState], None]] = []
"""Called with each base that was written to and with its previous state."""

NEVER = -1
"""Write count of a tensor on a placeholder, or on memory that foreign code writes to: its elements are fetched each
time.
"""

changes_of_saved_values = False


def mark_changes() -> None:
    """Enable the check of saved values: some value has been replaced."""
    global changes_of_saved_values
    changes_of_saved_values = True


def replaced(old: Value, new: Value) -> Value:
    """Return new elements with an existing history: a leaf stays a leaf, a computed value keeps its gradient."""
    if old.provenance.is_leaf:
        renewed = leaf(new, old.provenance.holder)
        if old.provenance.hooks is not None:
            renewed.note().hooks = old.provenance.hooks
        return renewed
    if old.tracked:
        (kept,) = joint_outputs([detached(new)], [old], identity_rule)
        kept.note().renews = old
        return kept
    return detached(new)


def vanishing(new: Value, *olds: Value) -> Value:
    """Return elements whose gradients by other values are zero, for example by those that they overwrite."""
    zeros = [fill(0.0, old.shape, old.dtype, old.device) for old in olds]
    return joint_outputs([new], olds, lambda upstreams: zeros)[0]


def stand_in(value: Value) -> Value:
    """Return the type and history of a value without its elements, which a computed value keeps in its history."""
    known = value.provenance
    if (value.tracked and not known.is_leaf) or (isinstance(value, Input) and value.buffer is None):
        return value
    made = Input(value.type)
    amend(made, tracked=value.tracked)
    if known.is_leaf or known.hooks is not None:
        note = made.note()
        note.is_leaf, note.holder, note.hooks = known.is_leaf, known.holder, known.hooks
    return made


def detached(value: Value) -> Value:
    """Return the same elements without history."""
    return _cut(value) if value.tracked else value


def kept_separate(value: Value) -> Value:
    """Copy a value, so that writes to one are not taken for writes to the other."""
    copy = Detach(value)
    if not value.tracked:
        return copy
    (made,) = joint_outputs([copy], [value], identity_rule)
    return made


def hooks_of(value: Value) -> list[Any]:
    """Return the list of a value's hooks, to be changed."""
    note = value.note()
    hooks = note.hooks = [] if note.hooks is None else note.hooks
    return hooks


def leaf(value: Value, holder: object) -> Value:
    """Return the same elements as a leaf; `holder` is a weak reference to the keeper of its gradient."""
    made = _cut(value)
    note = made.note()
    note.is_leaf, note.holder = True, holder
    amend(made, tracked=True)
    return made


def _cut(value: Value) -> Value:
    if value.buffer is None:
        made: Value = Detach(value)
        made.note().shares_memory = True
        return made
    made = Input(value.type)
    made.hold(value.buffer)
    return made


def cut(whole: Value, moves: Iterable[Move]) -> Value:
    """Cut a view from a whole. Its values are marked as sharing the memory of the whole: the same operations also make
    copies.
    """
    for move in moves:
        made = move(whole)
        value = made
        while value is not whole and value.inputs and not value.provenance.shares_memory:
            value.note().shares_memory = True
            value = value.inputs[0]
        whole = made
    return whole


def path_to(view: Value, whole: Value) -> list[Value]:
    """List the movement ops from a whole to a view, outermost first."""
    path: list[Value] = []
    while view is not whole:
        path.append(view)
        view = view.inputs[0]
    return path[::-1]


def own(value: Value) -> Value:
    """Copy an interned number before it is written to a tensor, since only a tensor's own value may hold elements.

    Otherwise everything computed with this number afterwards would refer to the tensor's memory.
    """
    return Fill(value.value, value.type) if isinstance(value, Fill) and value.provenance.is_interned else value
