"""Fuse the nodes of a graph into groups, each of which becomes one kernel.

Two groups are fused if every element that passes between them is read exactly where it is computed: it stays in
registers. Producers and consumers are tried first, then groups that read the same memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.dtype import int64
from ..ir.graph import Graph, Value
from ..ir.scalar import Apply, Const, Expr, Index, Read, Reduce, Scan, facts, substitute, walk
from ..ir.size import Dim, product
from ..ops.external_call import ExternalCall
from ..runtime.target_model import TargetModel
from .access_patterns import stride
from .external_calls import call_of
from .fuse_partial_sums import fuse_partial_sums
from .group import Group, Kind, Mapping, Schedule, Store, merged, taken_over
from .group_checker import check_schedule
from .inline import MAX_NESTED_CHOICES, MAX_RECOMPUTED_WEIGHT, Element, elements, estimated_size, weight_of
from .nests import nest
from .order_edges import Waits, of_nodes, waiting
from .products import free_indices, operands, shared_operand_mapping
from .recompute import recompute_intermediates
from .small_tensors import in_one_piece
from .split_k import split_k

MAX_MEMBERS = 64
MAX_BUFFERS = 24
MIN_ROW_ELEMENTS = 128
"""Row length that leaves threads of an instance idle, in elements."""
MAX_SERIAL_ELEMENTS = 1 << 15
"""Elements up to which a kernel need not be parallel."""


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
        self.nodes = split_k(elements(self.graph, target), target)
        self.groups: dict[int, Group] = {}
        self.place: dict[Value, int] = {}
        self.reads: dict[int, set[Value]] = {}
        self.apart: dict[tuple[Value, Value], str] = {}
        self.moved: dict[int, int] = {}
        self.choices: dict[int, int] = {}
        """Nesting depth of conditional choices, by group."""
        for number, (value, element) in enumerate(self.nodes.items()):
            if value in self.place:
                continue  # an output of a call that is here already
            group = call_of(value, self.nodes) if isinstance(value, ExternalCall) else _node_group(value, element)
            self.groups[number] = group
            self.choices[number] = facts(element.expr).choices
            self.place.update(dict.fromkeys(group.values(), number))
            self.reads[number] = set(value.inputs) if value.opaque else group.reads()
        later = of_nodes(self.graph, waits, self.nodes)
        self.waits: dict[int, set[Value]] = {number: set() for number in self.groups}
        for value in self.nodes:
            self.waits[self.place[value]] |= later.get(value, set())

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
            whole = isinstance(group.members[0].value, ExternalCall)  # a call gives all of its outputs, wanted or not
            stored = tuple(m.value for m in group.members if whole or m.value in needed)
            groups.append(group.replaced(stored=stored, after=tuple(self.waits[number] - set(group.values()))))
        if self.target.recompute_is_cheap:
            groups = recompute_intermediates(groups, frozenset(outputs))
        apart = tuple((p, c, why) for (p, c), why in self.apart.items() if self.place[p] != self.place[c])
        return Schedule(self.graph.inputs, self.graph.outputs, tuple(groups), apart, (), self.target)

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
                        self.apart[(x, value)] = reason

    def _join_siblings(self) -> None:
        """Fuse groups over the same rows and columns that read the same memory."""
        readers: dict[Value, list[int]] = {}
        for number, reads in self.reads.items():
            for x in reads:
                readers.setdefault(x, []).append(number)
        for x, numbers in readers.items():
            if estimated_size(product(x.shape)) < 256:
                continue
            self._join_each({self._alive(n) for n in numbers})

    def _join_each(self, numbers: Iterable[int]) -> None:
        """Fuse the groups that fit with one another, pair by pair."""
        current: list[int] = []
        for number in sorted(numbers):
            if not any(self._join(other, number, siblings=True) == "" for other in list(current)):
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
                reason = self._join(other, number, blocks=True)
                if not reason:
                    return True
                read = [x for x in self.reads[number] if self.place.get(x) == other]
                self.apart.update({(x, parts.members[-1].value): reason for x in read})
        return False

    def _alive(self, number: int) -> int:
        while number not in self.groups:
            number = self.moved[number]
        return number

    def _join(self, first: int, second: int, siblings: bool = False, blocks: bool = False) -> str:
        """Fuse the first group into the second; return the reason if they cannot be fused."""
        if first not in self.groups or second not in self.groups or first == second:
            return "gone"
        a, b = self.groups[first], self.groups[second]
        mapping: Mapping | str = {} if blocks else _sibling_mapping(a, b, self.place) if siblings else _alignment(a, b)
        if isinstance(mapping, str):
            return mapping
        if len(a.members) + len(b.members) > MAX_MEMBERS:
            return "the kernel would be too long"
        choices = self.choices[first] + self.choices[second]
        if choices > 2 * MAX_NESTED_CHOICES and not siblings:
            return "too many choices would be inside each other"
        if len(self.reads[first] | self.reads[second]) > MAX_BUFFERS:
            return "the kernel would read too many tensors"
        if self._has_path(first, second, siblings) or ((siblings or blocks) and self._has_path(second, first, True)):
            return "another kernel stands between them"
        if self._is_shared_scalar(first, second):
            return "a number that other kernels need too does not wait for what this one waits for"
        target = self.target
        if blocks:
            joined = fuse_partial_sums(a, b, target.max_row_elements)
        else:
            needed = self._needed_elsewhere(a, second)
            joined = _merge(a, b, dict(mapping), needed, target.min_parallel_rows)
            if target.coalesced_access and not isinstance(joined, str) and needed and _in_short_rows(a, b):
                joined = "it would be stored in short rows, one after the other"
            if target.separate_transposes and not isinstance(joined, str) and needed and _transposes(a, b):
                joined = "it would be stored across memory, element by element"
        if isinstance(joined, str) and not siblings and not blocks:
            joined = in_one_piece(a, b, mapping, target.single_instance_elements) or joined
        if isinstance(joined, str):
            return joined
        self.groups[second] = joined
        self.reads[second] = (self.reads[first] | self.reads[second]) - {m.value for m in joined.members}
        self.waits[second] |= self.waits.pop(first)
        del self.groups[first], self.reads[first]
        self.choices[second] = max(self.choices[first], self.choices[second]) if siblings else choices
        self.moved[first] = second
        for member in a.members:
            self.place[member.value] = second
        return ""

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


def _node_group(value: Value, element: Element) -> Group:
    """Make the group of one node."""
    if value.opaque:
        return Group("opaque", (), (), (Store(value, element.position, element.expr),), (value,))
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
    return Group(kind, rows, columns, (Store(value, position, expr),), (value,))


def _alignment(a: Group, b: Group) -> Mapping | str:
    """Map each index of the producer to that of the consumer that coincides with it, or return why there is none."""
    if "opaque" in (a.kind, b.kind):
        return "one of them has a kernel of its own"
    if b.kind == "contraction" and a.kind != "contraction":
        return "a matrix product reads its operands many times"
    if b.kind == "contraction":
        return shared_operand_mapping(a, b)
    positions = {m.value: m.position for m in a.members}
    mapping: Mapping = {}
    for read in _reads_of(b, positions):
        for own, at in zip(positions[read.source], read.position, strict=True):
            if isinstance(own, Const):
                continue
            if not isinstance(at, Index) or not isinstance(own, Index):
                return "elements are read elsewhere than where they are made"
            if mapping.setdefault(own, at) is not at or own.extent != at.extent:
                return "elements are read at two places"
    if len(set(mapping.values())) < len(mapping):
        return "a diagonal is read"
    return mapping


def _reads_of(group: Group, values: Iterable[Value]) -> list[Read]:
    wanted = set(values)
    return [e for m in group.members for e in facts(m.expr).reads if e.source in wanted]


def _sibling_mapping(a: Group, b: Group, place: dict[Value, int]) -> Mapping | str:
    """Map the indices of one group to those of another that reads the same memory over the same extents."""
    if a.kind == b.kind == "contraction":
        return shared_operand_mapping(a, b)
    if a.kind not in ("map", "rows") or a.kind != b.kind:
        return "they are of different kinds"
    if [i.extent for i in a.rows] != [i.extent for i in b.rows]:
        return "they have different rows"
    if [i.extent for i in a.columns] != [i.extent for i in b.columns]:
        return "they have different columns"
    mapping = dict(zip(a.rows + a.columns, b.rows + b.columns, strict=True))
    here = {(place.get(e.source, e.source), e.position) for m in b.members for e in facts(m.expr).reads}
    for m in a.members:
        for e in facts(m.expr).reads:
            if free_indices(e):
                moved = substitute(e, mapping)  # type: ignore[arg-type]
                if isinstance(moved, Read) and (place.get(e.source, e.source), moved.position) in here:
                    return mapping
    return "they read different elements"


def _merge(a: Group, b: Group, mapping: Mapping, needed: set[Value], few: int) -> Group | str:
    """Merge two groups, or return why they cannot be merged."""
    if a.kind == b.kind == "contraction":
        return merged(a, b, mapping, "contraction", b.rows, b.columns)
    if a.kind == "contraction":
        if b.kind != "map" or {mapping.get(i) for i in a.rows} != set(b.rows) or len(a.rows) != len(b.rows):
            return "only elementwise work on the same elements follows a matrix product"
        return merged(a, b, mapping, "contraction", b.rows, taken_over(a, b, mapping))
    if a.kind == "map":
        return _merge_map(a, b, mapping, needed, few)
    image = [mapping.get(i) for i in a.rows]
    if None in image:
        return "a row that is read is not that of the reader"
    columns = b.columns
    if b.kind == "map":
        inside = {mapping[i] for i in a.columns if i in mapping}
        left = tuple(i for i in b.rows if i not in image)
        if inside and inside != set(left):
            return "the columns of one are rows of the other"
        columns = left
    rows = tuple(i for i in b.rows if i not in columns)
    if set(image) != set(rows):
        return "they run along different axes"
    if not columns:
        columns = taken_over(a, b, mapping)
    if [i.extent for i in a.columns] != [i.extent for i in columns]:
        return "their rows have different lengths"
    for own, other in zip(a.columns, columns, strict=True):
        if mapping.setdefault(own, other) is not other:
            return "their columns are in a different order"
    if b.kind == "map" and left and _too_few(rows, columns, few):
        return "together they would have too few rows to share among threads"
    return merged(a, b, mapping, "rows", rows, columns)


def _merge_map(a: Group, b: Group, mapping: Mapping, needed: set[Value], few: int) -> Group | str:
    """Merge elementwise work into the group that reads it."""
    space = set(b.rows + b.columns)
    image = set(mapping.values())
    if set(mapping) != set(a.rows):
        return "an axis of one does not exist in the other"
    stays = any(m.value in needed for m in a.members)
    if stays and image != space and not (b.columns and image == set(b.rows)):
        return "it would be computed, and stored, once for each of its readers"
    again = image != space and (b.rows + b.columns)[-1] in image
    if again and not stays and _weight(m.expr for m in a.members) > MAX_RECOMPUTED_WEIGHT:
        return "it would be computed again for every row"
    if stays and b.kind == "map" and tuple(mapping[i] for i in a.rows) != b.rows:
        return "they run through their elements in different orders"
    if stays and b.columns and _too_few(b.rows, b.columns, few):
        return "together they would have too few rows to share among threads"
    kind: Kind = "rows" if b.columns else b.kind
    return merged(a, b, mapping, kind, b.rows, b.columns)


def _in_short_rows(a: Group, b: Group) -> bool:
    """Whether elementwise work would run in a loop over rows that are shorter than a tile of its own."""
    if a.kind != "map" or len(b.columns) < 2:
        return False
    return (
        estimated_size(product([b.columns[-1].extent])) < MIN_ROW_ELEMENTS
        and estimated_size(product(i.extent for i in a.rows)) > MAX_SERIAL_ELEMENTS
    )


def _transposes(a: Group, b: Group) -> bool:
    """Whether elementwise work writes a large tensor transposed to the order in which a reduction reads it: in a kernel
    of its own it is cut into square tiles.
    """
    if a.kind != "map" or not b.columns or estimated_size(product(i.extent for i in a.rows)) <= MAX_SERIAL_ELEMENTS:
        return False
    reads = [e.position[-1] for m in a.members for e in facts(m.expr).reads if e.position]
    along = {i for at in reads for i in a.rows if stride(at, i) == 1}
    return any(along and m.position and m.position[-1] not in along for m in a.members)


def _weight(exprs: Iterable[Expr]) -> int:
    """Weigh the functions of elements, without positions."""
    done = [e for e in walk(*exprs) if isinstance(e, Apply) and e.dtype is not int64]
    return sum(weight_of(e.fn) for e in done)


def _too_few(rows: tuple[Index, ...], columns: tuple[Index, ...], few: int) -> bool:
    count = estimated_size(product(i.extent for i in rows))
    return count < few and count * estimated_size(product(i.extent for i in columns)) > MAX_SERIAL_ELEMENTS


def extents(indices: tuple[Index, ...]) -> tuple[Dim, ...]:
    """Return the extents of indices."""
    return tuple(i.extent for i in indices)
