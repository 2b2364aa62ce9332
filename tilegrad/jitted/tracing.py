"""Trace one run of a function: its reads, its writes, its results.

While a trace is open, arguments and everything that the function reads from outside (*captured* tensors: parameters,
optimiser state, the random state) have placeholders instead of elements. Writes to captured tensors are collected
afterwards and undone; the compiled program will repeat them.
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
from ..lazy.handle import Handle, StoredGradient, state
from ..lazy.storage import Base, PartialBase, SavedState, Storage
from ..transform.autodiff import gradient_place, is_leaf

if TYPE_CHECKING:
    from ..tensor import Tensor


class NoProgram(TraceError):
    """Raised for a traced function that cannot be compiled to a program; it runs unjitted."""


class Captured(Node):
    """A captured storage with the history that was read, and the placeholder of its elements."""

    base: Base
    placeholder: Input


class HostNumber(Node):
    """A number that is read anew at every call."""

    read: Callable[[], float]
    placeholder: Input
    kind: type | None
    """The class that it must have; None: that of any number."""


class WrittenStorage(Node):
    """A captured storage that the function wrote to, and the state to restore."""

    base: Base
    before: SavedState


class TracedBranch(Node):
    """A part of the function that may not be executed, or is mapped over an axis."""

    op: str
    before: frozenset[int]
    """The tensors made before it."""
    storages: set[Storage]
    """The storages made in it."""


class Trace:
    """One traced run of a function."""

    at_once = False

    def __init__(self) -> None:
        self.own: dict[int, Handle] = {}
        """The tensors made inside; kept alive, so that their `id` is not reused."""
        self.own_storages: set[Storage] = set()
        self.captured: dict[Storage, Captured] = {}
        self.standing: dict[Base, Value] = {}
        self.histories: dict[Base, Value] = {}
        """The histories of captured bases when they were first read."""
        self.written: dict[Storage, WrittenStorage] = {}
        self.finals: dict[Storage, Value] = {}
        """The final values of written storages, from the end of the trace on."""
        self.seen: dict[int, tuple[Handle, Any]] = {}
        """Captured tensors, with the gradient each had."""
        self.given: set[int] = set()
        """Tensors whose previous gradient is unused: the function assigned another, or requested it."""
        self.branch: TracedBranch | None = None
        self.mapped: list[TracedBranch] = []
        """The axes that `vmap` maps now."""
        self.arguments: set[int] = set()
        """Tensors made inside that represent arguments."""
        self.asked: set[int] = set()
        """The inputs whose gradient was requested or assigned."""
        self.numbers: list[HostNumber] = []
        self.late: dict[Base, Value] = {}
        self.parts: list[Value] = []
        """Captured leaves that are views, and views of them."""
        self.guards: list[tuple[Callable[[], Any], Any]] = []
        """Python state that the function read (whether a module trains), with a function to read it again."""

    def read(self, tensor: Handle) -> Value:
        """Return the value of a tensor, or its placeholder."""
        if id(tensor) in self.own:
            whole = tensor._base
            if whole is not None and whole.storage in self.written:  # a view of what was written through another tensor
                self._check_history(whole)
                self._note_history(whole)
            return tensor.own_value()
        self.seen.setdefault(id(tensor), (tensor, tensor._gradient))
        base = tensor.base(with_strides=False)
        if base.storage in self.written:
            self._check_history(base)
            self._note_history(base)
            return tensor.own_value()
        found = base.cut(self.read_whole(base), tensor._moves)
        if isinstance(base, PartialBase):
            self.parts.append(found)
        return found

    def read_whole(self, base: Base) -> Value:
        """Return the whole of a storage, or its placeholder, with the history of a base."""
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
        """Reject writes to captured tensors that have a computed history."""
        known = base.value
        if base.storage not in self.own_storages and known.tracked and not known.provenance.is_leaf:
            raise NoProgram("it writes to a tensor from outside that is computed from what requires gradients")

    def _note_history(self, base: Base) -> None:
        """Save the history of a base that is first read after a write to its storage; it is restored later."""
        if base not in self.histories and base.storage not in self.own_storages:
            self.late.setdefault(base, base.value)

    def made(self, tensor: Handle) -> None:
        """Record a tensor made inside."""
        self.own[id(tensor)] = tensor

    def stored(self, tensor: Handle, storage: Storage) -> None:
        """Record that a tensor got a storage."""
        if id(tensor) in self.own:
            self.own_storages.add(storage)
            for part in [*self.mapped, *([] if self.branch is None else [self.branch])]:
                if id(tensor) not in part.before:
                    part.storages.add(storage)

    def writing(self, tensor: Handle, base: Base) -> None:
        """Record a write to a storage before it happens."""
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
            self.written[storage] = WrittenStorage(base, base.state())
            storage.traced = get_ident()

    @contextmanager
    def within(self, op: str) -> Iterator[None]:
        """Enter a branch: only tensors made within it may be modified in place."""
        outer, self.branch = self.branch, TracedBranch(op, frozenset(self.own), set())
        try:
            yield
        finally:
            self.branch = outer

    @contextmanager
    def making(self, op: str) -> Iterator[set[Storage]]:
        """Collect the storages made within the block."""
        part = TracedBranch(op, frozenset(self.own), set())
        self.mapped.append(part)
        try:
            yield part.storages
        finally:
            self.mapped.remove(part)

    def number(self, read: Callable[[], float], type: TensorType, kind: type | None = None) -> Input:
        """Return a placeholder for a number that is read anew at every call."""
        made = Input(type, f"number{len(self.numbers)}")
        made.note().is_number = True  # kernels take numbers where tensors would be pointers
        self.numbers.append(HostNumber(read, made, kind))
        return made

    def gradient_read(self, tensor: Handle) -> None:
        """Record a read of `.grad`. The program requires the same gradient, or none, at each call."""
        if id(tensor) in self.own or id(tensor) in self.given:
            self.asked.add(id(tensor))
            return
        self.gradient_set(tensor)
        before = tensor._gradient
        self.guards.append((lambda: tensor._gradient is before, True))

    def gradient_set(self, tensor: Handle) -> None:
        """Record an assignment of `.grad`."""
        self.asked.add(id(tensor))
        if id(tensor) not in self.own:
            self.seen.setdefault(id(tensor), (tensor, tensor._gradient))
            self.given.add(id(tensor))

    def reformed(self, tensor: Handle, what: str) -> None:
        """Reject a tensor that is changed in place to another shape, type, or `requires_grad`."""
        if id(tensor) not in self.own or id(tensor) in self.arguments:
            raise NoProgram(f"{what} changes what a tensor from outside is, not only its elements")

    def refuse_history(self, results: Sequence[Value]) -> None:
        """Reject results with gradients for a captured leaf that is a view: the program has no input for that leaf."""
        parts = {gradient_place(v) for v in topological(self.parts) if is_leaf(v)}
        tracked = [v for v in results if v.tracked]
        if parts and any(gradient_place(v) in parts for v in topological(tracked) if is_leaf(v)):
            raise NoProgram("the gradient of a result flows to a leaf that is a view of another tensor")

    def gradients(self) -> list[tuple[Handle, Tensor | None]]:
        """List the captured tensors that were assigned another gradient."""
        changed: list[tuple[Handle, Tensor | None]] = []
        for tensor, before in self.seen.values():
            now = tensor._gradient
            if now is not before and not isinstance(now, StoredGradient) and (now is None or id(now) in self.own):
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
        """Collect the writes, and restore the state before the trace."""
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
        self.seen = {key: (tensor, None) for key, (tensor, _) in self.seen.items()}  # old elements are not kept alive
        self.histories, self.written, self.late = {}, {}, {}
