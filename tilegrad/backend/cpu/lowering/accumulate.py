"""Reductions in registers: what is carried from element to element, lane by lane, and how lanes come together.

Each lane takes its elements in order and the lanes are combined in a fixed tree: results do not depend on threads.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir.dtype import DType, bfloat16, float16, float32, int32
from ....ir.functions import identity
from .. import linear, vectors
from .elements import Elements, Position
from ..emit import Builder, Type, Value, constant, dtype_constant
from ..linear import Linear
from .nodes import TileNode

State = tuple[Value, ...]
"""The value so far; for argmax and argmin also its place (int32)."""


def accumulates_in(dtype: DType) -> DType:
    return float32 if dtype in (float16, bfloat16) else dtype


class Accumulator(NamedTuple):
    """One reduction."""

    fn: str
    dtype: DType
    """Of the elements."""

    @staticmethod
    def of(node: TileNode) -> Accumulator:
        return Accumulator(node.data[0], node.args[0].dtype)

    @property
    def wide(self) -> DType:
        return accumulates_in(self.dtype)

    @property
    def has_place(self) -> bool:
        return self.fn.startswith("arg")

    def neutral(self) -> float | int | bool:
        fn = {"argmax": "maximum", "argmin": "minimum"}.get(self.fn, self.fn)
        return identity(fn, self.wide)

    def start(self, b: Builder, lanes: int, first: Value | None = None) -> State:
        """Before any element; `first` are the places at which the lanes begin."""
        value = dtype_constant(self.neutral(), self.wide, lanes)
        if not self.has_place:
            return (value,)
        return value, first if first is not None else constant(0, Type("i32", lanes))

    def take(self, elements: Elements, state: State, node: TileNode, at: Position, place: Linear | None = None) -> State:
        """One more element in each lane."""
        b, lanes = elements.b, elements.lanes
        x = vectors.cast(b, elements.vector(node, at), self.dtype, self.wide)
        if not self.has_place:
            if elements.active is not None:
                x = b.select(elements.active, x, dtype_constant(self.neutral(), self.wide, lanes))
            return (vectors.apply(b, self.fn, self.wide, (x, state[0])),)
        assert place is not None
        better = self._better(b, x, state[0])
        if elements.active is not None:
            better = b.op("and", better, elements.active)
        here = b.splat(linear.vector(b, place, lanes, "i32"), lanes)
        return b.select(better, x, state[0]), b.select(better, here, state[1])

    def _better(self, b: Builder, x: Value, best: Value) -> Value:
        """Whether x takes the place of the best so far: it is beyond it, or the first NaN."""
        beyond = vectors.apply(b, "gt" if self.fn == "argmax" else "lt", self.wide, (x, best))
        if not self.wide.is_float:
            return beyond
        first = b.op("and", b.compare("uno", x, x), b.compare("ord", best, best))
        return b.op("or", beyond, first)

    def merge(self, b: Builder, x: State, y: State) -> State:
        """Two partial results as one."""
        if not self.has_place:
            return (vectors.apply(b, self.fn, self.wide, (x[0], y[0])),)
        equal = b.compare("oeq" if self.wide.is_float else "eq", x[0], y[0])
        if self.wide.is_float:
            both = b.op("and", b.compare("uno", x[0], x[0]), b.compare("uno", y[0], y[0]))
            equal = b.op("or", equal, both)
        earlier = b.op("and", equal, b.compare("slt", y[1], x[1]))
        chosen = b.op("or", self._better(b, y[0], x[0]), earlier)
        return b.select(chosen, y[0], x[0]), b.select(chosen, y[1], x[1])

    def across(self, b: Builder, state: State) -> State:
        """All lanes as one."""
        lanes = state[0].type.lanes
        while lanes > 1:
            half = lanes // 2
            low = tuple([b.shuffle(v, v, range(half), "low") for v in state])
            high = tuple([b.shuffle(v, v, range(half, lanes), "high") for v in state])
            state, lanes = self.merge(b, low, high), half
        return tuple([b.extract(v, 0) for v in state]) if lanes else state

    def result(self, b: Builder, state: State) -> Value:
        """What the reduction gives: rounded to its dtype, or the place."""
        if self.has_place:
            return state[1]
        return vectors.cast(b, state[0], self.wide, self.dtype)

    @property
    def result_dtype(self) -> DType:
        return int32 if self.has_place else self.dtype
