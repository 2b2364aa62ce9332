"""What a tensor is below its methods: a handle on a graph value, with or without a storage it shares."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from ..errors import InPlaceError, ShapeError
from ..ir.graph import TensorType, Value
from ..ir.size import Shape
from ..ops.cast import Detach
from ..ops.indexing import put
from ..ops.movement import inverse, permute
from ..runtime.buffer import Buffer
from ..runtime.once import lock
from . import storage as sharing
from .storage import Base, Move, Storage, one_writer, own

if TYPE_CHECKING:
    from ..tensor import Tensor


class Mode(threading.local):
    """What is recorded, for each thread."""

    enabled = True
    """Whether gradients can be taken of what is computed now."""
    inference = False
    differentiated = ""
    """The transform (`grad`, `vjp`, `jvp`) whose function runs on stand-ins now."""


mode = Mode()


class Trace(Protocol):
    """Somebody who watches which tensors a function reads, makes and writes (`jit`)."""

    at_once: bool
    """Whether operations are computed as they are made (a profile), so that elements are known."""

    def read(self, tensor: Handle) -> Value:
        """The value to take for a tensor."""

    guards: list[tuple[Callable[[], Any], Any]]
    """What else was read, and how to see whether it is still the same."""

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


class State(threading.local):
    """Who watches, in each thread: while one traces a function, what others do is none of its business."""

    trace: Trace | None = None
    inspect: Callable[[Sequence[Value]], None] | None = None
    """Who looks at what was computed (`first_nan`): jitted functions then run like any other."""
    stand_ins = 0
    """How many transforms (`grad`, `vmap`, `checkpoint` ...) have a function run on stand-ins now: in it, too."""


state = State()


class Surroundings:
    """State that seldom changes besides elements: hooks and settings of layers, tensors that become others in place."""

    changes = 0
    """How often any of it did: a program that was made before looks whether something is another thing for it."""


def is_tracing() -> bool:
    """Whether a function is traced: operations are recorded for other elements than those that are known."""
    return state.trace is not None and not state.trace.at_once


def read_outside(read: Callable[[], Any]) -> None:
    """Makes something of the process that is read now a part of what a traced function is compiled for."""
    trace = state.trace
    if trace is not None and not any(known is read for known, _ in trace.guards):
        trace.guards.append((read, read()))


class Written(threading.local):
    """What was written to, in each thread, since something was computed last."""

    def __init__(self) -> None:
        self.storages: WeakValueDictionary[int, Storage] = WeakValueDictionary()
        """By identity, in the order of the writes: a loop that runs again finds its program."""


written = Written()
_first_base = lock()
"""Of two threads that look for the storage of a tensor at once, both must find the same."""


class Left(Storage):
    """A gradient that a program left behind: its memory, of which a tensor is made when somebody asks for it."""

    __slots__ = ("make",)

    def __init__(self, value: Value, make: Callable[[Buffer], Tensor]) -> None:
        super().__init__(value)
        self.make = make

    def tensor(self) -> Tensor:
        """The gradient as a tensor."""
        memory = self.loan()
        assert memory is not None, "a gradient that was left behind has memory"
        return self.make(memory)


NEVER = -1
"""The count of writes that a tensor has seen which holds a stand-in: its elements are asked for anew each time."""


class Handle:
    """The state of a tensor. Attributes that most tensors do not need have their default in the class."""

    _value: Value
    _base: Base | None = None
    _moves: tuple[Move, ...] = ()
    _strides: Shape | None = None
    """Those of the whole that the moves cut from; None: it lies row by row."""
    _layout: Any = None
    """The offset and the strides of a view, once somebody asked."""
    stands_for: Tensor | None = None
    """The tensor that this one is a copy of, in the order that its strides say."""
    _seen: int = 0
    _gradient: Tensor | Left | None = None

    @property
    def value(self) -> Value:
        """The graph value that the tensor has now; marked as that of a tensor, see `wrap`."""
        if state.trace is not None:
            value = state.trace.read(self)
        else:
            value = self._value  # first: a tensor with a storage may have a stand-in
            if self._base is not None:
                value = self.own_value()
        value.__dict__["held"] = True
        return value

    def own_value(self) -> Value:
        """The value, whoever watches."""
        value, base = self._value, self._base
        if base is None:
            return value
        if base.storage.traced:
            base.storage.wait()
        changes = base.storage.changes  # asked first: what another thread writes meanwhile is seen the next time
        if self._seen == changes:
            return value
        if not self._moves and base.storage.owned is not None:
            self._value, self._seen = base.standing(), NEVER
            return base.current()
        self._value = whole = base.cut(base.current(), self._moves)
        self._seen = changes
        return whole

    def own_gradient(self) -> Tensor | None:
        """The gradient, whoever watches."""
        found = self._gradient
        if isinstance(found, Left):
            found = self._gradient = found.tensor()
        return found

    def base(self, laid: bool = True) -> Base:
        """Return the whole that the tensor is a view of: itself, if it is none.

        One with strides of its own becomes a view of memory in their order, unless it stays row by row: parameters,
        and (not `laid`) what a traced function reads.
        """
        if self._base is None:
            with _first_base:
                if self._base is None:
                    value = self._value
                    if laid and self._strides is not None and "leaf" not in value.__dict__:
                        value = self._lay_out(self._strides)
                    base = Base(Storage(value), value)
                    self._seen = base.seen
                    self._base = base
                    if state.trace is not None:
                        state.trace.stored(self, base.storage)
        return self._base

    def _lay_out(self, strides: tuple[Any, ...]) -> Value:
        """Become a view of memory in which the elements lie as the strides say: that memory."""
        order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
        whole = permute(self._value, order)
        if whole is not self._value:
            whole.__dict__["lays"] = True
            self._moves = (partial(permute, axes=inverse(tuple(order))),)
        self._strides = None
        return whole

    def write(self, value: Value, op: str) -> None:
        """Every element is replaced, for all who share the storage."""
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

    def _replace(self, base: Base, value: Value, op: str) -> None:
        whole = current(base)
        cut = sharing.cut(whole, self._moves)
        part = put(whole, sharing.path_to(cut, whole), value) if self._moves else value
        if mode.enabled and not base.hidden and whole.tracked and not part.tracked:
            part = sharing.vanishing(part, whole)
        if not mode.enabled or base.hidden:
            part = sharing.replaced(whole, part) if whole.tracked else sharing.detached(part)
        if state.trace is not None:
            state.trace.writing(self, base)
        elif not base.storage.common:
            if part.inputs and part.buffer is None and not part.tracked:
                part = Detach(part)  # when it is computed it forgets what it was made of, for all who have it
            written.storages[id(base.storage)] = base.storage
        base.write(part, op, value)
        if isinstance(base, sharing.Part):
            self._value, self._seen = base.cut(base.value, self._moves), base.seen
        else:
            self._value, self._seen = (value, -1) if self._moves else (part, base.seen)
        if _watch is not None and state.trace is None:
            _watch.note(self, part)


def current(base: Base) -> Value:
    """The elements of a storage, as they are now for whoever watches."""
    return base.current() if state.trace is None else state.trace.read_whole(base)


def _shape(tensor: Handle) -> list[Any]:
    return list(tensor._value.shape)


_new: Callable[[Any], Any] = object.__new__
_class: Any = Handle


class Watch(Protocol):
    """Who is told of tensors while time is measured (`timing.py`)."""

    def made(self, tensor: Handle, value: Value) -> None:
        """A tensor was made."""

    def note(self, tensor: Handle, value: Value) -> None:
        """A tensor was written to."""

    def is_view(self, tensor: Handle) -> None:
        """A tensor that was made is part of another."""


_watch: Watch | None = None


def watch_with(told: Watch | None) -> None:
    """From now on this is told of tensors; None: nobody."""
    global _watch
    _watch = told


def watching() -> Watch | None:
    """Who is told."""
    return _watch


def set_class(cls: type[Handle]) -> None:
    """The class of which results are."""
    global _class
    _class = cls


def result_class() -> Any:
    """That class."""
    return _class


def wrap(value: Value) -> Tensor:
    """Make a tensor of the result of an operation.

    Where there was nothing to do (the sum of one element, a roll by 0) the result is the value of the operand. The new
    tensor gets a value of its own: what is written to one of the two must not be taken for a write to the other.
    """
    return shared(sharing.kept_separate(value) if "held" in value.__dict__ else value)


def shared(value: Value) -> Tensor:
    """Make a tensor that has a value, whoever else has it."""
    if value.tracked and not mode.enabled:
        value = sharing.detached(value)
    made = _new(_class)
    made._value = value
    if state.trace is not None:
        state.trace.made(made)
    elif _watch is not None:
        _watch.made(made, value)
    return made  # type: ignore[no-any-return]


def handle_on(value: Value) -> Tensor:
    """A tensor that has just this value, whether gradients are wanted now or not: to compute it."""
    made = _new(_class)
    made._value = value
    return made  # type: ignore[no-any-return]


def view(whole: Handle, move: Move) -> Tensor:
    """A tensor that is part of another and shares its storage."""
    base, value = whole.base(), whole.value
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
    """The same storage for views that are made where nothing is recorded: without history."""
    made = _without_history(base, sharing.detached(current(base)), base.hidden)
    made.unrecorded = not base.hidden
    return made


def _without_history(base: Base, whole: Value, hidden: bool) -> Base:
    """The same storage, of which this is the whole."""
    storage = base.storage
    if state.trace is None and storage.owned is not None:
        return Base(storage, sharing.stand_in(whole), hidden)
    if whole is not storage.value and not hidden:
        storage.seen_by(whole)
    return Base(storage, whole, hidden)


def become(tensor: Handle, cut: Handle, op: str) -> None:
    """The tensor is from now on what a view of it is; others that share its storage stay as they are."""
    if state.trace is not None:
        state.trace.reformed(tensor, op)
    if mode.enabled and "leaf" in tensor.own_value().__dict__:
        raise InPlaceError(
            f"{op}: a tensor of shape {_shape(tensor)} that requires gradients and was not computed from others cannot "
            "be changed in place. Change it within `with tilegrad.no_grad():`, or use the method without underscore"
        )
    tensor._value, tensor._base, tensor._moves, tensor._seen = cut._value, cut._base, cut._moves, cut._seen
    Surroundings.changes += 1
    tensor._strides, tensor._layout = cut._strides, None
    Surroundings.changes += 1


def root_at(tensor: Handle, shared: Handle, root: Value) -> None:
    """The tensor is from now on on the memory that another shares, with a history of its own that begins with `root`.

    Programs that read or wrote its memory look where it is now.
    """
    base, moves = shared.base(), shared._moves
    whole = sharing.detached(current(base))
    unread = state.trace is None and base.storage.owned is not None and not moves
    root = sharing.stand_in(root) if unread else root  # a tensor that nobody looks at reads nothing
    tensor._base = sharing.rooted(base, whole, moves, root) if root.tracked else _without_history(base, whole, False)
    tensor._value, tensor._seen = root, NEVER if unread else base.storage.changes
    tensor._moves, tensor._strides, tensor._layout = moves, shared._strides, None
    Surroundings.changes += 1


def resize(tensor: Handle, value: Value, op: str) -> None:
    """The tensor is from now on a value of another shape, in memory of its own."""
    if state.trace is not None:
        raise ShapeError(
            f"{op}: `out` has shape {_shape(tensor)}, the result {list(value.shape)}: within a traced function they "
            "must be equal"
        )
    tensor._value, tensor._base, tensor._moves, tensor._seen = own(value), None, (), 0
    Surroundings.changes += 1
    tensor._strides = None


def alias(of: Handle, hidden: bool = False) -> Tensor:
    """A tensor on the same storage without history (`detach`; hidden: `.data`)."""
    if state.trace is not None:
        state.trace.read(of)
    origin = of.base()
    whole = sharing.detached(current(origin))
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
