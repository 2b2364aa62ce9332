"""Detect side effects of a traced function other than tensor writes: counters, flags, entries of dicts and lists.

A program would not repeat them, and running the function after the trace would repeat them twice. So the old state is
restored, and calls that find this state run the function without a program.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ..lazy.handle import Handle, mode
from ..tree import Tree, flatten
from .captured_state import CapturedState
from .tracing import NoProgram
from .variables import ABSENT, Attribute, ContentsSnapshot, Length, WatchedVariable, is_number, same, unchanged


class Effects:
    """A snapshot of the state outside before a function is traced."""

    def __init__(self, outside: CapturedState) -> None:
        self.outside = outside
        self.numbers = [(w, w.read()) for w in outside.numbers]
        held = [w for w, _ in outside.others if isinstance(w, (Length, ContentsSnapshot))]
        self.contents = [(w.place, _contents(w.place)) for w in held]
        self.settings = [group.copy() for group in outside.groups]
        self.recording = mode.enabled
        self.standing: list[Any] = []
        self.reason = ""
        self.written: frozenset[int] = frozenset()
        """Numbers that the function assigned, by their index among all that it reads."""

    def begin(self) -> None:
        """Record the placeholders put in place of numbers, before the function runs."""
        self.standing = [w.read_actual() for w, _ in self.numbers]

    def note(self, given: Any, structure: Tree, leaves: list[Any]) -> bool:
        """Compare the state after the function has run; return whether it is unchanged."""
        pairs = zip(self.numbers, self.standing, strict=True)
        moved = [n for n, ((w, _), before) in enumerate(pairs) if not _stays(w.read_actual(), before)]
        self.written = frozenset(moved)
        changed = [self.numbers[n][0] for n in moved] + [w for w, found in self.outside.others if _is_changed(w, found)]
        found, form = flatten(given)
        if changed:
            self.reason = f"{_name(changed[0])} outside"
        elif form != structure or _differ(found, leaves):
            self.reason = "a list or dict among its arguments"
        elif any(map(_rewritten, self.outside.groups, self.settings)):
            self.reason = "a setting of an optimizer"
        elif mode.enabled is not self.recording:
            self.reason = "whether gradients are recorded"
        return not self.reason

    def refuse(self) -> None:
        """Raise NoProgram if the function had side effects."""
        if self.reason:
            raise NoProgram(
                f"it changes {self.reason}, which a program would not do again: make a number a tensor that is "
                "updated in place (n.add_(1)), or change it after the call"
            )

    def undo(self) -> None:
        """Restore the state from before the trace."""
        mode.enabled = self.recording
        for place, saved in [*self.contents, *zip(self.outside.groups, self.settings, strict=True)]:
            _refill(place, saved)
        for w, found in [*self.numbers, *self.outside.others]:
            if w.writable and not isinstance(w, Length) and w.read_actual() is not found:
                _put(w, found)


def _stays(now: Any, before: Any) -> bool:
    return now is before or (is_number(before) and same(now, before))


def _is_changed(w: WatchedVariable, found: Any) -> bool:
    """Whether a value was replaced; tensors that replace tensors are handled in `assigned`."""
    if isinstance(w, ContentsSnapshot):
        return not w.holds_same(found)
    now = w.read_actual()
    return not unchanged(now, found) and not (isinstance(found, Handle) and isinstance(now, Handle))


def _rewritten(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return _differ([*now, *now.values()], [*before, *before.values()])


def _name(w: WatchedVariable) -> str:
    if isinstance(w, (Length, ContentsSnapshot)):
        return f"a {type(w.place).__name__}"
    return repr(w.name) if isinstance(w.name, str) else "an entry" if w.name is not None else "a variable"


def _contents(place: Any) -> Any:
    match place:
        case dict() | set():
            return place.copy()
        case np.ndarray():
            return place.copy()
        case _:
            return place[:] if isinstance(place, (bytearray, list)) else list(place)


def _refill(place: Any, saved: Any) -> None:
    """Restore the entries of a container, unless they are unchanged."""
    if not _is_refilled(place, saved):
        return
    match place:
        case dict():
            place.clear()
            place.update(saved)
        case set():
            place.clear()
            place |= saved
        case deque():
            place.clear()
            place.extend(saved)
        case np.ndarray():
            place[...] = saved
        case list() | bytearray():
            place[:] = saved


def _is_refilled(place: Any, saved: Any) -> bool:
    match place:
        case dict():
            return _rewritten(place, saved)
        case np.ndarray():
            return bool(place.tobytes() != saved.tobytes())
        case list() | deque():
            return _differ(list(place), saved)
    return isinstance(place, (set, bytearray)) and bool(place != saved)


def _differ(now: list[Any], before: list[Any]) -> bool:
    return len(now) != len(before) or any(x is not y for x, y in zip(now, before, strict=True))


def _put(w: WatchedVariable, found: Any) -> None:
    put: Callable[[Any], None] = w.write
    if found is not ABSENT:
        put(found)
    elif isinstance(w, Attribute):
        delattr(w.place, w.name)
    elif w.name is None:
        del w.place.cell_contents
    else:
        del w.place[w.name]
