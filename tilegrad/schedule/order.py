"""Order the kernels so that the peak of temporary memory is low, and inputs can be overwritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.graph import Value
from .group import Schedule
from .inline import estimated_size
from .inplace import Before, in_order, place_updates


def order(schedule: Schedule, updates: Mapping[int, int] = {}) -> Schedule:
    """Reorder groups, dependencies first, to lower the peak of temporary memory.

    `updates` maps outputs (by number) to the inputs whose new values they are. Of the order in which the groups were
    found and a greedy one that always frees most memory, the one with the lower peak is taken.
    """
    pairs = [(schedule.outputs[out], schedule.inputs[old]) for out, old in updates.items()]
    before, taken = place_updates(schedule, pairs)
    memory = _LiveBytes(schedule)
    orders = [in_order(before), _thrifty(before, memory)]
    best = min(orders, key=memory.peak)
    if best == list(range(len(best))) and not taken:
        return schedule
    groups = tuple([schedule.groups[n] for n in best])
    return schedule.replaced(groups=groups, overwritten=tuple(taken.items()))  # type: ignore[no-any-return]


class _LiveBytes:
    """The bytes of temporaries that each group writes and reads."""

    def __init__(self, schedule: Schedule) -> None:
        kept = set(schedule.outputs) | set(schedule.inputs)
        self.bytes: dict[Value, int] = {}
        self.made: list[list[Value]] = []
        self.needed: list[list[Value]] = []
        self.readers: dict[Value, int] = {}
        for group in schedule.groups:
            own = [v for v in group.stored if v not in kept]
            self.made.append(own)
            self.bytes |= {v: estimated_size(v.type.bytes) for v in own}
        for group in schedule.groups:
            read = [v for v in group.needs() if v in self.bytes]
            self.needed.append(read)
            for v in read:
                self.readers[v] = self.readers.get(v, 0) + 1

    def peak(self, order: Sequence[int]) -> int:
        """Return the peak of temporary memory, in bytes."""
        left = dict(self.readers)
        live = most = 0
        for n in order:
            live += sum(self.bytes[v] for v in self.made[n])
            most = max(most, live)
            live -= self.freed(n, left)
        return most

    def freed(self, n: int, left: dict[Value, int]) -> int:
        """Return the bytes that are freed after a group, and count its reads down."""
        total = sum(self.bytes[v] for v in self.made[n] if v not in self.readers)
        for v in self.needed[n]:
            left[v] -= 1
            total += 0 if left[v] else self.bytes[v]
        return total

    def growth(self, n: int, left: Mapping[Value, int]) -> int:
        """Return the growth of memory in use if a group runs now, in bytes."""
        return sum(self.bytes[v] for v in self.made[n]) - sum(self.bytes[v] for v in self.needed[n] if left[v] == 1)


def _thrifty(before: Before, memory: _LiveBytes) -> list[int]:
    """Order groups greedily by the growth of memory."""
    waiting = [len(b) for b in before]
    after: list[list[int]] = [[] for _ in before]
    for n, needs in enumerate(before):
        for x in needs:
            after[x].append(n)
    ready = [n for n, count in enumerate(waiting) if not count]
    left = dict(memory.readers)
    order: list[int] = []
    while ready:
        n = min(ready, key=lambda n: (memory.growth(n, left), n))
        ready.remove(n)
        order.append(n)
        memory.freed(n, left)
        for x in after[n]:
            waiting[x] -= 1
            if not waiting[x]:
                ready.append(x)
    return order
