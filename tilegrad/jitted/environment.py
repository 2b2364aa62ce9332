"""Guard the captured state that a program depends on, and gather its memory before every call.

A network of some layers depends on hundreds of objects that might be replaced: layers, functions, parameters. A loop
over them takes as long as a small network itself, so they are compared by generated straight-line source. If a
comparison fails, `is_current` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..lazy.handle import Handle, Surroundings, release_elements
from ..lazy.layout import layout
from ..lazy.storage import Base, Move, Storage
from ..runtime.buffer import DeviceBuffer
from ..runtime.guarded import GuardedCall, packed
from .captured_state import CapturedState, hooks_of, same_settings, settings_of
from .memory import CapturedInput, HostNumberInput
from .traced_call import TracedCall

if TYPE_CHECKING:
    from .hoisted_values import HoistedValues

MAX_GUARD_GENERATIONS = 4


class Environment:
    """The captured variables, layers, storages and numbers that a program depends on."""

    hoisted: HoistedValues | None = None

    def __init__(self, traced: TracedCall, outside: CapturedState, surroundings: int) -> None:
        trace, given = traced.trace, {w.key() for w in traced.signature.call.variables}
        self.variables = [(w, found) for w, found in outside.others if w.key() not in given]
        """Variables that are no inputs, and what they held."""
        self.required_objects = {id(x) for w, x in self.variables if given and isinstance(x, Handle) and w.writable}
        """Captured tensors that must be identical objects, if there are others that need not be."""
        self.layers = outside.layers
        self.hooks = [(x, hooks_of(x)) for x, _ in trace.seen.values()]
        self.places = storages_of(x for x, _ in trace.seen.values())
        self.is_movable = all(alias.outside is None for alias in traced.aliases.values())
        """Whether the program may use captured tensors in other memory."""
        self.captured = [
            CapturedInput(c, trace.standing[c.base], storage in trace.finals) for storage, c in trace.captured.items()
        ]
        self.updated = [c for c in self.captured if c.is_updated]
        self.host = [HostNumberInput(n) for n in trace.numbers]
        self.inputs: list[CapturedInput | HostNumberInput] = [*self.captured, *self.host]
        self.reads = trace.guards
        """Functions that read other state, and what they returned."""
        self.moves = 0
        """How often captured tensors were found on other memory."""
        self._surroundings = surroundings
        self._check: Callable[[], Sequence[DeviceBuffer] | None] | None = None
        self._generations = 0

    @property
    def is_empty(self) -> bool:
        return not (self.inputs or self.reads or self.variables)

    def memory(self) -> list[DeviceBuffer]:
        """Gather the memory of captured storages and of numbers of the host."""
        unowned = {c.base.storage for c in self.updated if c.base.storage.owned is None}
        found = [x.memory() for x in self.inputs]
        for place in self.places if unowned else ():
            if place.storage in unowned:
                release_elements(place.tensor)
        return found

    def checked_memory(self) -> Sequence[DeviceBuffer] | None:
        """Gather the memory if all guards hold; None if one may not.

        Guards are generated at the second call, and again when the captured state has changed, a limited number of
        times.
        """
        if self._surroundings != Surroundings.changes and not self._is_in_its_surroundings():
            return None
        if self._check is not None:
            found = self._check()
            if found is not None or self._generations == MAX_GUARD_GENERATIONS or self._have_readers():
                return found
            self._check = None
        if self._generations < MAX_GUARD_GENERATIONS and self.is_current():
            self._generations += 1
            self._check = self._guards()
            if self._check is not None:
                return self._check()
            self._generations = MAX_GUARD_GENERATIONS
        return None

    def _guards(self) -> Callable[[], Sequence[DeviceBuffer] | None] | None:
        """Generate the guards; None if a storage that the program updates does not own its memory yet."""
        if not all(c.is_guardable() for c in self.captured) or any(number.is_lent for number in self.host):
            return None
        call = GuardedCall("check")
        with call.missing("LookupError", "ValueError"):
            call.guard(*[watched.guard_source(call, found) for watched, found in self.variables])
            memory = [x.guard(call) for x in self.inputs]
            call.guard(*[f"{call.bind('read', read)}() == {call.bind('found', found)}" for read, found in self.reads])
            call.add(f"return {packed(memory)}")
        return call.made()

    def _have_readers(self) -> bool:
        """Whether elements that the program would overwrite have readers."""
        return any(c.base.storage.free() is None for c in self.updated)

    def is_current(self) -> bool:
        """Whether captured variables hold the same values, or compatible ones."""
        if not all(watched.holds_same(found) for watched, found in self.variables):
            return False
        if not all(c.is_current() for c in self.captured):
            return False
        if self._surroundings != Surroundings.changes and not self._is_in_its_surroundings():
            return False
        return all(number.is_current() for number in self.host) and all(read() == v for read, v in self.reads)

    def _is_in_its_surroundings(self) -> bool:
        """Whether settings of layers, hooks, and the storages of tensors are those of the trace."""
        now = Surroundings.changes
        same = all(same_settings(settings_of(layer), before) for layer, before in self.layers)
        if same and all(hooks_of(tensor) == before for tensor, before in self.hooks) and self._rebind():
            self._surroundings = now
            return True
        return False

    def _rebind(self) -> bool:
        """Use captured tensors that have moved to other memory (`.data = ...`, a leaf made of a view, `t_()`), if the
        same ones share memory as before.
        """
        if all(p.base is p.tensor._base and p.moves == p.tensor._moves for p in self.places):
            return True
        now = storages_of(p.tensor for p in self.places)
        if [p.layout_key for p in now] != [p.layout_key for p in self.places]:
            return False
        pairs = {(a.storage, b.storage) for a, b in zip(self.places, now, strict=True)}
        if len({a for a, _ in pairs}) != len(pairs) or len({b for _, b in pairs}) != len(pairs):
            return False
        bases = {id(a.base): b.base for a, b in zip(self.places, now, strict=True)}
        if not self.is_movable or any(id(c.base) not in bases for c in self.captured):
            return False
        for c in self.captured:
            c.base = bases[id(c.base)]
        self.places = now
        if self.hoisted is not None:
            self.hoisted.find_storages()
        self._check, self._generations = None, 0
        self.moves += 1
        return True


class CapturedStorage(NamedTuple):
    """The storage of a captured tensor."""

    tensor: Handle
    base: Base
    storage: Storage
    moves: tuple[Move, ...]
    layout_key: Any
    """Its layout in the storage."""


def storages_of(tensors: Iterable[Handle]) -> list[CapturedStorage]:
    """List the storages of the tensors that may share memory."""
    return [
        CapturedStorage(x, x._base, x._base.storage, x._moves, _layout_key(x)) for x in tensors if x._base is not None
    ]


def _layout_key(x: Handle) -> Any:
    """Key the layout of a tensor in its storage and the leaf that it is part of."""
    base = x._base
    assert base is not None
    return layout(x) if x._moves else x._strides, x._value.type, base.storage.value.type, type(base), base.is_tracked()
