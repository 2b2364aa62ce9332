"""Updates in place: an output may take the memory of an input that nobody needs afterwards.

A training step gives new parameters for old ones. Where the kernel that makes the new value reads the
old one only element by element, it writes over it; then every other reader of the old value must
come before. Where that cannot be, the new value is copied over the old one at the end.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.graph import Value
from ..ir.scalar import Read, Reduce, Scan, walk
from .group import Group, Schedule


def place_updates(schedule: Schedule, updates: Mapping[Value, Value]) -> tuple[Schedule, dict[Value, Value]]:
    """An order in which as many outputs as possible overwrite their inputs, and which do.

    `updates` says for outputs which input they are the new value of.
    """
    maker = {v: n for n, g in enumerate(schedule.groups) for v in g.stored}
    reads = [_reads(g) for g in schedule.groups]
    before: list[set[int]] = [{maker[x] for x in reads[n] if x in maker} for n in range(len(schedule.groups))]
    taken: dict[Value, Value] = {}
    for output, old in updates.items():
        writer = maker.get(output)
        if writer is None or old in taken.values() or not _overwrites(schedule.groups[writer], output, old):
            continue
        readers = {n for n, r in enumerate(reads) if old in r and n != writer}
        trial = [set(b) for b in before]
        trial[writer] |= readers
        if _order(trial) is not None:
            before = trial
            taken[output] = old
    order = _order(before)
    assert order is not None
    return schedule.replaced(groups=tuple(schedule.groups[n] for n in order)), taken


def _reads(group: Group) -> set[Value]:
    return set(group.stored[0].inputs) if group.kind == "opaque" else group.reads()


def _overwrites(group: Group, output: Value, old: Value) -> bool:
    """Whether a group may write `output` where `old` is: it reads no element of it that another instance writes."""
    if group.kind == "opaque" or output.type != old.type:
        return False
    store = next(s for s in group.stores if s.value is output)
    for other in group.stores:
        inside_loops = {p for e in walk(other.expr) if isinstance(e, Reduce | Scan) for p in walk(e)}
        for e in walk(other.expr):
            if isinstance(e, Read) and e.source is old:
                if e.position != store.position or e in inside_loops:
                    return False
    return group.kind != "rows" or not any(i in walk(p) for p in store.position for i in group.columns)


def _order(before: list[set[int]]) -> list[int] | None:
    """The numbers in an order in which each comes after those it must, as near to theirs as can be."""
    left = {n: set(b) for n, b in enumerate(before)}
    order: list[int] = []
    while left:
        ready = next((n for n in sorted(left) if not left[n]), None)
        if ready is None:
            return None
        order.append(ready)
        del left[ready]
        for waiting in left.values():
            waiting.discard(ready)
    return order
