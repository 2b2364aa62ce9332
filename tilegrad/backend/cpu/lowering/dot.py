"""Products of tiles: blocks of the result stay in registers while k runs.

A block is some rows by some vectors, as many as leave registers for the operands; rows are dealt evenly to the blocks.
The left operand is read number by number wherever it lies in memory. The right one is read by vectors from where it lies
if its rows lie along memory and few rows of the left one use it; otherwise it is packed first, with rows an odd number of
cache lines apart. Elementwise work on an operand is done while it is packed. k is cut where a panel of the right operand
would leave the first cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


from .. import linear
from ..emit import I64, Type, Value, constant, dtype_constant
from ..linear import LANE, ZERO, Linear, number, term
from .elements import Address, Elements, Frame, Slot
from .nodes import TileNode
from .placing import allocate
from .roots import Root

Pack = Callable[[TileNode, Slot], None]
"""Fills a slot with a tile."""

UNROLLED = 2
"""Steps of k in one turn of the innermost loop."""


class Operand(NamedTuple):
    """Where the elements of an operand lie: an address, and the steps along its axes."""

    address: Address
    steps: tuple[int | Value, int | Value]


class Block(NamedTuple):
    """A block of the result: rows, vectors, and the lanes of each vector (0: scalars)."""

    rows: int
    vectors: int
    lanes: int


def dot(frame: Frame, root: Root, pack: Pack) -> None:
    """Computes the product of a root and puts it in its slot. `pack(node, slot)` fills a slot with a tile."""
    _Dot(frame, root, pack).write()


class _Dot:
    def __init__(self, frame: Frame, root: Root, pack: Pack) -> None:
        self.frame, self.b, self.pack = frame, frame.builder, pack
        self.dtype = root.node.dtype
        x, y = root.node.args[:2]
        (self.m, self.k), self.n = x.shape, y.shape[1]
        self.accumulator = root.node.args[2] if len(root.node.args) > 2 else None
        self.in_place = root.slot is not None
        if root.slot is None:
            root.slot = allocate(frame, self.dtype, (self.m, self.n), "product")
        self.out = root.slot
        self.lanes = min(frame.target.lanes(self.dtype.bytes), 1 << (self.n - 1).bit_length())
        self.left = self._direct(x) or self._packed(x, "left")
        right = self._direct(y)
        plain = right is not None and right.steps[1] == 1 and self.n % self.lanes == 0 and self.m <= 4 * self._most_rows(2)
        self.right = right if plain and right is not None else self._packed(y, "right")
        frame.results[root.node] = self.out

    # Operands.

    def _direct(self, x: TileNode) -> Operand | None:
        """Where an operand lies in memory as it is, evenly spaced."""
        if x.dtype is not self.dtype:
            return None
        result = self.frame.results.get(x)
        slot = result if isinstance(result, Slot) else x.data[0] if x.kind == "slot" else None
        if slot is not None:
            return Operand(Address(slot.pointer, ZERO, None, ""), (slot.strides[0], slot.strides[1]))
        if x.kind == "broadcast" or x.kind != "load" or len(x.args) > 1 or x in self.frame.results:
            return None
        steps, address = [], None
        for at in ((LANE, ZERO), (ZERO, LANE)):
            address = Elements(self.frame, max(self.m, self.n, self.k)).at(x.args[0], at)
            if address.scattered is not None:
                return None
            steps.append(address.offset.lane)
        assert address is not None
        return Operand(address._replace(offset=address.offset.base), (steps[0], steps[1]))

    def _packed(self, x: TileNode, hint: str) -> Operand:
        """A copy of an operand, row by row, in the type in which the product is computed."""
        slot = allocate(self.frame, self.dtype, x.shape, hint)
        wide = x if x.dtype is self.dtype else TileNode("cast", (x,), None, self.dtype, x.shape)
        self.pack(wide, slot)
        return Operand(Address(slot.pointer, ZERO, None, ""), (slot.strides[0], slot.strides[1]))

    # Blocks.

    def _most_rows(self, vectors: int) -> int:
        return max(1, min(14, (self.frame.target.registers - 1 - vectors) // vectors))

    def write(self) -> None:
        if self.accumulator is not None and not self.in_place:
            self.pack(self.accumulator, self.out)
        panel = 2 * self.lanes * self.dtype.bytes
        depth = max(64, self.frame.target.first_cache * 3 // 4 // panel // 64 * 64)
        pieces = -(-self.k // depth)
        even = -(-self.k // pieces // UNROLLED) * UNROLLED if pieces > 1 else self.k
        for start in range(0, self.k, even):
            fresh = start == 0 and self.accumulator is None
            self._piece(start, min(even, self.k - start), fresh)

    def _piece(self, start: int, depth: int, fresh: bool) -> None:
        """Some steps of k for the whole result."""
        whole = -(-self.n // self.lanes)
        wide = 2 if whole != 3 and whole > 1 else whole
        panels = whole // wide
        self._panels(0, panels, wide, (start, depth), fresh)
        if whole % wide:
            self._panels(panels * wide * self.lanes, 1, whole % wide, (start, depth), fresh)

    def _panels(self, at: int, count: int, wide: int, span: tuple[int, int], fresh: bool) -> None:
        """Panels of columns beside each other: the rows of one after the other, while it is in the cache."""
        b, width = self.b, wide * self.lanes
        if count == 1:
            self._rows(number(at), wide, span, fresh)
            return
        stop = constant(at + count * width, I64)
        loop = b.open_loop("panel", constant(at, I64), stop, constant(width, I64), guarded=False)
        self._rows(term(loop.index), wide, span, fresh)
        b.close_loop(loop)

    def _rows(self, column: Linear, wide: int, span: tuple[int, int], fresh: bool) -> None:
        blocks = -(-self.m // self._most_rows(wide))
        low, more = divmod(self.m, blocks)
        at = 0
        for rows, count in ((low + 1, more), (low, blocks - more)):
            if not count:
                continue
            block = Block(rows, wide, self.lanes if self.lanes > 1 else 0)
            if count == 1:
                self._block(number(at), column, block, span, fresh)
            else:
                stop = constant(at + rows * count, I64)
                loop = self.b.open_loop("rows", constant(at, I64), stop, constant(rows, I64), guarded=False)
                self._block(term(loop.index), column, block, span, fresh)
                self.b.close_loop(loop)
            at += rows * count

    def _block(self, row: Linear, column: Linear, block: Block, span: tuple[int, int], fresh: bool) -> None:
        """One block: its elements are loaded, k runs, they are stored."""
        b, elements = self.b, Elements(self.frame, block.lanes)
        places = [
            (linear.add(b, row, number(r)), _lanes(linear.add(b, column, number(v * self.lanes)), block.lanes))
            for r in range(block.rows)
            for v in range(block.vectors)
        ]
        targets = [Address(self.out.pointer, self.out.offset(b, at), None, "") for at in places]
        if fresh:
            state = [dtype_constant(0, self.dtype, block.lanes)] * len(places)
        else:
            state = [self._read(elements, target) for target in targets]
        start, depth = span
        even = depth // UNROLLED * UNROLLED
        if even > UNROLLED:
            carried = [(f"c{n}", x) for n, x in enumerate(state)]
            stop = constant(start + even, I64)
            loop = b.open_loop("k", constant(start, I64), stop, constant(UNROLLED, I64), carried, guarded=False)
            state = self._steps(row, column, block, term(loop.index), UNROLLED, list(loop.carried))
            state = list(b.close_loop(loop, state))
        else:
            even = 0
        state = self._steps(row, column, block, number(start + even), depth - even, state)
        for target, value in zip(targets, state, strict=True):
            elements.write(target, value, self.dtype)

    def _steps(
        self, row: Linear, column: Linear, block: Block, k: Linear, count: int, state: list[Value]
    ) -> list[Value]:
        b = self.b
        for step in range(count):
            here = linear.add(b, k, number(step))
            elements = Elements(self.frame, block.lanes)
            ys = [
                self._read(elements, self._place(self.right, here, linear.add(b, column, number(v * self.lanes)), block.lanes))
                for v in range(block.vectors)
            ]
            for r in range(block.rows):
                x = self._read(elements, self._place(self.left, linear.add(b, row, number(r)), here, 0))
                x = b.splat(x, block.lanes)
                for v in range(block.vectors):
                    state[r * block.vectors + v] = self._added(x, ys[v], state[r * block.vectors + v])
        return state

    def _place(self, operand: Operand, i: Linear, j: Linear, lanes: int) -> Address:
        b, offset = self.b, operand.address.offset
        for index, step in zip((i, j), operand.steps, strict=True):
            by = number(step) if isinstance(step, int) else term(step)
            moved = linear.multiply(b, index, by)
            assert moved is not None
            offset = linear.add(b, offset, moved)
        return operand.address._replace(offset=_lanes(offset, lanes))

    def _read(self, elements: Elements, where: Address) -> Value:
        return elements.fetch(where, self.dtype, constant(True, Type("i1")), None, changes=True)

    def _added(self, x: Value, y: Value, total: Value) -> Value:
        if self.dtype.is_float:
            return self.b.intrinsic("fma", x, y, total)
        return self.b.op("add", self.b.op("mul", x, y), total)


def _lanes(x: Linear, lanes: int) -> Linear:
    return x._replace(lane=1) if lanes else x
