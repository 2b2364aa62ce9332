"""One nest along one axis: full vectors without masks first, what is left over with them.

A mask that compares something linear in the axis with a bound becomes the bound of the loop:

    for j in range(0, min(limit, extent) // step * step, step):   vectors, no masks
    for j in range(..., extent, lanes):                           masks as they are written

and where nothing but masked stores is left, the second loop ends at the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .accumulate import Accumulator, State
from .elements import Elements, Frame, Position, projected
from ..emit import I64, Value, constant, lane_constants
from ..linear import ZERO, Linear, number, term
from .masks import Conjunct, assume, conjuncts, extreme, least, limit, of_store, parts
from .nodes import TileNode
from .placing import commit, common_lanes
from .roots import Root, identity_pattern, project_pattern

States = list[State]


class LaneNest:
    """The roots that share a nest, at a place of the loops around it."""

    def __init__(self, frame: Frame, roots: Sequence[Root], prefix: Position, extent: int) -> None:
        self.frame, self.b, self.roots = frame, frame.builder, roots
        self.prefix, self.extent = prefix, extent
        most = 1 << (extent - 1).bit_length() if extent > 1 else 1
        self.lanes = min(common_lanes(frame, roots), most)
        self.reductions = [r for r in roots if r.kind == "reduce"]
        self.accumulators = {r: Accumulator.of(r.node) for r in self.reductions}

    def write(self) -> dict[Root, Value]:
        """Writes the loops; gives what the reductions came to."""
        if self.extent == 1 or self.lanes == 1:
            return self._single()
        found = conjuncts(self.frame, self.roots)
        if found:
            return self._masked(found)
        return self._exact()

    # The body.

    def _body(self, elements: Elements, indices: Sequence[Linear], states: States, sets: int) -> States:
        """All roots at some places along the axis; each place of a set has accumulators of its own."""
        following = list(states)
        for n, index in enumerate(indices):
            at = (*self.prefix, index)
            moved = [(r, elements.value(r.node, projected(at, r.node.shape))) for r in self.roots if r.kind != "reduce"]
            for k, root in enumerate(self.reductions):
                slot = k * sets + n % sets
                made = self.accumulators[root].take(elements, following[slot], root.node.args[0], at, index)
                following[slot] = made
            for root, value in moved:
                commit(elements, root, at, value)
        return following

    def _start(self, sets: int) -> States:
        b, lanes = self.b, self.lanes
        states = []
        for root in self.reductions:
            accumulator = self.accumulators[root]
            for n in range(sets):
                first = None
                if accumulator.has_place and lanes:
                    first = lane_constants(range(n * lanes, (n + 1) * lanes), "i32")
                states.append(accumulator.start(b, lanes, first))
        return states

    def _gathered(self, states: States, sets: int) -> States:
        """One accumulator for each reduction, from those of the sets."""
        gathered = []
        for k, root in enumerate(self.reductions):
            part = states[k * sets : (k + 1) * sets]
            while len(part) > 1:
                half = len(part) // 2
                merge = self.accumulators[root].merge
                part = [merge(self.b, part[n], part[n + half]) for n in range(half)] + part[2 * half :]
            gathered += part
        return gathered

    def _finished(self, states: States) -> dict[Root, Value]:
        made = {}
        for root, state in zip(self.reductions, states, strict=True):
            accumulator = self.accumulators[root]
            made[root] = accumulator.result(self.b, accumulator.across(self.b, state))
        return made

    def _loop(
        self,
        hint: str,
        span: tuple[Value, Value, int],
        states: States,
        body: Callable[[Value, States], States],
        *,
        guarded: bool,
    ) -> States:
        """A loop that carries the accumulators."""
        b = self.b
        start, stop, step = span
        flat = [(f"so_far{n}", v) for n, state in enumerate(states) for v in state]
        loop = b.open_loop(hint, start, stop, constant(step, I64), flat, guarded=guarded)
        following = body(loop.index, _shaped(loop.carried, states))
        return _shaped(b.close_loop(loop, [v for state in following for v in state]), states)

    def _unroll(self) -> int:
        """How many vectors a turn takes: more where a turn is short, or its additions wait for one another."""
        cost = sum(_cost(r) for r in self.roots)
        if self.reductions:
            wanted = 4 if cost <= 10 and len(self.reductions) <= 2 else 2 if cost <= 24 else 1
        else:
            wanted = 4 if cost <= 6 else 2 if cost <= 16 else 1
        while wanted > 1 and self.extent < 2 * wanted * self.lanes:
            wanted //= 2
        return wanted

    # Without masks.

    def _single(self) -> dict[Root, Value]:
        """Scalars, one after the other."""
        self.lanes = 0
        states = self._start(1)

        def body(index: Linear, states: States) -> States:
            return self._body(Elements(self.frame, 0), [index], states, 1)

        if self.extent == 1:
            return self._finished(body(ZERO, states))
        span = (constant(0, I64), constant(self.extent, I64), 1)
        return self._finished(self._loop("one", span, states, lambda i, s: body(term(i), s), guarded=False))

    def _exact(self) -> dict[Root, Value]:
        lanes, sets = self.lanes, self._unroll()
        step = lanes * sets
        turns = self.extent // step
        states = self._start(sets)

        def body(index: Linear, states: States) -> States:
            return self._body(Elements(self.frame, lanes), _vectors(index, lanes, sets), states, sets)

        if turns > 1:
            span = (constant(0, I64), constant(turns * step, I64), step)
            states = self._loop("lane", span, states, lambda i, s: body(term(i), s), guarded=False)
        elif turns == 1:
            states = body(number(0), states)
        states = self._gathered(states, sets)
        at = turns * step
        while at + lanes <= self.extent:
            states = self._body(Elements(self.frame, lanes), [Linear(number=at, lane=1)], states, 1)
            at += lanes
        if at < self.extent:
            states = self._rest(at, states)
        return self._finished(states)

    def _rest(self, at: int, states: States) -> States:
        """Fewer elements than a vector has lanes: shorter vectors, or one of which some lanes do not exist."""
        left = self.extent - at
        if not self.reductions and left & (left - 1) == 0:
            index = Linear(number=at, lane=1 if left > 1 else 0)
            return self._body(Elements(self.frame, left if left > 1 else 0), [index], states, 1)
        active = lane_constants([n < left for n in range(self.lanes)], "i1")
        elements = Elements(self.frame, self.lanes, active)
        return self._body(elements, [Linear(number=at, lane=1)], states, 1)

    # With masks.

    def _masked(self, found: list[Conjunct]) -> dict[Root, Value]:
        b, lanes, extent = self.b, self.lanes, constant(self.extent, I64)
        whole, axis = (*self.prefix, ZERO), len(self.prefix)
        limits = {c: limit(self.frame, c, whole, axis, self.extent) for c in found}
        truths = [c for c, x in limits.items() if x is not None]
        full = least(b, [x for x in limits.values() if x is not None], extent)
        sets = self._unroll()
        states = self._start(sets)
        done = constant(0, I64)
        if truths:
            step = lanes * sets
            done = b.op("and", full, constant(-step, I64), "full")
            done.negative, done.multiple = False, step
            if full.is_constant:
                done = constant(int(full.text) // step * step, I64)

            def fast(index: Value, states: States) -> States:
                elements = Elements(self.frame, lanes)
                places = _vectors(term(index), lanes, sets)
                for place in places:
                    assume(elements, truths, (*self.prefix, place))
                return self._body(elements, places, states, sets)

            states = self._loop("lane", (constant(0, I64), done, step), states, fast, guarded=True)
        states = self._gathered(states, sets)
        end = self._end(limits, extent)

        def slow(index: Value, states: States) -> States:
            active = self._active(index) if self.extent % lanes else None
            return self._body(Elements(self.frame, lanes, active), [term(index)._replace(lane=1)], states, 1)

        states = self._loop("edge", (done, end, lanes), states, slow, guarded=True)
        return self._finished(states)

    def _active(self, index: Value) -> Value:
        """The lanes that are on the axis."""
        b = self.b
        left = b.convert("trunc", b.op("sub", constant(self.extent, I64), index, "left"), "i32")
        return b.compare("slt", lane_constants(range(self.lanes), "i32"), b.splat(left, self.lanes), "active")

    def _end(self, limits: dict[Conjunct, Value | None], extent: Value) -> Value:
        """From where on nothing happens any more."""
        furthest: Value | None = None
        for root in self.roots:
            masks = self._masks_out(root)
            known = [x for c in masks for x in [limits.get(c, None)] if x is not None]
            if not known:
                return extent
            end = least(self.b, known, extent)
            furthest = end if furthest is None else extreme(self.b, "smax", furthest, end)
        return extent if furthest is None else furthest

    def _masks_out(self, root: Root) -> list[Conjunct]:
        """The masks without which a root does nothing."""
        whole = identity_pattern(len(root.domain))
        if root.kind == "store":
            return of_store(root)
        if root.kind == "reduce":
            x = root.node.args[0]
            neutral = self.accumulators[root].neutral()
            if x.kind == "apply" and x.data == "where" and _is_literal(x.args[2], neutral):
                condition = x.args[0]
                return list(parts(condition, project_pattern(whole, condition.shape, x.shape)))
            if x.kind == "load" and len(x.args) == 3 and _is_literal(x.args[2], neutral):
                return list(parts(x.args[1], project_pattern(whole, x.args[1].shape, x.shape)))
        return []


def _is_literal(node: TileNode, value: float | int | bool) -> bool:
    while node.kind in ("broadcast", "expand"):
        node = node.args[0]
    return node.kind == "literal" and float(node.data[2]) == float(value) and repr(node.data[2]) != "-0.0"


def _vectors(index: Linear, lanes: int, count: int) -> list[Linear]:
    return [index._replace(number=index.number + n * lanes, lane=1) for n in range(count)]


def _shaped(values: Sequence[Value], states: States) -> States:
    rest = iter(values)
    return [tuple([next(rest) for _ in state]) for state in states]


def _cost(root: Root) -> float:
    return 1 + sum(node.own for node in {node for node, _ in root.visits})
