"""Tiles that are read across memory: squares of vectors are loaded along memory and turned in registers.

A gather costs a load for each element. Where the rows of a tile do not lie along memory but its columns do, some rows are
evaluated at once, as many as a vector has lanes: what they load is loaded as vectors along the columns and exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..emit import I64, Builder, Value, constant
from ..linear import LANE, ZERO, Linear, term
from .elements import Elements, Frame, Position, projected
from .masks import Conjunct, all_hold, assume, conjuncts, moved, placed
from .nodes import TileNode
from .placing import commit, common_lanes
from .roots import Root


class Square:
    """A block of rows and columns at a place, and what was loaded for it."""

    def __init__(self, frame: Frame, lanes: int, row: Linear, column: Linear) -> None:
        self.lanes, self.row, self.column = lanes, row, column
        self.turned = Elements(frame, lanes)
        self.loaded: dict[tuple[TileNode, Position], list[Value]] = {}

    def rows(self, node: TileNode, position: Position, row: int) -> list[Value] | None:
        """What a load gives in each row of the block, if it is along memory down the columns."""
        here = moved(self.row, row)
        if any(p not in (here, self.column, ZERO) for p in position) or here not in position:
            return None
        down = [self._down(position, here, n) for n in range(self.lanes)]
        key = (node, down[0])
        if key not in self.loaded:
            if self.turned.at(node.args[0], down[0]).offset.lane != 1:
                return None
            columns = [self.turned.vector(node, at) for at in down]
            self.loaded[key] = turned(self.turned.b, columns)
        return self.loaded[key]

    def _down(self, position: Position, here: Linear, column: int) -> Position:
        """The position with the lanes down one column."""
        exchanged = {here: self.row._replace(lane=1), self.column: moved(self.column.base, column)}
        return tuple([exchanged.get(p, p) for p in position])


class SquareElements(Elements):
    """Evaluates one row of a square."""

    def __init__(self, frame: Frame, lanes: int, square: Square, row: int) -> None:
        super().__init__(frame, lanes)
        self.square, self.row = square, row

    def _load(self, node: TileNode, position: Position) -> Any:
        where = self.at(node.args[0], position)
        if where.scattered is None and where.offset.lane not in (0, 1):
            rows = self.square.rows(node, position, self.row)
            if rows is not None:
                return rows[self.row]
        return super()._load(node, position)


def crosses(frame: Frame, roots: Sequence[Root], prefix: Position, depth: int) -> bool:
    """Whether roots over the same two axes read memory across."""
    domain = roots[0].domain
    lanes = common_lanes(frame, roots)
    if len(domain) != depth + 2 or lanes < 4 or min(domain[depth:]) < lanes:
        return False
    if any(r.domain != domain or r.kind not in ("store", "keep") for r in roots):
        return False
    elements = Elements(frame, max(domain[depth:]))
    for root in roots:
        for node, pattern in root.ordered_visits:
            if node.kind != "load" or node in frame.results or not {depth, depth + 1} <= set(pattern):
                continue
            steps = []
            for lane in ((LANE, ZERO), (ZERO, LANE)):
                address = elements.at(node.args[0], placed(pattern, (*prefix, *lane)))
                steps.append(None if address.scattered is not None else address.offset.lane)
            if steps[0] == 1 and steps[1] not in (None, 0, 1):
                return True
    return False


def squares(frame: Frame, roots: Sequence[Root], prefix: Position, depth: int) -> None:
    """Writes roots over two axes by squares; what is left at the edges element by element."""
    b, lanes = frame.builder, common_lanes(frame, roots)
    height, width = roots[0].domain[depth:]
    rows, columns = height // lanes * lanes, width // lanes * lanes
    down = b.open_loop("rows", constant(0, I64), constant(rows, I64), constant(lanes, I64), guarded=False)
    across = b.open_loop("columns", constant(0, I64), constant(columns, I64), constant(lanes, I64), guarded=False)
    row, column = term(down.index), term(across.index)._replace(lane=1)
    found = conjuncts(frame, roots)
    ends = [b.op("add", x, constant(lanes, I64), "end") for x in (down.index, across.index)]
    reach = [(depth, height, ends[0]), (depth + 1, width, ends[1])]
    whole = (*prefix, row, column.base)
    holds = all_hold(frame, found, whole, reach) if found else None
    if holds is None or holds.is_constant:
        _square(frame, roots, prefix, (row, column), lanes, found if holds is not None and holds.text == "true" else ())
    else:
        b.open_branch("inside")
        _square(frame, roots, prefix, (row, column), lanes, found)
        inside = b.close_branch()
        b.open_branch("edge")
        _square(frame, roots, prefix, (row, column), lanes, ())
        b.close_branches(holds, inside, b.close_branch())
    b.close_loop(across)
    b.close_loop(down)
    _singly(frame, roots, prefix, (0, rows), (columns, width))
    _singly(frame, roots, prefix, (rows, height), (0, width))


def _square(
    frame: Frame, roots: Sequence[Root], prefix: Position, place: tuple[Linear, Linear], lanes: int, known: Sequence[Conjunct]
) -> None:  # fmt: skip
    row, column = place
    square = Square(frame, lanes, row, column)
    for n in range(lanes):
        assume(square.turned, known, (*prefix, row._replace(lane=1), moved(column.base, n)))
    values = []
    for n in range(lanes):
        elements = SquareElements(frame, lanes, square, n)
        at = (*prefix, moved(row, n), column)
        assume(elements, known, at)
        values += [(elements, root, at, elements.value(root.node, projected(at, root.node.shape))) for root in roots]
    for elements, root, at, value in values:
        commit(elements, root, at, value)


def _singly(
    frame: Frame, roots: Sequence[Root], prefix: Position, rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    """Some rows and columns, element by element."""
    if rows[0] == rows[1] or columns[0] == columns[1]:
        return
    b, one = frame.builder, constant(1, I64)
    down = b.open_loop("row", constant(rows[0], I64), constant(rows[1], I64), one, guarded=False)
    across = b.open_loop("column", constant(columns[0], I64), constant(columns[1], I64), one, guarded=False)
    at = (*prefix, term(down.index), term(across.index))
    elements = Elements(frame, 0)
    for root in roots:
        commit(elements, root, at, elements.value(root.node, projected(at, root.node.shape)))
    b.close_loop(across)
    b.close_loop(down)


def turned(b: Builder, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square of vectors, by exchanging ever larger blocks of two rows."""
    made, lanes, step = list(rows), len(rows), 1
    while step < lanes:
        for first in range(lanes):
            if first & step:
                continue
            x, y = made[first], made[first + step]
            low = [n if not n & step else lanes + n - step for n in range(lanes)]
            high = [n + step if not n & step else lanes + n for n in range(lanes)]
            made[first], made[first + step] = b.shuffle(x, y, low, "turned"), b.shuffle(x, y, high, "turned")
        step *= 2
    return made
