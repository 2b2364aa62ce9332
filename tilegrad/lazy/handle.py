"""Implement the state of a tensor: a handle on a graph value, with or without shared storage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from weakref import WeakValueDictionary

from ..errors import InPlaceError, ShapeError
from ..ir.graph import Input, TensorType, Value
from ..ir.node import amend
from ..ir.size import Shape
from ..ops.cast import Detach
from ..ops.movement import inverse, permute
from ..runtime.buffer import DeviceBuffer
from ..runtime.singletons import lock
from . import storage as sharing
from .storage import NEVER, Base, Move, Storage, one_writer, own

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .elements import Region


class Mode(threading.local):
    """Recording state of each thread."""

    enabled = True
    """Whether operations are recorded for gradients."""
    inference = False
    differentiated = ""
    """The transform (`grad`, `vjp`, `jvp`) whose function is running on placeholders."""


mode = Mode()


class Tracer(Protocol):
    """Observes the tensors that a function reads, makes and writes (`jit`)."""

    at_once: bool
    """Whether operations are computed eagerly (a profile), so that elements are known."""

    def read(self, tensor: Handle) -> Value:
        """Return the value to use for a tensor."""

    guards: list[tuple[Callable[[], Any], Any]]
    """Other state that was read, with functions that check that it is unchanged."""

    def made(self, tensor: Handle) -> None: ...

    def stored(self, tensor: Handle, storage: Storage) -> None: ...

    def read_whole(self, base: Base) -> Value: ...

    def writing(self, tensor: Handle, base: Base) -> None: ...

    def gradient_read(self, tensor: Handle) -> None: ...

    def gradient_set(self, tensor: Handle) -> None: ...

    def reformed(self, tensor: Handle, what: str) -> None: ...

    def within(self, op: str) -> AbstractContextManager[None]: ...

    def making(self, op: str) -> AbstractContextManager[set[Storage]]: ...

    def number(self, read: Callable[[], float], type: TensorType) -> Value: ...


class ThreadState(threading.local):
    """The active tracer of each thread. A trace sees only its own thread."""

    trace: Tracer | None = None
    inspect: Callable[[Sequence[Value]], None] | None = None
    """Inspects what was computed (`first_nan`); jitted functions then run unjitted."""
    stand_ins = 0
    """Number of active transforms (`grad`, `vmap`, `checkpoint` ...) that run a function on placeholders."""


state = ThreadState()


class Surroundings:
    """State besides elements that seldom changes: hooks and settings of layers, tensors that are replaced in place."""

    changes = 0
    """The number of its changes, which a compiled function compares before it reuses a program."""
    read_foreign: ClassVar[Callable[[Handle, Value], Value] | None] = None
    """Returns what an operation reads of a tensor, once foreign code may write to memory (`foreign_memory.py`)."""


def is_tracing() -> bool:
    """Whether a function is being traced: its operations are recorded, to run later on other elements."""
    return state.trace is not None and not state.trace.at_once


def read_outside(read: Callable[[], Any]) -> None:
    """Add a guard to the active trace: its program is used again only while `read()` returns what it does now."""
    trace = state.trace
    if trace is not None and not any(known is read for known, _ in trace.guards):
        trace.guards.append((read, read()))


class PendingWrites(threading.local):
    """Per thread: storages written, and values detached, since the last evaluation."""

    def __init__(self) -> None:
        self.storages: WeakValueDictionary[int, Storage] = WeakValueDictionary()
        """By identity, in order of the writes, so that a loop finds its program again."""
        self.detached: WeakValueDictionary[int, Value] = WeakValueDictionary()
        """Recorded values that were detached: computed with any other evaluation, they hold no history."""
        self.initial: WeakValueDictionary[int, Value] = WeakValueDictionary()
        """What was recorded for long-lived state before its first update: it is computed first, by itself. The first
        step of a training loop then reads its state from memory like all others, and has their program.
        """


written = PendingWrites()
recorders: list[Callable[[Handle, Value], None]] = []
"""Called with each tensor that is made or written to, and its value, outside of traces (`bounded_recording.py`)."""
_first_base = lock()
"""Lock that lets concurrent threads create one storage for a tensor."""


class StoredGradient(Storage):
    """A gradient that a program computed: its memory; the tensor is made on demand."""

    __slots__ = ("make",)

    def __init__(self, value: Value, make: Callable[[DeviceBuffer], Tensor]) -> None:
        super().__init__(value)
        self.make = make

    def tensor(self) -> Tensor:
        """Make the gradient a tensor."""
        memory = self.loan()
        assert memory is not None, "a gradient that was left behind has memory"
        return self.make(memory)


class Handle:
    """The state of a tensor. Attributes that most tensors do not need default to those of the class."""

    _value: Value
    _numbers: tuple[Any, ...] | None = None
    """The elements of a tensor that has no value yet, as Python numbers (`deferred_value.py`); of a view at `_seen`."""
    _kind: Any = None
    """The type of such a tensor."""
    _base: Base | None = None
    _moves: tuple[Move, ...] = ()
    _strides: Shape | None = None
    """The strides of the base, of which the moves make the view; None: row-major."""
    _layout: Any = None
    """The cached offset and strides of a view."""
    _region: Region | None = None
    """The cached place in the memory of its storage, if its elements can be read and written at once."""
    stands_for: Tensor | None = None
    """The tensor of which this one is a copy in the memory order of its strides; writes go to both."""
    is_state = False
    """Whether it is a leaf, a buffer of a module or the state of an optimizer, and is not known to be in memory."""
    _seen: int = 0
    _snapshot: Any = None  # what operations have read of memory that foreign code may write to (`foreign_memory.py`)
    _gradient: Tensor | StoredGradient | None = None

    @property
    def value(self) -> Value:
        """The current graph value, marked as that of a tensor, see `wrap`."""
        if state.trace is not None:
            value = state.trace.read(self)
        else:
            value = self._value  # first: a tensor with a storage may have a stand-in
            if self._base is not None:
                value = self.own_value()
                if self._region is not None and self._moves and value.__class__ is Input:
                    self._base.storage.seen_by(value)  # a copy of few elements, which is about to be recorded
        if not value.is_held:
            if Surroundings.read_foreign is not None and state.trace is None:
                return Surroundings.read_foreign(self, value)
            amend(value, is_held=True)
        return value

    def own_value(self) -> Value:
        """Return the current value, bypassing a tracer."""
        value, base = self._value, self._base
        if base is None:
            return value
        if base.storage.traced:
            base.storage.wait()
        changes = base.storage.changes  # asked first: what another thread writes meanwhile is seen the next time
        if self._seen == changes:
            return value
        if release_elements(self):
            return base.current()
        region = self._region
        if region is not None and region.base is base and region.moves is self._moves:
            if (part := region.read(region.part)) is not None:
                self._value, self._seen = part, region.seen(changes)
                return part
        self._value = whole = base.cut(base.current(), self._moves)
        self._seen = changes
        return whole

    def own_gradient(self) -> Tensor | None:
        """Return the gradient, bypassing a tracer."""
        found = self._gradient
        if isinstance(found, StoredGradient):
            found = self._gradient = found.tensor()
        return found

    def base(self, with_strides: bool = True) -> Base:
        """Return the base that the tensor is a view of: itself, if it is not a view.

        A tensor with strides becomes a view of memory in their order, unless it stays row-major: parameters, and (not
        `with_strides`) what a traced function reads.
        """
        if self._base is None:
            with _first_base:
                if self._base is None:
                    value = self._value
                    if with_strides and self._strides is not None and not value.provenance.is_leaf:
                        value = self._lay_out(self._strides)
                    base = Base(Storage(value), value)
                    self._seen = base.seen
                    self._base = base
                    if state.trace is not None:
                        state.trace.stored(self, base.storage)
        return self._base

    def _lay_out(self, strides: tuple[Any, ...]) -> Value:
        """Become a view of memory in the order of the strides; return that memory."""
        order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
        whole = permute(self._value, order)
        if whole is not self._value:
            whole.note().is_reordered = True
            self._moves = (partial(permute, axes=inverse(tuple(order))),)
        self._strides = None
        return whole

    def write(self, value: Value, op: str) -> None:
        """Replace every element, for all tensors that share the storage."""
        base, value = self.base(), own(value)
        whole = current(base)
        if mode.enabled and not base.hidden and (base.unrecorded or base.is_leaf(whole)):
            if base.unrecorded:
                raise InPlaceError(
                    f"{op}: a view of shape {_shape(self)} that was made within no_grad, of a tensor that requires "
                    "gradients, is changed in place where gradients are recorded. Do both within `with "
                    "tilegrad.no_grad():`, or both outside of it"
                )
            raise InPlaceError(
                f"{op}: a tensor of shape {_shape(self)} that requires gradients and was not computed from others "
                "cannot be changed in place. Change it within `with tilegrad.no_grad():`, or work on a copy: x = "
                "x.clone()"
            )
        if value.shape != self._value.type.shape:
            raise ShapeError(
                f"{op}: the result has shape {list(value.shape)}, which does not fit the tensor of shape "
                f"{_shape(self)} that it is to be written to; in-place operations never enlarge: use the one without "
                "underscore"
            )
        with one_writer:  # threads that write to parts of one storage each start from what the others wrote
            self._replace(base, value, op)

    def _note_initial(self, whole: Value) -> None:
        """Note what state was before an update, until it has been in memory."""
        if whole.buffer is None:
            written.initial[id(whole)] = whole
        else:
            self.is_state = False

    def _written_whole(self, base: Base, whole: Value, value: Value) -> Value:
        """Return the elements of a storage with this part of it replaced, and the history that this leaves."""
        cut = sharing.cut(whole, self._moves)
        part = _with_part(whole, sharing.path_to(cut, whole), value) if self._moves else value
        if not mode.enabled or base.hidden:
            return sharing.replaced(whole, part) if whole.tracked else sharing.detached(part)
        return sharing.vanishing(part, whole) if whole.tracked and not part.tracked else part

    def _replace(self, base: Base, value: Value, op: str) -> None:
        whole = current(base)
        part = self._written_whole(base, whole, value)
        if state.trace is not None:
            state.trace.writing(self, base)
        elif not base.storage.common:
            if part.inputs and part.buffer is None and not part.tracked:
                part = Detach(part)  # when it is computed it forgets what it was made of, for all who have it
            written.storages[id(base.storage)] = base.storage
            if self.is_state:
                self._note_initial(whole)
        base.write(part, op, value)
        if isinstance(base, sharing.PartialBase):
            self._value, self._seen = base.cut(base.value, self._moves), base.seen
        else:
            self._value, self._seen = (value, -1) if self._moves else (part, base.seen)
        if state.trace is None:
            if _watch is not None:
                _watch.note(self, part)
            for note in recorders:
                note(self, part)


def release_elements(tensor: Handle) -> bool:
    """Let a tensor hold its type and history alone if its storage owns the memory: elements are fetched when read."""
    base = tensor._base
    if base is None or tensor._moves or base.storage.owned is None:
        return False
    tensor._value, tensor._seen = base.standing(), NEVER
    return True


def current(base: Base) -> Value:
    """Return the current elements of a storage, as the tracer sees them."""
    return base.current() if state.trace is None else state.trace.read_whole(base)


def _shape(tensor: Handle) -> list[Any]:
    return list(tensor._value.shape)


_new: Callable[[Any], Any] = object.__new__
_class: Any = Handle


class TensorObserver(Protocol):
    """Receives notifications about tensors while time is measured (`timing.py`)."""

    def made(self, tensor: Handle, value: Value) -> None:
        """Note that a tensor is made."""

    def note(self, tensor: Handle, value: Value) -> None:
        """Note that a tensor is written to."""

    def is_view(self, tensor: Handle) -> None:
        """Note that a tensor is made as a view of another."""


_watch: TensorObserver | None = None


def watch_with(observer: TensorObserver | None) -> None:
    """Set the receiver of notifications; None for none."""
    global _watch
    _watch = observer


def watching() -> TensorObserver | None:
    """Return the receiver of notifications."""
    return _watch


def set_class(cls: type[Handle]) -> None:
    """Set the class of results."""
    global _class
    _class = cls


def result_class() -> Any:
    """Return the class of results."""
    return _class


def wrap(value: Value) -> Tensor:
    """Wrap the result of an operation in a tensor.

    An identity operation (the sum of one element, a roll by 0) returns the value of the operand. The new tensor gets a
    copy of the value: a write to one of the two must not count as a write to the other.
    """
    return shared(sharing.kept_separate(value) if value.is_held else value)


def shared(value: Value) -> Tensor:
    """Make a tensor with a value that others may share."""
    if value.tracked and not mode.enabled:
        value = sharing.detached(value)
    made = _new(_class)
    made._value = value
    if state.trace is not None:
        state.trace.made(made)
    else:
        if _watch is not None:
            _watch.made(made, value)
        for note in recorders:
            note(made, value)
    return made  # type: ignore[no-any-return]


def handle_on(value: Value) -> Tensor:
    """Make a handle on exactly this value, whether or not gradients are recorded, to compute it."""
    made = _new(_class)
    made._value = value
    return made  # type: ignore[no-any-return]


def view(whole: Handle, move: Move) -> Tensor:
    """Make a view of a tensor, on its storage."""
    base, value = whole.base(), whole.value if state.trace is not None else whole.own_value()
    made = shared(sharing.cut(value, (move,)))
    made._base = base if mode.enabled or not value.tracked else _unrecorded(base)
    made._moves = (*whole._moves, move)
    if whole._strides is not None:
        made._strides = whole._strides
    made._seen = base.storage.changes
    if _watch is not None:
        _watch.is_view(made)
    return made


def _unrecorded(base: Base) -> Base:
    """Return the base without history for views made while nothing is recorded."""
    made = _without_history(base, sharing.detached(current(base)), base.hidden)
    made.unrecorded = not base.hidden
    return made


def _without_history(base: Base, whole: Value, hidden: bool) -> Base:
    """Return a base on the same storage without history."""
    storage = base.storage
    if state.trace is None and storage.owned is not None:
        return Base(storage, sharing.stand_in(whole), hidden)
    if whole is not storage.value and not hidden:
        storage.seen_by(whole)
    return Base(storage, whole, hidden)


def become(tensor: Handle, cut: Handle, op: str) -> None:
    """Make the tensor what `cut` is, a view of it, as `x.t_()` does; other tensors on its storage are unchanged."""
    if state.trace is not None:
        state.trace.reformed(tensor, op)
    if mode.enabled and tensor.own_value().provenance.is_leaf:
        raise InPlaceError(
            f"{op}: a tensor of shape {_shape(tensor)} that requires gradients and was not computed from others cannot "
            "be changed in place. Change it within `with tilegrad.no_grad():`, or use the method without underscore"
        )
    tensor._value, tensor._base, tensor._moves, tensor._seen = cut._value, cut._base, cut._moves, cut._seen
    tensor._numbers = None
    tensor._strides, tensor._layout = cut._strides, None
    Surroundings.changes += 1


def root_at(tensor: Handle, shared: Handle, root: Value) -> None:
    """Move the tensor to the memory of another base, with a history of its own that begins with `root`.

    Programs that use its memory look up where it is now.
    """
    base, moves = shared.base(), shared._moves
    whole = sharing.detached(current(base))
    unread = state.trace is None and base.storage.owned is not None and not moves
    root = sharing.stand_in(root) if unread else root  # a tensor that nobody looks at reads nothing
    tensor._base = sharing.rooted(base, whole, moves, root) if root.tracked else _without_history(base, whole, False)
    tensor._value, tensor._seen = root, NEVER if unread else base.storage.changes
    tensor._moves, tensor._strides, tensor._layout, tensor._numbers = moves, shared._strides, None, None
    Surroundings.changes += 1


def resize(tensor: Handle, value: Value, op: str) -> None:
    """Assign the tensor a value of another shape, in memory of its own."""
    if state.trace is not None:
        raise ShapeError(
            f"{op}: `out` has shape {_shape(tensor)}, the result {list(value.shape)}: within a traced function they "
            "must be equal"
        )
    tensor._value, tensor._base, tensor._moves, tensor._seen = own(value), None, (), 0
    Surroundings.changes += 1
    tensor._strides = tensor._numbers = None


def alias(of: Handle, hidden: bool = False) -> Tensor:
    """Make a tensor on the same storage without history (`detach`; hidden: `.data`)."""
    if state.trace is not None:
        state.trace.read(of)
    origin = of.base()
    recorded = current(origin)
    whole = sharing.detached(recorded)
    if whole is not recorded and whole.buffer is None and state.trace is None:
        written.detached[id(whole)] = whole
    made = shared(sharing.cut(whole, of._moves))
    owned = state.trace is None and origin.storage.owned is not None
    base = made._base = _without_history(origin, whole, hidden)
    made._moves = of._moves
    if of._strides is not None:
        made._strides = of._strides
    made._seen = origin.storage.changes
    if owned and not of._moves:  # a tensor that nobody looks at reads nothing
        made._value, made._seen = base.value, NEVER
    return made


def _with_part(whole: Value, path: Any, part: Value) -> Value:
    """Return a value in which a part is replaced."""
    from ..ops.indexing import put

    return put(whole, path, part)
