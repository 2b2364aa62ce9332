"""Watching a function run once: what it read, what it wrote, what it returned.

While a trace is open, arguments and everything else that the function reads from outside (*captured*
tensors: parameters, optimiser state, the random state) have placeholders instead of elements. What
it writes to captured tensors is found afterwards, and undone; the compiled program will do it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..errors import TraceError
from ..ir.graph import Input, TensorType, Value, topological
from ..ir.node import Node
from ..lazy import storage as sharing
from ..lazy.handle import Handle, Left, state
from ..lazy.storage import Base, Part, State, Storage
from ..transform.autodiff import gradient_place, is_leaf

if TYPE_CHECKING:
    from ..tensor import Tensor


class NoProgram(TraceError):
    """Raised for a traced function that cannot become a program, and runs plainly."""


class Captured(Node):
    """A storage from outside, with the history that was read, and what stands for its elements."""

    base: Base
    placeholder: Input


class HostNumber(Node):
    """A number that is asked for anew at every call."""

    read: Callable[[], float]
    placeholder: Input
    kind: type | None
    """The class that it must have; None: that of any number."""


class Written(Node):
    """A captured storage that the function wrote to, and what to put back."""

    base: Base
    before: State


class Branch(Node):
    """Part of a function: it may turn out not to be taken, or is done for each entry of an axis."""

    op: str
    before: frozenset[int]
    """The tensors made before it."""
    storages: set[Storage]
    """Those made in it."""


class Trace:
    """One function while it is watched."""

    at_once = False

    def __init__(self) -> None:
        self.own: dict[int, Handle] = {}
        """The tensors made inside; kept, so that no other gets their number."""
        self.own_storages: set[Storage] = set()
        self.captured: dict[Storage, Captured] = {}
        self.standing: dict[Base, Value] = {}
        self.histories: dict[Base, Value] = {}
        """What bases from outside had when they were read first."""
        self.written: dict[Storage, Written] = {}
        self.finals: dict[Storage, Value] = {}
        """What written storages have in the end."""
        self.seen: dict[int, tuple[Handle, Any]] = {}
        """Captured tensors, with the gradient each had."""
        self.given: set[int] = set()
        """Tensors whose gradient from before no longer matters: the function gave them another, or asked for it."""
        self.branch: Branch | None = None
        self.mapped: list[Branch] = []
        """What `vmap` maps at the moment."""
        self.arguments: set[int] = set()
        """Tensors made inside that stand for arguments."""
        self.asked: set[int] = set()
        """Of these, the ones whose gradient was asked for or given."""
        self.numbers: list[HostNumber] = []
        self.late: dict[Base, Value] = {}
        self.parts: list[Value] = []
        """Leaves from outside that are views, and views of them."""
        self.guards: list[tuple[Callable[[], Any], Any]] = []
        """What the function read of Python's state (whether a module trains), and how to read it again."""

    def read(self, tensor: Handle) -> Value:
        """The value of a tensor, or what stands for it."""
        if id(tensor) in self.own:
            whole = tensor._base
            if whole is not None and whole.storage in self.written:  # a view of what was written through another tensor
                self._check_history(whole)
                self._note_history(whole)
            return tensor.own_value()
        self.seen.setdefault(id(tensor), (tensor, tensor._gradient))
        base = tensor.base(laid=False)
        if base.storage in self.written:
            self._check_history(base)
            self._note_history(base)
            return tensor.own_value()
        found = base.cut(self.read_whole(base), tensor._moves)
        if isinstance(base, Part):
            self.parts.append(found)
        return found

    def read_whole(self, base: Base) -> Value:
        """The same for all of a storage, with the history of a base."""
        storage = base.storage
        if storage in self.own_storages or storage in self.written:
            self._check_history(base)
            self._note_history(base)
            return base.current()
        found = self.captured.get(storage)
        if found is None:
            type = base.standing().type
            found = self.captured[storage] = Captured(base, Input(type, f"state{len(self.captured)}"))
        standing = self.standing.get(base)
        if standing is None:
            history = self.histories[base] = base.standing()
            standing = self.standing[base] = sharing.replaced(history, found.placeholder)
        return standing

    def _check_history(self, base: Base) -> None:
        """Refuse writes to tensors that were computed outside and have a history."""
        known = base.value
        if base.storage not in self.own_storages and known.tracked and "leaf" not in known.__dict__:
            raise NoProgram("it writes to a tensor from outside that is computed from what requires gradients")

    def _note_history(self, base: Base) -> None:
        """Keep the history of a base that is first met when its storage has been written to: it goes back to it."""
        if base not in self.histories and base.storage not in self.own_storages:
            self.late.setdefault(base, base.value)

    def made(self, tensor: Handle) -> None:
        """A tensor was made inside."""
        self.own[id(tensor)] = tensor

    def stored(self, tensor: Handle, storage: Storage) -> None:
        """A tensor got a storage."""
        if id(tensor) in self.own:
            self.own_storages.add(storage)
            for part in [*self.mapped, *([] if self.branch is None else [self.branch])]:
                if id(tensor) not in part.before:
                    part.storages.add(storage)

    def writing(self, tensor: Handle, base: Base) -> None:
        """A storage is about to be written to."""
        if id(tensor) not in self.own:
            self.seen.setdefault(id(tensor), (tensor, tensor._gradient))
        storage = base.storage
        if self.branch is not None and storage not in self.branch.storages and not storage.common:
            raise TraceError(
                f"{self.branch.op}: a tensor from outside is changed in place, which would happen whatever the "
                "condition is: return the new value, and assign it after the choice"
            )
        if storage in self.written:
            self._note_history(base)
        elif storage not in self.own_storages:
            self._check_history(base)
            self.read_whole(base)
            self.written[storage] = Written(base, base.state())
            storage.traced = get_ident()

    @contextmanager
    def within(self, op: str) -> Iterator[None]:
        """What happens now may turn out not to happen: only what is made within it may be changed in place."""
        outer, self.branch = self.branch, Branch(op, frozenset(self.own), set())
        try:
            yield
        finally:
            self.branch = outer

    @contextmanager
    def making(self, op: str) -> Iterator[set[Storage]]:
        """The storages that are made within it."""
        part = Branch(op, frozenset(self.own), set())
        self.mapped.append(part)
        try:
            yield part.storages
        finally:
            self.mapped.remove(part)

    def number(self, read: Callable[[], float], type: TensorType, kind: type | None = None) -> Input:
        """A number that is asked for anew at every call."""
        made = Input(type, f"number{len(self.numbers)}")
        made.__dict__["number"] = True  # kernels take numbers where tensors would be pointers
        self.numbers.append(HostNumber(read, made, kind))
        return made

    def gradient_read(self, tensor: Handle) -> None:
        """`.grad` is looked at. The program is for calls in which the tensor has the same one, or none again."""
        if id(tensor) in self.own or id(tensor) in self.given:
            self.asked.add(id(tensor))
            return
        self.gradient_set(tensor)
        before = tensor._gradient
        self.guards.append((lambda: tensor._gradient is before, True))

    def gradient_set(self, tensor: Handle) -> None:
        """`.grad` is replaced."""
        self.asked.add(id(tensor))
        if id(tensor) not in self.own:
            self.seen.setdefault(id(tensor), (tensor, tensor._gradient))
            self.given.add(id(tensor))

    def reformed(self, tensor: Handle, what: str) -> None:
        """A tensor becomes another in place: its shape, its type, or whether it requires gradients."""
        if id(tensor) not in self.own or id(tensor) in self.arguments:
            raise NoProgram(f"{what} changes what a tensor from outside is, not only its elements")

    def refuse_history(self, results: Sequence[Value]) -> None:
        """Results that have gradients with respect to a leaf from outside that is a view: the program has no place for
        that leaf."""
        parts = {gradient_place(v) for v in topological(self.parts) if is_leaf(v)}
        tracked = [v for v in results if v.tracked]
        if parts and any(gradient_place(v) in parts for v in topological(tracked) if is_leaf(v)):
            raise NoProgram("the gradient of a result flows to a leaf that is a view of another tensor")

    def gradients(self) -> list[tuple[Handle, Tensor | None]]:
        """The captured tensors that were given another gradient."""
        changed: list[tuple[Handle, Tensor | None]] = []
        for tensor, before in self.seen.values():
            now = tensor._gradient
            if now is not before and not isinstance(now, Left) and (now is None or id(now) in self.own):
                changed.append((tensor, now))
        return changed

    def __enter__(self) -> Trace:
        if state.trace is not None:
            raise TraceError("a function is traced already; call the inner one without jit, or jit only the outer")
        state.trace = self
        return self

    def __exit__(self, *_: object) -> None:
        state.trace = None

    def finish(self) -> None:
        """Notes what was written, and puts back what was there before."""
        self.changed_gradients = self.gradients()
        for storage, written in self.written.items():
            self.finals[storage] = storage.value
            written.base.restore(written.before)
            storage.traced = 0
        for base, history in self.histories.items():
            if base.storage in self.written:  # it may have looked at what was written
                base.value, base.seen = history, base.storage.changes
        for base, history in self.late.items():
            base.value, base.seen = history, base.storage.changes - 1  # its elements are those of the storage
        for tensor, before in self.seen.values():
            tensor._gradient = before
