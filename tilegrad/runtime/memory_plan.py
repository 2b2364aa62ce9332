"""Plan the memory of a graph's results: in place, shared by reference counts, and aware of concurrency.

Three rules decide where the result of an operation goes, in this order:

- *in place*: over an input of the same size, if the operation permits it and nothing reads that input afterwards;
- *shared*: a slot whose results have all been read, the smallest that is large enough, else the largest, which grows;
- a new slot.

A reused slot makes operations wait: whoever overwrites it waits for those that wrote or read what was in it. In order
that makes no difference. Run concurrently, it may tie branches together that the graph leaves independent: with
`concurrent=True` a slot is only passed on to operations that depend on all of its users, along one path of the graph.

>>> conv, relu = Operation("conv", ("x",), 4096), Operation("relu", ("conv",), 4096, in_place=True)
>>> print(plan_memory([conv, relu, Operation("pool", ("relu",), 1024)]))
conv: slot 0 at 0, new
relu: slot 0 at 0, in place of conv
pool: slot 1 at 4096, new
5120 bytes instead of 9216
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from ..errors import ArgumentError
from .arena import ALIGNMENT


class Operation(NamedTuple):
    """An operation of a graph with one result of the same name; inputs that no operation computes are given."""

    name: str
    inputs: tuple[str, ...]
    bytes: int
    in_place: bool = False
    """Whether it may write its result over an input of the same size, as elementwise operations may."""


class SlotPlan(NamedTuple):
    """The slots of a graph's results: `total` bytes, `unshared` if each result had memory of its own."""

    slots: dict[str, int]
    offsets: dict[str, int]
    reasons: dict[str, str]
    """For each result: new, in place of an input, or the result whose memory it takes over."""
    waits: tuple[tuple[str, str], ...]
    """Pairs of operations, independent in the graph, of which the second waits for the first to share its memory."""
    total: int
    unshared: int

    def __str__(self) -> str:
        lines = [f"{name}: slot {n} at {self.offsets[name]}, {self.reasons[name]}" for name, n in self.slots.items()]
        lines += [f"{after} waits for {before}" for before, after in self.waits]
        return "\n".join([*lines, f"{self.total} bytes instead of {self.unshared}"])


def plan_memory(
    operations: Sequence[Operation],
    results: Collection[str] = (),
    *,
    in_place: bool = True,
    share: bool = True,
    concurrent: bool = False,
) -> SlotPlan:
    """Plan where the results of operations go, which are in an order in which they can run.

    `results` are needed at the end, besides those that nothing reads. `in_place` and `share` switch rules on;
    `concurrent` keeps operations concurrent that the graph leaves independent.
    """
    names = [op.name for op in operations]
    known: set[str] = set()
    for op in operations:
        late = [x for x in op.inputs if x in names and x not in known]
        if late or op.name in known:
            raise ArgumentError(
                f"{op.name} reads {late[0]}, which comes later: list operations in an order in which they can run"
                if late
                else f"two operations are called {op.name}"
            )
        known.add(op.name)
    unknown = [name for name in results if name not in known]
    if unknown:
        raise ArgumentError(f"the result {unknown[0]} is computed by no operation")
    return _SlotPlanner(operations, frozenset(results), in_place, share, concurrent).plan()


class _SharedSlot:
    """Memory that results take one after another, and the operations that wrote or read them."""

    def __init__(self, bytes: int, tenant: str) -> None:
        self.bytes, self.tenant = bytes, tenant
        self.users: set[str] = {tenant}


class _SlotPlanner:
    def __init__(
        self, operations: Sequence[Operation], results: frozenset[str], in_place: bool, share: bool, concurrent: bool
    ) -> None:
        self.operations = operations
        self.in_place, self.share, self.concurrent = in_place, share, concurrent
        self.of = {op.name: op for op in operations}
        self.unread = Counter(x for op in operations for x in set(op.inputs) if x in self.of)
        """Reads of each result that are still to come; those of the caller never come."""
        self.unread.update([op.name for op in operations if op.name in results or not self.unread[op.name]])
        self.before: dict[str, set[str]] = {}
        """The operations that each one depends on."""
        self.slots: list[_SharedSlot] = []
        self.slot_of: dict[str, int] = {}
        self.reasons: dict[str, str] = {}
        self.waits: list[tuple[str, str]] = []

    def plan(self) -> SlotPlan:
        for op in self.operations:
            inputs = [x for x in dict.fromkeys(op.inputs) if x in self.of]
            self.before[op.name] = set(inputs).union(*[self.before[x] for x in inputs])
            self._place(op, inputs)
            for x in inputs:
                self.slots[self.slot_of[x]].users.add(op.name)
                self.unread[x] -= 1
        starts = [0]
        for slot in self.slots:
            starts.append(starts[-1] + _aligned(slot.bytes))
        offsets = {name: starts[n] for name, n in self.slot_of.items()}
        unshared = sum([_aligned(op.bytes) for op in self.operations])
        return SlotPlan(self.slot_of, offsets, self.reasons, tuple(self.waits), starts[-1], unshared)

    def _place(self, op: Operation, inputs: Sequence[str]) -> None:
        for x in inputs:
            fits = op.in_place and self.of[x].bytes == op.bytes and self.unread[x] == 1
            if self.in_place and fits and self._may_take(op, self.slot_of[x]):
                return self._take(op, self.slot_of[x], f"in place of {x}")
        free = [n for n, slot in enumerate(self.slots) if not self.unread[slot.tenant] and self._may_take(op, n)]
        if self.share and free:
            large = [n for n in free if self.slots[n].bytes >= op.bytes]
            n = min(large, key=lambda n: self.slots[n].bytes) if large else max(free, key=lambda n: self.slots[n].bytes)
            return self._take(op, n, f"in the memory of {self.slots[n].tenant}")
        self.slot_of[op.name], self.reasons[op.name] = len(self.slots), "new"
        self.slots.append(_SharedSlot(op.bytes, op.name))
        return None

    def _may_take(self, op: Operation, n: int) -> bool:
        return not self.concurrent or self.slots[n].users <= self.before[op.name]

    def _take(self, op: Operation, n: int, reason: str) -> None:
        slot = self.slots[n]
        self.waits += [(user, op.name) for user in self.of if user in slot.users - self.before[op.name]]
        slot.bytes, slot.tenant, slot.users = max(slot.bytes, op.bytes), op.name, {op.name}
        self.slot_of[op.name], self.reasons[op.name] = n, reason


def _aligned(bytes: int) -> int:
    return -(-bytes // ALIGNMENT) * ALIGNMENT
