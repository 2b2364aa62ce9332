"""Recognise kernels that sum the parts of the split-K kernel before them (`schedule/split_k.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...ir import tile as ir
from ...ir.dtype import DType, float32
from ...ir.tile_access import statements
from ...ir.tile_checker import check
from .code.dot_operands import Definitions, is_zeros
from .sums import NotRecognised, Terms, require


class SplitSum(NamedTuple):
    """Each element is the sum of one element per part, rounded to a dtype; parts are contiguous."""

    pieces: int
    elements: int
    dtype: DType


def split_sum_of(kernel: ir.Kernel, extents: Sequence[int]) -> SplitSum | None:
    """Return the split-K sum that a kernel computes on a grid with these extents, or None.

    >>> from ...ir.tile_parser import parse
    >>> kernel = parse('''
    ... def add_up(x: "*f32", y: "*bf16"):
    ...     i = tl.program_id(0) * 64 + tl.arange(0, 64)
    ...     k = tl.arange(0, 8)
    ...     sum = tl.sum(tl.load(x + ((k * 640)[:, None] + i[None, :])), axis=0)
    ...     tl.store(y + i, sum.to(tl.bfloat16))
    ... ''')
    >>> split_sum_of(kernel, (10,))
    SplitSum(pieces=8, elements=640, dtype=tilegrad.bfloat16)
    """
    try:
        return _SplitSumRecogniser(kernel).found((*extents, 1, 1, 1)[:3])
    except NotRecognised:
        return None


class _SplitSumRecogniser:
    def __init__(self, kernel: ir.Kernel) -> None:
        every = list(statements(kernel.body))
        require(len(kernel.parameters) == 2 and all(isinstance(s, ir.Assign | ir.For | ir.Store) for s in every))
        stores = [s for s in every if isinstance(s, ir.Store)]
        loops = [s for s in every if isinstance(s, ir.For)]
        require(len(stores) == 1 and stores[0] in kernel.body and len(loops) <= 1)
        self.every, self.source, self.made = every, kernel.parameters[0].name, kernel.parameters[1].name
        self.store, self.loop = stores[0], loops[0] if loops else None
        self.definitions = Definitions(kernel, check(kernel))

    def found(self, extents: Sequence[int]) -> SplitSum:
        definitions, store = self.definitions, self.store
        t = definitions.types.of(store.pointer)
        require(
            definitions.parameter(store.pointer) == self.made and len(t.shape) == 1 and tuple(extents[1:]) == (1, 1)
        )
        place: Terms = {ir.ProgramId(0): t.shape[0]} if extents[0] > 1 else {}
        require(definitions.step(store.pointer, -1) == 1 and definitions.linear_form(store.pointer) == place)
        elements = min([t.shape[0] * extents[0], *self._bounds(store.mask, -1, place)])
        load = self._added()
        pieces, apart = definitions.types.of(load).shape[0], definitions.step(load.pointer, -2)
        require(definitions.parameter(load.pointer) == self.source and definitions.types.of(load).dtype is float32)
        require(definitions.step(load.pointer, -1) == 1 and apart == elements)
        counted: Terms = {}
        match self.loop:
            case ir.For(index, ir.Literal(0), ir.Literal(int(stop)), ir.Literal(int(step))) if step == pieces:
                counted, pieces = {ir.Name(index): 1}, -(-stop // step) * step
            case _:
                require(self.loop is None)
        require(definitions.linear_form(load.pointer) == {**place, **dict.fromkeys(counted, elements)})
        require(min(self._bounds(load.mask, -1, place), default=elements) >= elements)
        return SplitSum(min([pieces, *self._bounds(load.mask, -2, counted)]), elements, t.dtype)

    def _bounds(self, mask: ir.Tile | None, axis: int, place: Terms) -> list[int]:
        """Return the bounds of the index along an axis; only it and the index along the other axis may be compared."""
        found = []
        for index, extent in self.definitions.comparisons(mask) if mask is not None else []:
            steps = self.definitions.step(index, -2), self.definitions.step(index, -1)
            require(extent >= 0 and steps in ((1, 0), (0, 1)))
            if steps[axis] == 1:
                require(self.definitions.linear_form(index) == place)
                found.append(extent)
        return found

    def _added(self) -> ir.Load:
        """Return the load that is summed, in a loop or without one."""
        x = self._plain(self.store.value)
        if self.loop is not None:
            require(isinstance(x, ir.Name))
            of_sum = [s for s in self.every if isinstance(s, ir.Assign) and ir.Name(s.name) == x]
            require(len(of_sum) == 2 and is_zeros(of_sum[0].value) and of_sum[1] in self.loop.body)
            match of_sum[1].value:
                case ir.Apply("add", (sums, ir.Reduce() as more)) if sums == x:
                    x = more
        require(isinstance(x, ir.Reduce) and (x.fn, x.axis) == ("add", 0))
        assert isinstance(x, ir.Reduce)
        x = self._plain(x.x)
        match x:
            case ir.Apply("where", (_, y, ir.Literal(zero))) if zero == 0:  # masked elements
                x = self._plain(y)
        require(isinstance(x, ir.Load))
        assert isinstance(x, ir.Load)
        return x

    def _plain(self, x: ir.Tile) -> ir.Tile:
        x = self.definitions.resolved(x)
        while isinstance(x, ir.Cast):
            x = self.definitions.resolved(x.x)
        return x
