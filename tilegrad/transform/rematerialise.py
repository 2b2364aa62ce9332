"""Rematerialisation: recompute values for the gradients to fit a program into a memory budget.

Values of the forward part that the gradients read live longest. Where most memory is in use, drop the values that save
most bytes for each recomputed operation, plan again, and repeat. Random numbers stay the same, because their state is
an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from ..errors import BudgetError
from ..ir.graph import Graph, Value
from ..ir.node import Node
from ..ir.size import Dim
from ..ops.joint import Recompute
from .operation_count import operations
from .share import on_inputs

MAX_PLANS = 40
"""Largest number of plans made; each drops half of the excess."""
SEGMENTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of segments of the forward part tried in the end; only the values at their ends are kept."""
MAX_KEPT = 6
"""Most expensive dropped values that are tried to be kept once the program fits."""


class MemoryPlan(Node):
    """The order of the kernels of a graph and the memory in use at the peak."""

    bytes: int
    """Peak memory: inputs, outputs and temporaries."""
    kept: int
    """Bytes of inputs and outputs, which every plan keeps."""
    made: tuple[tuple[Value, ...], ...]
    """Values that each kernel computes, in order."""
    needs: tuple[tuple[Value, ...], ...]
    """Values that each kernel reads from memory."""
    stored: frozenset[Value]
    peak: int
    """Number of the kernel at which the peak occurs."""
    live: tuple[Value, ...]
    """Temporaries that are live at the peak."""


Planner: TypeAlias = "Callable[[Graph], MemoryPlan]"


def rematerialise(graph: Graph, planner: Planner, budget: int) -> Graph:
    """Recompute values for the gradients until the program fits the budget; raise `BudgetError` if it cannot.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.exponential import exp
    >>> from ..schedule.planned import planned
    >>> from .autodiff import gradients, tracked_input
    >>> x, u = tracked_input(TensorType(float32, (64,)), "x"), Input(TensorType(float32, (64,)), "u")
    >>> y = exp(exp(x))
    >>> rematerialise(Graph((x, u), (y, *gradients([y], [u], [x]))), planned, 1 << 20) is not None
    True
    """
    plan = planner(graph)
    if plan.bytes <= budget:
        return graph
    search = _DropSearch(graph, planner, plan)
    if not search.until(budget):
        least, extra = search.best.bytes, _extra_share(search.graph)
        raise BudgetError(
            f"fit={budget:,} bytes cannot be: the program takes {plan.bytes:,}, and still {least:,} with {extra:.0%} "
            f"more operations to compute values again; {plan.kept:,} of them are inputs and results. Take a smaller "
            "batch or a shorter dtype, drop gradients by optimizer.zero_grad() behind optimizer.step(), or allow more"
        )
    search.relent(budget)
    return search.graph


def recomputed(graph: Graph) -> list[Value]:
    """List the values of the forward part that are computed a second time, by checkpoints or to fit a budget."""
    later: set[Value] = set()
    found = []
    for value in graph.values():
        if isinstance(value, Recompute) or not later.isdisjoint(value.inputs):
            if _is_backward(value):
                continue
            later.add(value)
            if not isinstance(value, Recompute):
                found.append(value)
    return found


def _is_backward(value: Value) -> bool:
    return value.location is not None and value.location.derived and not isinstance(value, Recompute)


def _extra_share(graph: Graph) -> float:
    """Return the recomputed operations relative to all others."""
    again = recomputed(graph)
    extra = sum(map(operations, again))
    return extra / max(1, sum(map(operations, set(graph.values()).difference(again))))


def _known(dim: Dim) -> int:
    return dim if isinstance(dim, int) else 0


