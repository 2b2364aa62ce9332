"""Fuse the nodes of a graph into groups, each of which becomes one kernel.

Two groups are fused if every element that passes between them is read exactly where it is computed: it stays in
registers. Producers and consumers are tried first, then groups that read the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from ..deferred import part
from ..ir.graph import Graph, Value
from ..ir.scalar import Const, Index, Reduce, Scan, facts, substitute, walk
from ..ir.size import product
from ..runtime.target_model import TargetModel
from .group import Group, GroupMember, Kind, Mapping, Schedule
from .group_checker import check_schedule
from .inline import MAX_NESTED_CHOICES, Element, elements, estimated_size
from .merge_groups import alignment, merge, scanned_row_bytes, sibling_mapping, stores_in_short_rows, stores_transposed
from .nests import nest
from .order_edges import Waits, of_nodes, waiting
from .products import operands
from .small_tensors import in_one_piece

Relation = Literal["producer", "sibling", "partial sums"]
"""Relation of a group to the one that it is fused into."""
MAX_MEMBERS, MAX_BUFFERS = 64, 24
"""Most values of a group, and most tensors that its kernel reads: longer kernels compile slowly."""
MIN_SHARED_ELEMENTS = 256
"""Smallest tensor that is worth reading once for several groups."""


def fuse(graph: Graph, target: TargetModel = TargetModel()) -> Schedule:
    """Group the nodes of a graph so that few values pass through memory.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ops.exponential import exp
    >>> from ..ops.broadcasting import reduce_sum
    >>> x = Input(TensorType(float32, (4, 8)), "x")
    >>> print(fuse(Graph((x,), (reduce_sum(exp(x), (1,), True),))))
    group 0: rows over i in 4; along k in 8
      let t0 = sum(exp(x[i, k]) for k in 0:8)
      store sum_1[i, 0] = t0
    """
    plain, waits, _ = waiting(graph)
    return check_schedule(fuse_ordered(plain, waits, target))


def fuse_ordered(graph: Graph, waits: Waits, target: TargetModel) -> Schedule:
    """Fuse the nodes of a graph whose values have further ordering edges."""
    return _Fusion(graph, waits, target).schedule()


class _Fusion:
    """The groups during fusion. `place` maps a node to the number of its group."""

    def __init__(self, graph: Graph, waits: Waits, target: TargetModel) -> None:
        self.graph = graph
        self.target = target
        split_k = part("schedule.split_k", "split_k")
        nodes = elements(self.graph, target)
        self.nodes = nodes if split_k is None else split_k(nodes, target)
        self.groups: dict[int, Group] = {}
        self.place: dict[Value, int] = {}
        self.reads: dict[int, set[Value]] = {}
        self.unfused: dict[tuple[Value, Value], str] = {}
        self.moved: dict[int, int] = {}
        self.choices: dict[int, int] = {}
        """Nesting depth of conditional choices, by group."""
        for number, (value, element) in enumerate(self.nodes.items()):
            if value in self.place:
                continue  # an output of a call that is here already
            group = self._call_of(value) if value.external else _node_group(value, element)
            self.groups[number] = group
            self.choices[number] = facts(element.expr).choices
            self.place.update(dict.fromkeys(group.values(), number))
            self.reads[number] = set(value.inputs) if value.opaque else group.reads()
        later = of_nodes(self.graph, waits, self.nodes)
        self.waits: dict[int, set[Value]] = {number: set() for number in self.groups}
        for value in self.nodes:
            self.waits[self.place[value]] |= later.get(value, set())

    def _call_of(self, value: Value) -> Group:
        from .external_calls import call_of

        return call_of(value, self.nodes)

    def schedule(self) -> Schedule:
        for value in list(self.nodes):
            self._join_producers(value)
        self._join_siblings()
        self._join_parts_of_sums()
        order = self._ordered()
        outputs = set(self.graph.outputs)
        groups = []
        for number in order:
            group = self.groups[number]
            needed = {x for other, reads in self.reads.items() if other != number for x in reads} | outputs
            whole = group.members[0].value.external  # a call gives all of its outputs, wanted or not
            stored = tuple(m.value for m in group.members if whole or m.value in needed)
            groups.append(group.replaced(stored=stored, after=tuple(self.waits[number] - set(group.values()))))
        if self.target.recompute_is_cheap:
            from .recompute import recompute_intermediates

            groups = recompute_intermediates(groups, frozenset(outputs))
        unfused = tuple((p, c, why) for (p, c), why in self.unfused.items() if self.place[p] != self.place[c])
        return Schedule(self.graph.inputs, self.graph.outputs, tuple(groups), unfused, (), self.target)

    def _join_producers(self, value: Value) -> None:
        """Fuse the group of a value with its producers: matrix products first, then the nearest.

        A matrix product takes only an elementwise epilogue into its kernel.
        """
        refused: set[tuple[int, int]] = set()
        joined = True
        while joined:
            joined = False
            number = self.place[value]
            producers = {self.place[x] for x in self.reads[number] if x in self.place} - {number}
            for producer in sorted(producers, key=lambda n: (self.groups[n].kind == "contraction", n), reverse=True):
                if (producer, number) in refused:
                    continue
                reason = self._join(producer, number)
                if not reason:
                    joined = True
                    break
                refused.add((producer, number))
                for x in self.reads[number]:
                    if self.place.get(x) == producer:
                        self.unfused[(x, value)] = reason

    def _join_siblings(self) -> None:
        """Fuse groups over the same rows and columns that read the same memory."""
        readers: dict[Value, list[int]] = {}
        for number, reads in self.reads.items():
            for x in reads:
                readers.setdefault(x, []).append(number)
        for x, numbers in readers.items():
            if estimated_size(product(x.shape)) < MIN_SHARED_ELEMENTS:
                continue
            self._join_each({self._alive(n) for n in numbers})

    def _join_each(self, numbers: Iterable[int]) -> None:
        """Fuse the groups that fit with one another, pair by pair."""
        current: list[int] = []
        for number in sorted(numbers):
            if not any(self._join(other, number, "sibling") == "" for other in list(current)):
                current.append(number)
            else:
                current = [n for n in current if n in self.groups] + [number]

    def _join_parts_of_sums(self) -> None:
        """Fuse partial column sums with a reduction along the same rows: last, since nothing can follow them in their
        kernel.

        The sums of the partial sums of one kernel are then fused too, and so on.
        """
        joined = {number for number in sorted(self.groups) if number in self.groups and self._join_along(number)}
        waiting = sorted(joined & set(self.groups))
        for number in waiting:
            rest = [n for n, reads in self.reads.items() if any(self.place.get(x) == number for x in reads)]
            rest = [n for n in rest if self.groups[n].kind == "rows"]
            self._join_each(rest)
            waiting += [n for n in rest if n in self.groups and len(rest) > 1]

    def _join_along(self, number: int) -> bool:
        """Fuse a group of partial column sums with one along the same rows, if there is one."""
        parts = self.groups[number]
        if parts.kind != "rows" or len(parts.columns) != 1 or len(parts.rows) < 2:
            return False
        near = {n for n, reads in self.reads.items() if n != number and reads & self.reads[number]}
        for other in sorted(near | self._producers(number), reverse=True):
            along = self.groups[other]
            if along.kind == "rows" and along.columns and along.columns[-1].extent == parts.rows[-1].extent:
                reason = self._join(other, number, "partial sums")
                if not reason:
                    return True
                read = [x for x in self.reads[number] if self.place.get(x) == other]
                self.unfused.update({(x, parts.members[-1].value): reason for x in read})
        return False

    def _alive(self, number: int) -> int:
        while number not in self.groups:
            number = self.moved[number]
        return number

    def _join(self, first: int, second: int, relation: Relation = "producer") -> str:
        """Fuse the first group into the second; return the reason if they cannot be fused."""
        if first not in self.groups or second not in self.groups or first == second:
            return "gone"
        a, b = self.groups[first], self.groups[second]
        mapping = self._mapping(a, b, relation)
        if isinstance(mapping, str):
            return mapping
        pair = _Pair(self, first, second, relation)
        reason = _first_reason(LIMITS, pair)
        if reason:
            return reason
        joined = self._merged(pair, mapping)
        if isinstance(joined, str):
            return joined
        self.groups[second] = joined
        self.reads[second] = (self.reads[first] | self.reads[second]) - {m.value for m in joined.members}
        self.waits[second] |= self.waits.pop(first)
        del self.groups[first], self.reads[first]
        deepest = max(self.choices[first], self.choices[second])
        self.choices[second] = deepest if relation == "sibling" else pair.choices
        self.moved[first] = second
        for member in a.members:
            self.place[member.value] = second
        return ""

    def _mapping(self, a: Group, b: Group, relation: Relation) -> Mapping | str:
        if relation == "partial sums":
            return {}
        return sibling_mapping(a, b, self.place) if relation == "sibling" else alignment(a, b)

    def _merged(self, pair: _Pair, mapping: Mapping) -> Group | str:
        """Merge a pair, in a small kernel if it is too expensive otherwise, or return the reason against it."""
        a, b, target = pair.a, pair.b, self.target
        if pair.relation == "partial sums":
            from .fuse_partial_sums import fuse_partial_sums

            return fuse_partial_sums(a, b, target.max_row_elements)
        needed = self._needed_elsewhere(a, pair.second)
        joined = merge(a, b, dict(mapping), needed, target.min_parallel_rows)
        if needed and not isinstance(joined, str):
            joined = _first_reason(STORES, pair) or joined
        if isinstance(joined, str) and pair.relation == "producer":
            return in_one_piece(a, b, mapping, target.single_instance_elements) or joined
        return joined

    def _is_shared_scalar(self, first: int, second: int) -> bool:
        """Whether the first group computes scalars that wait for no kernel, while the second does: other readers would
        wait too.
        """
        a = self.groups[first]
        if a.kind != "map" or a.rows or self._producers(first) or not self._producers(second) - {first}:
            return False
        own = {m.value for m in a.members}
        return any(reads & own for n, reads in self.reads.items() if n != second)

    def _needed_elsewhere(self, group: Group, other: int) -> set[Value]:
        own = {m.value for m in group.members}
        outputs = own & set(self.graph.outputs)
        return outputs | {x for n, reads in self.reads.items() if n != other for x in reads & own}

    def _has_path(self, first: int, second: int, direct: bool = False) -> bool:
        """Whether there is a path from the first group to the second through others (or, if `direct`, any path)."""
        stack = [n for n in self._producers(second) if n != first or direct]
        seen: set[int] = set()
        while stack:
            number = stack.pop()
            if number == first:
                return True
            if number not in seen:
                seen.add(number)
                stack.extend(self._producers(number))
        return False

    def _producers(self, number: int) -> set[int]:
        """Return the groups that must run before: those whose values it reads or waits for."""
        return {self.place[x] for x in self.reads[number] | self.waits[number] if x in self.place} - {number}

    def _ordered(self) -> list[int]:
        """Sort the groups topologically."""
        order: list[int] = []
        done: set[int] = set()
        for root in sorted(self.groups):
            stack = [(root, False)]
            while stack:
                number, ready = stack.pop()
                if number in done:
                    continue
                if ready:
                    done.add(number)
                    order.append(number)
                else:
                    stack.append((number, True))
                    stack.extend((n, False) for n in sorted(self._producers(number), reverse=True))
        return order


class _Pair(NamedTuple):
    """Two groups that may be fused."""

    fusion: _Fusion
    first: int
    second: int
    relation: Relation

    @property
    def a(self) -> Group:
        return self.fusion.groups[self.first]

    @property
    def b(self) -> Group:
        return self.fusion.groups[self.second]

    @property
    def choices(self) -> int:
        return self.fusion.choices[self.first] + self.fusion.choices[self.second]

    @property
    def tensors(self) -> set[Value]:
        return self.fusion.reads[self.first] | self.fusion.reads[self.second]

    def scans_long_rows(self) -> bool:
        """Whether both scan, and rows that are too long for one kernel."""
        a, b = self.fusion.groups[self.first], self.fusion.groups[self.second]
        if not a.columns or not b.columns:
            return False
        sizes = scanned_row_bytes(a), scanned_row_bytes(b)
        return all(sizes) and sum(sizes) > self.fusion.target.max_scanned_bytes

    def is_separated(self) -> bool:
        """Whether another group must run after one and before the other."""
        has_path, related = self.fusion._has_path, self.relation != "producer"
        direct = self.relation == "sibling"
        return has_path(self.first, self.second, direct) or (related and has_path(self.second, self.first, True))


class Objection(NamedTuple):
    """A condition under which two groups are not fused, and the reason to report."""

    holds: Callable[[_Pair], bool]
    reason: str


LIMITS = (
    Objection(lambda p: len(p.a.members) + len(p.b.members) > MAX_MEMBERS, "the kernel would be too long"),
    Objection(
        lambda p: p.relation != "sibling" and p.choices > 2 * MAX_NESTED_CHOICES,
        "too many choices would be inside each other",
    ),
    Objection(lambda p: len(p.tensors) > MAX_BUFFERS, "the kernel would read too many tensors"),
    Objection(_Pair.is_separated, "another kernel stands between them"),
    Objection(
        lambda p: p.fusion._is_shared_scalar(p.first, p.second),
        "a number that other kernels need too does not wait for what this one waits for",
    ),
    Objection(_Pair.scans_long_rows, "the rows that they scan would not fit on the stack"),
)
"""Objections to any fusion, the cheapest to find first."""
STORES = (
    Objection(
        lambda p: p.fusion.target.coalesced_access and stores_in_short_rows(p.a, p.b),
        "it would be stored in short rows, one after the other",
    ),
    Objection(
        lambda p: p.fusion.target.separate_transposes and stores_transposed(p.a, p.b),
        "it would be stored across memory, element by element",
    ),
)
"""Objections to storing an intermediate that other groups read too."""


def _first_reason(objections: Sequence[Objection], pair: _Pair) -> str:
    return next((objection.reason for objection in objections if objection.holds(pair)), "")


def _node_group(value: Value, element: Element) -> Group:
    """Make the group of one node."""
    if value.opaque:
        return Group("opaque", (), (), (GroupMember(value, element.position, element.expr),), (value,))
    position, expr = element.position, element.expr
    rows = tuple(i for i in position if isinstance(i, Index))
    if any(not isinstance(p, Index | Const) for p in position):
        rows = tuple(sorted({i for p in position for i in facts(p).indices}, key=lambda i: i.name))
    loops = [e for e in walk(expr) if isinstance(e, Reduce | Scan)] if facts(expr).loops else []
    kind: Kind = "map"
    columns: tuple[Index, ...] = ()
    scans = [e for e in loops if isinstance(e, Scan)]
    if len(loops) == 1 and scans and isinstance(scans[0].at, Index):
        expr = substitute(expr, {scans[0].index: scans[0].at})
        columns = (scans[0].at,)
        rows = tuple(i for i in rows if i is not scans[0].at)
        kind = "rows"
    elif loops and not scans:
        chain = nest(expr)
        if len(chain) == len(loops):
            columns = tuple(e.index for e in chain)
            kind = "contraction" if operands(expr, rows, columns) else "rows"
    return Group(kind, rows, columns, (GroupMember(value, position, expr),), (value,))
