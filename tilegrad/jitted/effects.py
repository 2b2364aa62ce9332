"""What a traced function changes outside that is no tensor's elements: a counter, a flag, an entry of a dict, a list.

A program would not change it again, and what the trace changed would be changed twice if the function then ran. So
what was there before is put back, and the function runs without a program in calls that find this there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ..lazy.handle import Handle, mode
from ..tree import Tree, flatten
from .places import ABSENT, Attribute, Length, Snapshot, Watched, is_number, same, unchanged
from .tracing import NoProgram
from .watched import Outside


class Effects:
    """What stands outside before a function is traced."""

    def __init__(self, outside: Outside) -> None:
        self.outside = outside
        self.numbers = [(w, w.read()) for w in outside.numbers]
        held = [w for w, _ in outside.others if isinstance(w, (Length, Snapshot))]
        self.contents = [(w.place, _contents(w.place)) for w in held]
        self.settings = [group.copy() for group in outside.groups]
        self.recording = mode.enabled
        self.standing: list[Any] = []
        self.reason = ""
        self.written: frozenset[int] = frozenset()
        """The numbers that the function changed, by their place among all that it reads."""

    def begin(self) -> None:
        """Note the placeholders that stand where numbers were, before the function runs."""
        self.standing = [w.there() for w, _ in self.numbers]

    def note(self, given: Any, structure: Tree, leaves: list[Any]) -> bool:
        """Compare with what is there when the function has run on arguments; whether nothing was changed."""
        pairs = zip(self.numbers, self.standing, strict=True)
        moved = [n for n, ((w, _), before) in enumerate(pairs) if not _stays(w.there(), before)]
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
        """Refuse a program for a function that changed something."""
        if self.reason:
            raise NoProgram(
                f"it changes {self.reason}, which a program would not do again: make a number a tensor that is "
                "updated in place (n.add_(1)), or change it after the call"
            )

    def undo(self) -> None:
        """Put back what was there before."""
        mode.enabled = self.recording
        for place, saved in [*self.contents, *zip(self.outside.groups, self.settings, strict=True)]:
            _refill(place, saved)
        for w, found in [*self.numbers, *self.outside.others]:
            if w.writable and not isinstance(w, Length) and w.there() is not found:
                _put(w, found)


def _stays(now: Any, before: Any) -> bool:
    return now is before or (is_number(before) and same(now, before))


def _is_changed(w: Watched, found: Any) -> bool:
    """Tensors in the place of tensors are `assigned`."""
    if isinstance(w, Snapshot):
        return not w.keeps(found)
    now = w.there()
    return not unchanged(now, found) and not (isinstance(found, Handle) and isinstance(now, Handle))


def _rewritten(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return _differ([*now, *now.values()], [*before, *before.values()])


def _name(w: Watched) -> str:
    if isinstance(w, (Length, Snapshot)):
        return f"a {type(w.place).__name__}"
    return repr(w.name) if isinstance(w.name, str) else "an entry" if w.name is not None else "a variable"


def _contents(place: Any) -> Any:
    """A copy of what a container has, not of its entries."""
    match place:
        case dict() | set():
            return place.copy()
        case np.ndarray():
            return place.copy()
        case _:
            return place[:] if isinstance(place, (bytearray, list)) else list(place)


def _refill(place: Any, saved: Any) -> None:
    """Give a container the entries that it had, unless it has them."""
    match place:
        case dict():
            if _rewritten(place, saved):
                place.clear()
                place.update(saved)
        case set():
            if place != saved:
                place.clear()
                place |= saved
        case deque():
            if _differ(list(place), saved):
                place.clear()
                place.extend(saved)
        case np.ndarray():
            if place.tobytes() != saved.tobytes():
                place[...] = saved
        case list():
            if _differ(place, saved):
                place[:] = saved
        case bytearray():
            if place != saved:
                place[:] = saved


def _differ(now: list[Any], before: list[Any]) -> bool:
    return len(now) != len(before) or any(x is not y for x, y in zip(now, before, strict=True))


def _put(w: Watched, found: Any) -> None:
    put: Callable[[Any], None] = w.write
    if found is not ABSENT:
        put(found)
    elif isinstance(w, Attribute):
        delattr(w.place, w.name)
    elif w.name is None:
        del w.place.cell_contents
    else:
        del w.place[w.name]
