"""Update inputs in place: an output takes the memory of an input that nothing needs afterwards.

A training step returns new parameters for old ones. Where the kernel that computes the new value reads the old one only
element by element, it overwrites it, and every other reader of the old value runs before. Elsewhere the new value is
copied over the old one at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from ..ir.graph import Value
from ..ir.scalar import Read, Reduce, Scan, walk
from .group import Group, Schedule
from .small_tensors import is_whole

Before = list[set[int]]
"""For each group the numbers of the groups that must run before it."""


def place_updates(schedule: Schedule, updates: Iterable[tuple[Value, Value]]) -> tuple[Before, dict[Value, Value]]:
    """Find which outputs can overwrite inputs, and the ordering edges that make it safe.

    `updates` are pairs: a new value, and the input that it replaces. An input that is needed at the end (it is
    returned, or is another one's new value) is read last, or saved before.
    """
    groups = schedule.groups
    maker = {v: n for n, g in enumerate(groups) for v in g.stored}
    reads = [g.needs() for g in groups]
    place = {v: n for n, g in enumerate(groups) for v in g.values()}
    needed = [{*reads[n], *g.after} for n, g in enumerate(groups)]
    before: Before = [{place[x] for x in needed[n] if x in place} for n in range(len(groups))]
    taken: dict[Value, Value] = {}
    for new, old in updates:
        writer = maker.get(new)
        if (
            writer is None
            or new in taken
            or not _overwrites(groups[writer], new, old, schedule.target.single_instance_elements)
        ):
            continue
        trial = [set(b) for b in before]
        trial[writer] |= {n for n, r in enumerate(reads) if old in r and n != writer}
        if in_order(trial):
            before = trial
            taken[new] = old
    return before, taken


def _overwrites(group: Group, new: Value, old: Value, whole: int) -> bool:
    """Whether a group may write `new` over `old`: it reads no element that another instance writes."""
    if new.external:
        return new.overwrites(old)  # type: ignore[attr-defined,no-any-return]
    if group.kind == "opaque" or new.type != old.type:
        return False
    if is_whole(group.rows, group.columns, whole):
        return True  # there is one instance, and it writes when it has computed everything
    store = next(s for s in group.stores if s.value is new)
    for other in group.stores:
        inside_loops = {p for e in walk(other.expr) if isinstance(e, Reduce | Scan) for p in walk(e)}
        for e in walk(other.expr):
            if isinstance(e, Read) and e.source is old and (e.position != store.position or e in inside_loops):
                return False
    return group.kind != "rows" or not any(i in walk(p) for p in store.position for i in group.columns)


def in_order(before: Before) -> list[int]:
    """Sort numbers topologically, as near to their own order as can be; none if there is a cycle."""
    waiting = [len(b) for b in before]
    after: list[list[int]] = [[] for _ in before]
    for n, needs in enumerate(before):
        for x in needs:
            after[x].append(n)
    ready = [n for n, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        order.append(heappop(ready))
        for n in after[order[-1]]:
            waiting[n] -= 1
            if not waiting[n]:
                heappush(ready, n)
    return order if len(order) == len(before) else []
