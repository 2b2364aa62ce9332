"""Track writes to captured tensors while a function runs on placeholders (`vmap`)."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from weakref import ref

from .errors import InPlaceError
from .ir.graph import Value
from .lazy.handle import state
from .lazy.storage import Base, SavedState, Storage, write_listeners
from .ops.broadcasting import shown


class _WrittenBase:
    """A base that was written to, and its previous state."""

    def __init__(self, base: Base, before: SavedState) -> None:
        self.base = ref(base)
        self.before = before


class Writes:
    """The bases that a thread writes to, each once."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.found: dict[int, _WrittenBase] = {}
        self.own: set[Storage] = set()
        """Storages that the function made itself: if it is traced, they belong to the trace."""

    def __call__(self, base: Base, before: SavedState) -> None:
        if threading.get_ident() != self.thread:
            return
        known = self.found.get(id(base))
        if known is None or known.base() is not base:
            self.found[id(base)] = _WrittenBase(base, before)

    def refuse(self, placeholders: Collection[Value]) -> None:
        """Undo writes of placeholder-dependent values to captured tensors, and raise for the first one."""
        wrong = None
        for written in self.found.values():
            base = written.base()
            if base is None or base.storage in self.own or not _depends(base.storage.value, placeholders):
                continue
            change, shape = base.storage.change, base.storage.value.shape
            base.restore(written.before)
            wrong = wrong or (change, shape)
        if wrong is not None:
            change, shape = wrong
            op, place = (change.op, f" at {change.location}") if change is not None else ("a write", "")
            raise InPlaceError(
                f"vmap: {op}{place} writes to a tensor of shape {shown(shape)}, which all entries have in common, what "
                "differs from entry to entry. Make a new tensor (the operation without underscore) and return it, or "
                "give the tensor as an argument that has an entry for each"
            )


@contextmanager
def watched() -> Iterator[Writes]:
    """Track written tensors within the block."""
    writes = Writes()
    write_listeners.append(writes)
    try:
        if state.trace is None:
            yield writes
        else:
            with state.trace.making("vmap") as writes.own:
                yield writes
    finally:
        write_listeners.remove(writes)


def _depends(value: Value, placeholders: Collection[Value]) -> bool:
    seen: set[Value] = set()
    stack = [value]
    while stack:
        v = stack.pop()
        if v in placeholders:
            return True
        if v not in seen and v.buffer is None:
            seen.add(v)
            stack.extend(v.inputs)
    return False