class _DropSearch:
    """A search for the values to drop: the graph, and the values dropped so far."""

    def __init__(self, graph: Graph, planner: Planner, plan: MemoryPlan) -> None:
        self.original, self.first, self.planner = graph, plan, planner
        self.values = graph.values()
        self.place = {v: n for n, v in enumerate(self.values)}
        self.given = set(graph.inputs)
        self.readers = graph.consumers()
        self.backward: set[Value] = set()
        for v in self.values:
            if v not in self.given and (_is_backward(v) or not self.backward.isdisjoint(v.inputs)):
                self.backward.add(v)
        self.kernel = {v: n for n, made in enumerate(plan.made) for v in made}
        self.times = self._times()
        self.parts: dict[Value, tuple[int, set[Value]]] = {}
        self.dropped: set[Value] = set()
        self.graph, self.best, self.back = graph, plan, {v: v for v in self.values}

    def _times(self) -> dict[Value, int]:
        """Map each value of the gradients to the first kernel that computes it or a value made from it."""
        times: dict[Value, int] = {}
        for v in reversed(self.values):
            if v in self.backward:
                found = [times[r] for r in self.readers[v] if r in times]
                times[v] = self.kernel.get(v, min(found, default=len(self.first.made)))
        return times

    def until(self, budget: int) -> bool:
        """Drop values until the program fits; return whether it does."""
        least = self._state()
        for trial in self._trials(budget):
            self._update(trial)
            if self.best.bytes <= budget:
                return True
            least = min(least, self._state(), key=lambda state: state[2].bytes)
        self._restore(least)
        return False

    def _trials(self, budget: int) -> Iterator[set[Value]]:
        """Yield sets of values to drop: first those that save most bytes for their cost, then all but the ends of
        segments.
        """
        for _ in range(MAX_PLANS):
            chosen = self._chosen((self.best.bytes - budget) // 2 + 1)
            if not chosen:
                break
            yield self.dropped | chosen
        for count in SEGMENTS:
            yield self._within(count)

    def _within(self, count: int) -> set[Value]:
        """Return the values of the forward part that are live only within one of `count` segments."""
        kept = {*self.backward, *self.original.outputs}
        last = {v: self._last_forward(v) for v in self.first.stored - kept if not v.opaque}
        across = [0] * len(self.first.made)
        total = 0
        for v, end in last.items():
            total += _known(v.type.bytes)
            for n in range(self.kernel[v], end):
                across[n] += _known(v.type.bytes)
        order = sorted(last, key=self.kernel.__getitem__)
        cuts: list[int] = []
        begin, filled = 0, 0
        for v in order:
            filled += _known(v.type.bytes)
            if filled * count >= total * (len(cuts) + 1) and self.kernel[v] > begin:
                cuts.append(min(range(begin, self.kernel[v] + 1), key=lambda n: (across[n], -n)))
                begin = self.kernel[v]
        return {v for v, end in last.items() if not any(self.kernel[v] <= cut < end for cut in cuts)}

    def _last_forward(self, value: Value) -> int:
        """Return the last kernel of the forward part that needs a value."""
        found, seen = self.kernel[value], {value}
        stack = [value]
        while stack:
            for r in self.readers[stack.pop()]:
                if r not in seen and r not in self.backward:
                    seen.add(r)
                    found = max(found, self.kernel.get(r, 0))
                    if r not in self.kernel:
                        stack.append(r)
        return found

    def _state(self) -> tuple[set[Value], Graph, MemoryPlan, dict[Value, Value]]:
        return self.dropped, self.graph, self.best, self.back

    def _restore(self, state: tuple[set[Value], Graph, MemoryPlan, dict[Value, Value]]) -> None:
        self.dropped, self.graph, self.best, self.back = state

    def relent(self, budget: int) -> None:
        """Keep the most expensive dropped values where the budget allows."""
        expensive = sorted(self.dropped, key=lambda v: (-self._cost(v, self.dropped), self.kernel[v]))
        for v in expensive[:MAX_KEPT]:
            before = self._state()
            self._update(self.dropped - {v})
            if self.best.bytes > budget:
                self._restore(before)

    def _update(self, dropped: set[Value]) -> None:
        self.dropped = dropped
        self.graph, self.back = _Recomputation(self, dropped).graph()
        self.best = self.planner(self.graph)

    def _chosen(self, bytes: int) -> set[Value]:
        """Choose values to drop that save a number of bytes at the peak."""
        now = {self.back.get(v, v): n for n, made in enumerate(self.best.made) for v in made}
        candidates = []
        for v in self.best.live:
            if v in self.dropped or v in self.backward or v.opaque or v not in self.kernel:
                continue
            needed = self._needed(self.dropped | {v})
            start = self.trigger(needed[v]) if v in needed else None
            if start is not None and now.get(start, -1) >= self.best.peak:
                candidates.append(v)
        chosen: set[Value] = set()
        while candidates and bytes > 0:
            dropped = self.dropped | chosen
            v = max(candidates, key=lambda v: (_known(v.type.bytes) / self._cost(v, dropped), -self.kernel[v]))
            candidates.remove(v)
            chosen.add(v)
            bytes -= _known(v.type.bytes)
        return chosen

    def is_there(self, value: Value, dropped: set[Value]) -> bool:
        """Return whether a value of the forward part is in memory or needs none."""
        return value in self.given or not value.inputs or (value in self.first.stored and value not in dropped)

    def _needed(self, dropped: set[Value]) -> dict[Value, int]:
        """Map values of the forward part to the first kernel of the gradients that needs them or a dropped value made
        from them.
        """
        needed: dict[Value, int] = {}
        for v in reversed(self.values):
            if v in self.backward:
                continue
            times = [self.times[r] for r in self.readers[v] if r in self.times]
            times += [needed[r] for r in self.readers[v] if r in needed and not self.is_there(r, dropped)]
            if times:
                needed[v] = min(times)
        return needed

    def starts(self, dropped: set[Value]) -> dict[Value, Value]:
        """Map each dropped value to the value that its recomputation waits for."""
        needed = self._needed(dropped)
        return {v: start for v in dropped if v in needed and (start := self.trigger(needed[v])) is not None}

    def trigger(self, time: int) -> Value | None:
        """Return the last value that is computed before a kernel of the gradients can run."""
        if time >= len(self.first.made):
            return None
        own = [v for v in self.first.needs[time] if v in self.backward and v in self.kernel]
        if own:
            return max(own, key=lambda v: self.kernel[v])
        return self.first.made[time - 1][-1] if time else None

    def _cost(self, value: Value, dropped: set[Value]) -> int:
        """Count the operations of recomputing a value, including dropped values it needs or that need it: of a chain of
        similar values every other one is dropped first.
        """
        total, sources = self._parts(value)
        stack = [x for x in sources if x in dropped]
        seen = set(stack)
        while stack:
            own, more = self._parts(stack.pop())
            total += own
            stack += [x for x in more if x in dropped and x not in seen]
            seen.update(more)
        return 1 + total + sum(own for own, sources in map(self._parts, dropped - {value}) if value in sources)

    def _parts(self, value: Value) -> tuple[int, set[Value]]:
        """Count the operations of computing a value from values in memory, and return these values."""
        if value not in self.parts:
            seen, sources = {value}, set()
            stack = list(value.inputs)
            while stack:
                v = stack.pop()
                if self.is_there(v, set()):
                    sources.add(v)
                elif v not in seen:
                    seen.add(v)
                    stack.extend(v.inputs)
            self.parts[value] = sum(map(operations, seen)), sources
        return self.parts[value]


class _Recomputation:
    """Builder of the graph in which the gradients read recomputed values."""

    def __init__(self, search: _DropSearch, dropped: set[Value]) -> None:
        self.search = search
        self.starts = search.starts(dropped)
        self.dropped = dropped & set(self.starts)
        self.new: dict[Value, Value] = {}
        self.copies: dict[tuple[Value, Value], Value] = {}
        """Recomputed values, by the original and the value that the computation waits for."""

    def graph(self) -> tuple[Graph, dict[Value, Value]]:
        """Build the graph; also map its values to the original ones."""
        search = self.search
        late: dict[Value, Value] = {}
        for v in search.values:
            if v not in search.backward:
                self.new[v] = v
        for v in sorted(
            search.backward, key=lambda v: (search.times[v], search.place[v])
        ):  # triggers come before their recomputations
            inputs = [self.new[x] if x in search.backward else self._late(x, late) for x in v.inputs]
            self.new[v] = on_inputs(v, tuple(inputs))
        outputs = tuple([self.new[v] for v in search.original.outputs])
        return Graph(search.original.inputs, outputs), {new: old for old, new in self.new.items()}

    def _late(self, wanted: Value, late: dict[Value, Value]) -> Value:
        """Return the value that the gradients read in place of a value of the forward part."""
        stack = [wanted]
        while stack:
            v = stack[-1]
            if v in late or self.search.is_there(v, self.dropped):
                late.setdefault(v, v)
                stack.pop()
            elif v in self.dropped:
                late[v] = self._copy(v, self.starts[v])
                stack.pop()
            else:
                waiting = [x for x in v.inputs if x not in late]
                stack.extend(waiting)
                if not waiting:
                    late[v] = on_inputs(v, tuple([late[x] for x in v.inputs]))
        return late[wanted]

    def _copy(self, wanted: Value, start: Value) -> Value:
        """Recompute a value from values in memory, after `start`."""
        stack = [(wanted, start)]
        while stack:
            v, start = key = stack[-1]
            if key in self.copies:
                stack.pop()
                continue
            if not v.inputs and v not in self.search.given:
                self.copies[key] = v
            elif self.search.is_there(v, self.dropped):
                self.copies[key] = Recompute(v, self.new[start])
            else:
                parts = [(x, self.starts[x] if x in self.dropped else start) for x in v.inputs]
                waiting = [p for p in parts if p not in self.copies]
                stack.extend(waiting)
                if not waiting:
                    self.copies[key] = on_inputs(v, tuple([self.copies[p] for p in parts]))
        return self.copies[wanted, start]


def summary(values: Sequence[Value]) -> str:
    """Show recomputed values as a count of each op.

    >>> summary([])
    'nothing'
    """
    counts: dict[str, int] = {}
    for v in values:
        counts[v.op] = counts.get(v.op, 0) + 1
    return ", ".join(f"{n} {op}" for op, n in sorted(counts.items(), key=lambda c: -c[1])) or "nothing"
