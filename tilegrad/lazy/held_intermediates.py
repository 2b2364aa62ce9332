"""Keep the memory of intermediates that live tensors still need, so that they are not computed again.

A program computes what was asked for, and whatever is between. What a tensor holds on to, or recorded work reads
(`tokens` in a loop that looks at the next token alone), would be computed again, with all that it was made of, at every
later look. So it becomes a result of the program where that is cheap: where it is small beside what the program reads,
or is computed for the second time.

Which tensors are alive must not depend on the time at which the garbage collector runs: a tensor that it has collected
since it was recorded counts as alive at the next evaluation. Reference counts alone decide.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias
from weakref import WeakSet, ref

from ..ir.graph import Value
from .handle import Handle, state

Needed: TypeAlias = "dict[Value, Handle | Value]"
"""Intermediates, each with a tensor that holds it, or a recorded value that reads it, or itself."""

MIN_KEPT_BYTES = 1 << 16
"""Bytes of intermediates that any program may keep."""
LEAF_BYTES_PER_KEPT_BYTE = 16
"""Bytes that a program reads for each byte that it may keep: storing them is a small part of its traffic."""
MAX_EXAMINED_VALUES = 64
"""Values of recorded work that are examined for what they read of a program."""
MIN_PRUNED_TENSORS = 256
"""Recorded tensors after which those that are gone are forgotten."""


class HeldTensors:
    """The tensors that a thread has recorded and not computed."""

    def __init__(self) -> None:
        self.older: list[ref[Handle]] = []
        """Those recorded before the last evaluation."""
        self.recent: list[ref[Handle]] = []
        self.room = MIN_PRUNED_TENSORS
        self.pinned: list[Handle] = []
        """The recent ones, while the garbage collector runs."""
        self.collected: list[Value] = []
        """The values of recent ones that it has collected."""
        _all.add(self)

    def prune(self) -> None:
        """Forget recent tensors that are gone or computed."""
        self.recent = [ref(x) for x in _live(self.recent)]
        self.room = max(MIN_PRUNED_TENSORS, 2 * len(self.recent))


_all: WeakSet[HeldTensors] = WeakSet()
after_keeping: list[Callable[[Needed], None]] = []
"""Called with the intermediates that a program has kept (`bounded_recording.py`)."""


class HeldOfThread(threading.local):
    """Per thread: its tensors."""

    def __init__(self) -> None:
        self.found = HeldTensors()


held_tensors = HeldOfThread()


def _live(tensors: Iterable[ref[Handle]]) -> list[Handle]:
    """List the tensors that are alive and not computed."""
    return [x for known in tensors if (x := known()) is not None and x._value.buffer is None]


def kept_values(order: Sequence[Value], wanted: Sequence[Value], leaves: Sequence[Value]) -> Needed:
    """Choose the intermediates of a graph that are kept in memory."""
    held = held_tensors.found
    if state.trace is not None or state.inspect is not None or not (held.recent or held.older):
        return {}
    older, recent = _live(held.older), _live(held.recent)
    held.older, held.recent, held.room = [ref(x) for x in (*older, *recent)], [], MIN_PRUNED_TENSORS
    collected, held.collected = held.collected, []
    if not (held.older or collected):
        return {}
    inside = {v for v in order if v.buffer is None}.difference(wanted)
    outside = [v for x in recent if (v := _whole(x)) not in inside]
    needed = _read_by(set(outside).difference(wanted), inside)
    needed |= {v: v for v in collected if v in inside}
    needed |= {v: x for x in (*older, *recent) if (v := _whole(x)) in inside}
    return _cheap(needed, order, leaves) if needed else {}


def _whole(x: Handle) -> Value:
    """Return the value of the memory that a tensor shares."""
    return x._value if x._base is None else x._base.storage.value


def _read_by(outside: Iterable[Value], inside: Set[Value]) -> Needed:
    """List what recorded work reads of a graph that is about to be computed; of views, that of which they are views."""
    found: Needed = {}
    seen: set[Value] = set()
    stack = list(outside)
    while stack and len(seen) < MAX_EXAMINED_VALUES:
        reader = stack.pop()
        if reader in seen or reader.buffer is not None:
            continue
        seen.add(reader)
        for value in reader.inputs:
            if value in inside and not value.moves:
                found[value] = reader
            else:
                stack.append(value)
    return found


def _cheap(needed: Mapping[Value, Handle | Value], order: Iterable[Value], leaves: Iterable[Value]) -> Needed:
    """Choose the intermediates that are small beside what is read, or computed for the second time."""
    room = max(MIN_KEPT_BYTES, sum([_bytes(v) for v in leaves]) // LEAF_BYTES_PER_KEPT_BYTE)
    kept: Needed = {}
    for v in sorted([v for v in order if v in needed and v.inputs], key=_bytes):
        room -= _bytes(v)
        if room >= 0 or v.provenance.was_intermediate:
            kept[v] = needed[v]
        else:
            v.note().was_intermediate = True
    return kept


def _bytes(value: Value) -> int:
    bytes: Any = value.type.bytes
    return bytes  # type: ignore[no-any-return]


def _note_collected(phase: str, _: dict[str, int]) -> None:
    """Note which of the recent tensors the garbage collector collects."""
    for held in list(_all):
        if phase == "start":
            held.pinned = _live(held.recent)
        while phase == "stop" and held.pinned:
            x = held.pinned.pop()
            value, known = _whole(x), ref(x)
            del x
            if known() is None:
                held.collected.append(value)


gc.callbacks.append(_note_collected)
