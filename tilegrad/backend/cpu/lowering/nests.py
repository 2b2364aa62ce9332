"""Loop nests: roots of a plan, grouped, and each group written as loops.

A group over a domain of several axes is a loop over the first one around what is left of its roots, row by row: what a
row brought to the first cache is used up while it is there. Over one axis, vectors run along it; a reduction over an
outer axis keeps one accumulator for each of some neighbouring columns instead and walks down the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import linear
from .accumulate import Accumulator, State
from .dot import dot
from .elements import Address, Elements, Frame, Position, Slot, projected
from ..emit import I64, Value, constant
from .lanes import LaneNest
from .masks import Conjunct, all_hold, assume, conjuncts, moved
from ..linear import ZERO, Linear, number, term
from .nodes import TileNode
from .placing import allocate, commit, common_lanes
from .roots import Plan, Root, identity_pattern
from .scans import scan
from .squares import crosses, squares

DEAR = 8.0
"""What costs so many instructions an element is kept rather than computed twice."""
KEPT_BYTES = 1 << 16
"""The largest tile that is kept only to save computing it again."""

Key = tuple[object, ...]


class Group:
    """Roots that share a nest."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.roots: list[Root] = []


class Nests:
    """Writes the code of a plan."""

    def __init__(self, frame: Frame, plan: Plan) -> None:
        self.frame, self.b, self.plan = frame, frame.builder, plan
        self.outside: set[Root] = set()

    def write(self) -> None:
        while stale := self.plan.stale():
            node, at = stale[0]
            self.plan.keep(node, at)
        for node in self._worth_keeping():
            self.plan.keep(node)
        self.outside = self.plan.escapes()
        self._schedule(self.plan.roots, (), 0)

    def _worth_keeping(self) -> list[TileNode]:
        """What several nests compute, and is dear: the largest such expressions."""
        groups = grouped(self.plan.roots, 0)
        users: dict[TileNode, set[int]] = {}
        above: dict[TileNode, list[set[int]]] = {}
        for n, group in enumerate(groups):
            for root in group.roots:
                for node, _ in root.visits:
                    users.setdefault(node, set()).add(n)
        for group in groups:
            for root in group.roots:
                for node in {v for v, _ in root.visits}:
                    for a in node.args:
                        above.setdefault(a, []).append(users.get(node, set()))
        direct = {x for r in self.plan.roots for x in r.operands} | {
            a for r in self.plan.roots if r.kind == "dot" for a in r.node.args
        }
        found = []
        for node, nests in users.items():
            if len(nests) < 2 or node.cost < DEAR or not node.shape or node.pointer or node in self.plan.results:
                continue
            if node in self.plan.made or math.prod(node.shape) * node.dtype.bytes > KEPT_BYTES * max(1, node.shape[0] if len(node.shape) > 1 else 1):
                continue
            if node in direct or any(nests - other for other in above.get(node, [])):
                found.append(node)
        return found

    # Groups and loops over rows.

    def _schedule(self, roots: Sequence[Root], prefix: Position, depth: int) -> None:
        for group in grouped(roots, depth):
            match group.key[0]:
                case "rows":
                    self._rows(group, prefix, depth)
                case "columns":
                    self._columns(group.roots, prefix, depth)
                case "lanes":
                    self._lanes(group.roots, prefix, depth)
                case "one":
                    for root in group.roots:
                        self._one(root, prefix)
                case "scan":
                    (root,) = group.roots
                    self._keep_result(root)
                    scan(self.frame, root, prefix, depth)
                case _:
                    (root,) = group.roots
                    dot(self.frame, root, self._pack)

    def _rows(self, group: Group, prefix: Position, depth: int) -> None:
        inside = set(group.roots)
        readers: dict[Root, set[Root]] = {}
        for root in self.plan.roots:
            for maker in root.needs:
                readers.setdefault(maker, set()).add(root)
        across = crosses(self.frame, group.roots, prefix, depth)
        for root in group.roots:
            if across and root.kind == "keep":
                self._keep_result(root)
            elif readers.get(root, set()) <= inside and root not in self.outside:
                root.local = depth + 1
            elif root.kind != "update":
                self._keep_result(root)
        if across:
            squares(self.frame, group.roots, prefix, depth)
            for root in group.roots:
                if root.kind == "keep":
                    self.frame.results[root.node] = self._keep_result(root)
            return
        extent = group.roots[0].domain[depth]
        if extent == 1:
            self._schedule(group.roots, (*prefix, ZERO), depth + 1)
            return
        loop = self.b.open_loop("row", constant(0, I64), constant(extent, I64), constant(1, I64), guarded=False)
        before = dict(self.frame.results)
        self._schedule(group.roots, (*prefix, term(loop.index)), depth + 1)
        self.frame.results.clear()
        self.frame.results.update(before)
        for root in group.roots:
            if root.slot is not None and root.kind in ("keep", "reduce", "scan") and root.local <= depth:
                self.frame.results[root.node] = root.slot
        self.b.close_loop(loop)

    def _keep_result(self, root: Root) -> Slot:
        """Memory for the result of a root, without the axes whose loops are around all its readers."""
        if root.slot is None:
            shape = root.node.shape[root.local :]
            root.slot = allocate(self.frame, root.node.dtype, shape, root.kind, root.local)
        return root.slot

    def _pack(self, node: TileNode, slot: Slot) -> None:
        """Fills a slot with a tile."""
        Nests(self.frame, Plan([Root("keep", node, slot=slot)], self.frame.results, ())).write()
        self.frame.results.pop(node, None)

    # One axis.

    def _lanes(self, roots: Sequence[Root], prefix: Position, depth: int) -> None:
        for root in roots:
            if root.kind == "keep":
                self._keep_result(root)
        states = LaneNest(self.frame, roots, prefix, roots[0].domain[depth]).write()
        for root, value in states.items():
            self._reduced(root, value, prefix)
        for root in roots:
            if root.kind == "keep":
                assert root.slot is not None
                self.frame.results[root.node] = root.slot

    def _reduced(self, root: Root, value: Value, at: Position) -> None:
        """A reduction gave a scalar."""
        if not root.node.shape[root.local :]:
            self.frame.results[root.node] = value
            return
        slot = self._keep_result(root)
        where = Address(slot.pointer, slot.offset(self.b, at), None, "")
        Elements(self.frame, 0).write(where, value, root.node.dtype)
        self.frame.results[root.node] = slot

    def _one(self, root: Root, at: Position) -> None:
        """A single element."""
        elements = Elements(self.frame, 0)
        commit(elements, root, at, elements.value(root.node, projected(at, root.node.shape)))

    # Reductions over an outer axis.

    def _columns(self, roots: Sequence[Root], prefix: Position, depth: int) -> None:
        """Reductions over the first axis that is left: middle axes are loops, columns lie in the lanes."""
        extents = roots[0].domain[depth:]
        for root in roots:
            self._keep_result(root)
        loops, middle = [], []
        for extent in extents[1:-1]:
            loop = self.b.open_loop("middle", constant(0, I64), constant(extent, I64), constant(1, I64), guarded=False)
            loops.append(loop)
            middle.append(term(loop.index))
        lanes = min(common_lanes(self.frame, roots), 1 << (extents[-1].bit_length() - 1))
        registers = max(1, (self.frame.target.registers - 4) // (2 * len(roots)))
        count = min(8, 1 << (registers.bit_length() - 1))
        at = 0
        while at < extents[-1]:
            left = extents[-1] - at
            while lanes > left:
                lanes //= 2
            count = max(1, min(count, left // lanes))
            blocks = left // (lanes * count)
            self._column_blocks(roots, prefix, middle, extents[0], at, blocks, count, lanes)
            at += blocks * lanes * count
        for loop in reversed(loops):
            self.b.close_loop(loop)
        for root in roots:
            assert root.slot is not None
            self.frame.results[root.node] = root.slot

    def _column_blocks(
        self, roots: Sequence[Root], prefix: Position, middle: Sequence[Linear], height: int, at: int, blocks: int, count: int, lanes: int
    ) -> None:  # fmt: skip
        b, width = self.b, lanes * count
        loop = None
        first = number(at)
        if blocks > 1:
            stop = constant(at + blocks * width, I64)
            loop = b.open_loop("column", constant(at, I64), stop, constant(width, I64), guarded=False)
            first = term(loop.index)
        columns = [linear.add(b, first, number(n * lanes))._replace(lane=1 if lanes > 1 else 0) for n in range(count)]
        held = 0 if lanes == 1 else lanes
        made = self._down_masked(roots, (prefix, middle), height, columns, held, width)
        elements = Elements(self.frame, held)
        for (root, n), value in made.items():
            assert root.slot is not None
            place = (*prefix, *middle, columns[n])
            where = Address(root.slot.pointer, root.slot.offset(b, place), None, "")
            elements.write(where, value, root.node.dtype)
        if loop is not None:
            b.close_loop(loop)

    def _down_masked(
        self, roots: Sequence[Root], around: tuple[Position, Sequence[Linear]], height: int, columns: Sequence[Linear], lanes: int, width: int
    ) -> dict[tuple[Root, int], Value]:  # fmt: skip
        """Walks down the rows, without masks where the whole block is inside of them."""
        b, (prefix, middle) = self.b, around
        found = conjuncts(self.frame, roots)
        whole = (*prefix, ZERO, *middle, columns[0].base)
        axis, extent = len(whole) - 1, roots[0].domain[-1]
        end = linear.scalar(b, moved(columns[0].base, width), "end")
        reach = [(axis, extent, end), (len(prefix), height, constant(height, I64))]
        holds = all_hold(self.frame, found, whole, reach) if found else None
        if holds is None or holds.is_constant:
            known = found if holds is not None and holds.text == "true" else []
            return self._down(roots, prefix, middle, height, columns, lanes, known)
        b.open_branch("inside")
        inside = self._down(roots, prefix, middle, height, columns, lanes, found)
        then = b.close_branch()
        b.open_branch("edge")
        edge = self._down(roots, prefix, middle, height, columns, lanes, [])
        merged = b.close_branches(holds, then, b.close_branch(), [(inside[key], edge[key]) for key in inside])
        return dict(zip(inside, merged, strict=True))

    def _down(
        self, roots: Sequence[Root], prefix: Position, middle: Sequence[Linear], height: int, columns: Sequence[Linear], lanes: int, known: Sequence[Conjunct]
    ) -> dict[tuple[Root, int], Value]:  # fmt: skip
        """Walks down the rows; gives the results by root and column."""
        b = self.b
        accumulators = {root: Accumulator.of(root.node) for root in roots}
        states: list[State] = [accumulators[r].start(b, lanes) for r in roots for _ in columns]
        flat = [(f"sum{n}", v) for n, state in enumerate(states) for v in state]
        loop = b.open_loop("row", constant(0, I64), constant(height, I64), constant(1, I64), flat, guarded=False)
        carried = iter(loop.carried)
        states = [tuple([next(carried) for _ in state]) for state in states]
        elements = Elements(self.frame, lanes)
        row, following = term(loop.index), []
        for column in columns:
            assume(elements, known, (*prefix, row, *middle, column))
        for n, state in enumerate(states):
            root, column = roots[n // len(columns)], columns[n % len(columns)]
            at = (*prefix, row, *middle, column)
            following.append(accumulators[root].take(elements, state, root.node.args[0], at, row))
        finals = iter(b.close_loop(loop, [v for state in following for v in state]))
        results = {}
        for n, state in enumerate(states):
            root = roots[n // len(columns)]
            final = tuple([next(finals) for _ in state])
            results[root, n % len(columns)] = accumulators[root].result(b, final)
        return results


# Grouping.


def grouped(roots: Sequence[Root], depth: int) -> list[Group]:
    """Roots in an order in which they can be computed, as few nests as that allows."""
    groups: list[Group] = []
    place: dict[Root, int] = {}
    for root in roots:
        earliest = 0
        for other in root.after:
            earliest = max(earliest, place.get(other, -1) + 1)
        for other in root.beside:
            earliest = max(earliest, place.get(other, 0))
        for other in root.needs:
            if other in place:
                share = _may_share(root, other, depth)
                earliest = max(earliest, place[other] + (not share))
        key = _key(root, depth)
        at = next((n for n in range(earliest, len(groups)) if key is not None and groups[n].key == key), None)
        if at is None:
            at = len(groups)
            groups.append(Group(key if key is not None else (root.kind, root)))
        groups[at].roots.append(root)
        place[root] = at
    return groups


def _key(root: Root, depth: int) -> Key | None:
    rest = root.domain[depth:]
    if root.kind == "dot":
        return None
    if root.kind in ("reduce", "scan") and root.axis == depth and len(rest) > 1:
        return ("columns", rest) if root.kind == "reduce" else None
    if len(rest) > 1:
        return "rows", rest[0]
    if root.kind == "scan":
        return None
    return ("lanes", rest[0]) if rest else ("one",)


def _may_share(root: Root, other: Root, depth: int) -> bool:
    """Whether a root can be computed in the nest of another whose result it reads."""
    if other.kind == "dot" or (other.kind in ("reduce", "scan") and other.axis <= depth):
        return False
    if len(other.domain) - depth <= 1 or len(root.domain) - depth <= 1:
        whole = identity_pattern(len(other.domain))
        same = root.domain == other.domain and all(p == whole for _, p in root.needs[other])
        return other.kind == "keep" and same or not other.domain[depth:]
    return all(p[: depth + 1] == identity_pattern(depth + 1) for _, p in root.needs[other])
