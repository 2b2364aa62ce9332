"""Loops of several products on Hopper (sm_90a), as attention has them: tiles flow by while groups of warps compute.

The last four warps of a block copy, the others have 64 rows of every tile of sums, and do all else. What a product
takes from the left is in shared memory, brought once, or a tile that these warps have just computed: it stays in their
registers, which lie as the sums do. What it takes from the right comes in stages, one for each turn of a loop. A
tile of memory may be taken by several products, also turned.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, float16, float32
from ....ir.tile_access import roots, statements, walk
from ....ir.tile_types import Types
from ..tensor_map import TensorMap
from .dot_operands import Definitions, Strided, is_zeros
from .dot_tiling import Tiling

SHARED = 218 * 1024
"""Bytes that blocks of a multiprocessor may have, 227 KiB, without what is needed besides."""
FEW_REGISTERS = 80
"""For sums and left operands: if a thread needs no more, two blocks share a multiprocessor."""
MOST_STAGES, LINE, PIECE = 4, 128, 64
"""A line of 128 bytes has 64 numbers."""


class Brought(NamedTuple):
    """A tile of memory in shared memory: panels of lines of 128 bytes."""

    name: str
    memory: Strided
    map: TensorMap

    @property
    def lines(self) -> int:
        return self.memory.shape[1 - self.memory.along]

    @property
    def panels(self) -> int:
        return self.memory.shape[self.memory.along] // PIECE

    @property
    def bytes(self) -> int:
        return self.panels * self.lines * LINE


class Side(NamedTuple):
    """An operand that is in shared memory."""

    tile: Brought
    place: int
    """Which tile of a stage it is; -1: it stays."""
    turned: bool
    """Whether its lines are not along k."""


class Multiplied(NamedTuple):
    """A product: `left` may be a variable whose registers are taken."""

    sums: str
    tiling: Tiling
    dtype: DType
    depth: int
    left: Side | str
    right: Side
    fresh: bool
    """Whether it begins with zeros."""

    @property
    def function(self) -> str:
        """What multiplies: a name for each form."""
        left = "r" if isinstance(self.left, str) else "ts"[not self.left.turned]
        return f"multiply_{self.tiling.n}{left}{'ts'[not self.right.turned]}"


class Turns(NamedTuple):
    """A loop, and the tiles that each of its turns brings."""

    loop: ir.For
    tiles: tuple[Brought, ...]


class Flow(NamedTuple):
    """The loops of a kernel whose products are all done so."""

    resident: tuple[Brought, ...]
    turns: tuple[Turns, ...]
    products: dict[int, Multiplied]
    """By the identity of the statement."""
    skipped: frozenset[int]
    """Statements whose values nobody needs as tiles."""
    stages: int

    @property
    def staged(self) -> tuple[Brought, ...]:
        """The tiles of a stage; all loops bring such."""
        return self.turns[0].tiles

    @property
    def blocks(self) -> int:
        """Of a multiprocessor: while one begins or ends, the other computes."""
        most = 0
        for turn in self.turns:
            own = [self.products[id(s)] for s in turn.loop.body if id(s) in self.products]
            most = max(most, sum(p.tiling.n // 2 + (p.depth // 4 if isinstance(p.left, str) else 0) for p in own))
        return 2 if self.tiling.down == 2 and most <= FEW_REGISTERS else 1

    @property
    def copying(self) -> int:
        """Threads that copy: four warps, so that their registers can be given to others, or one."""
        return 32 if self.blocks == 2 else 128

    @property
    def tiling(self) -> Tiling:
        return next(iter(self.products.values())).tiling

    @property
    def stage(self) -> int:
        return sum(tile.bytes for tile in self.staged)

    @property
    def held(self) -> int:
        return sum(tile.bytes for tile in self.resident)

    @property
    def barriers(self) -> int:
        """One for what stays, and in each stage one for each tile, and one that all is read."""
        return 1 + self.stages * (len(self.staged) + 1)

    @property
    def shared(self) -> int:
        return self.held + self.stages * self.stage + 8 * self.barriers

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        return tuple([tile.map for tile in (*self.resident, *self.staged)])


class _Unfit(Exception):
    """These loops are not of the form."""


def flow(definitions: Definitions, body: Sequence[ir.Statement], stored: Set[str]) -> Flow | None:
    """How the loops of a kernel are done, if all of its products are in loops of this form."""
    try:
        return _Finder(definitions, body, stored).found()
    except _Unfit:
        return None


def _need(fits: object) -> None:
    if not fits:
        raise _Unfit


class _Finder:
    def __init__(self, definitions: Definitions, body: Sequence[ir.Statement], stored: Set[str]) -> None:
        self.definitions, self.body, self.stored = definitions, body, stored
        self.brought: dict[str, Brought] = {}
        """By the name that is loaded."""
        self.skipped: dict[str, int] = {}
        self.products: dict[int, Multiplied] = {}
        self.users: dict[str, set[int]] = {}
        for s in statements(tuple(body)):
            for name in {x.name for root in roots(s) for x in walk(root) if isinstance(x, ir.Name)}:
                self.users.setdefault(name, set()).add(id(s))

    def found(self) -> Flow:
        loops = [s for s in self.body if isinstance(s, ir.For) and any(map(is_dot, statements(s.body)))]
        count = sum(map(is_dot, statements(tuple(self.body))))
        outside = {s.name for s in self.body if isinstance(s, ir.Assign)}
        turns = []
        for loop in loops:
            own = {s.name: s for s in loop.body if isinstance(s, ir.Assign)}
            staged: list[str] = []
            for at, s in enumerate(loop.body):
                _need(isinstance(s, ir.Assign | ir.Store))
                if is_dot(s):
                    assert isinstance(s, ir.Assign)
                    self._product(s, loop.body[:at], own, outside, staged)
            turns.append(Turns(loop, tuple([self.brought[name] for name in staged])))
        _need(loops and len(self.products) == count)
        self._nobody_else_uses_them()
        forms = [[(b.map, b.memory.shape) for b in turn.tiles] for turn in turns]
        _need(all(form == forms[0] for form in forms))
        everywhere = {b.name for turn in turns for b in turn.tiles}
        resident = tuple([b for name, b in self.brought.items() if name not in everywhere])
        for turn in turns:
            loop = turn.loop
            pointers = [b.memory.pointer for b in (*turn.tiles, *resident)]
            self._known_early(loop, (loop.start, loop.stop, loop.step, *pointers))
        made = Flow(resident, tuple(turns), self.products, frozenset(self.skipped.values()), 0)
        stages = (SHARED // made.blocks - made.held - 8) // (made.stage + 8 * (len(made.staged) + 1))
        _need(stages >= 2)
        return made._replace(stages=min(MOST_STAGES, stages))

    def _known_early(self, loop: ir.For, wanted: Sequence[ir.Tile]) -> None:
        """What those who copy go by is known before anything is computed, or follows from the turn."""
        types = self.definitions.types
        early = set(self.definitions.parameters) | {loop.index}
        for s in self.body:
            if not is_early(s, types):
                break
            assert isinstance(s, ir.Assign)
            early.add(s.name)
        early |= {s.name for s in loop.body if is_early(s, types) and isinstance(s, ir.Assign)}
        left = list(wanted)
        while left:
            for x in walk(left.pop()):
                if isinstance(x, ir.Name):
                    _need(x.name in early)

    def _product(
        self,
        s: ir.Assign,
        earlier: Sequence[ir.Statement],
        own: dict[str, ir.Assign],
        outside: set[str],
        staged: list[str],
    ) -> None:
        dot = s.value
        assert isinstance(dot, ir.Dot)
        types = self.definitions.types
        (m, n), depth, dtype = types.variables[s.name].shape, types.of(dot.x).shape[1], types.of(dot.x).dtype
        _need(dtype in (bfloat16, float16) and dtype is types.of(dot.y).dtype)
        _need(m in (64, 128, 192) and n % 16 == 0 and n <= 256 and depth % PIECE == 0)
        left: Side | str | None = self._side(dot.x, 0, own, outside, staged)
        if left is None:
            left = self._registers(dot.x, earlier, own)
        right = self._side(dot.y, 1, own, outside, staged)
        _need(right is not None and right.place >= 0)
        assert right is not None
        before = earlier[-1] if earlier else None
        fresh = isinstance(before, ir.Assign) and before.name == s.name and is_zeros(before.value)
        if fresh:
            self.skipped[f"{s.name} {id(s)}"] = id(before)
        tiling = Tiling("group", m, n, m // 64, 1, 64, n)
        self.products[id(s)] = Multiplied(s.name, tiling, dtype, depth, left, right, fresh)

    def _registers(self, x: ir.Tile, earlier: Sequence[ir.Statement], own: dict[str, ir.Assign]) -> str:
        """The variable that an operand is a rounded copy of, and which has not changed since."""
        _need(isinstance(x, ir.Name) and x.name in own and x.name in self.definitions.values)
        assert isinstance(x, ir.Name)
        rounded = own[x.name]
        match rounded.value:
            case ir.Cast(ir.Name(name)) if name in own and self.definitions.types.variables[name].dtype is float32:
                since = earlier[next(n for n, s in enumerate(earlier) if s is rounded) :]
                _need(not any(_assigns(s, name) for s in since))
                self.skipped[x.name] = id(rounded)
                return name
        raise _Unfit

    def _side(
        self, x: ir.Tile, position: int, own: dict[str, ir.Assign], outside: set[str], staged: list[str]
    ) -> Side | None:
        """An operand that is a tile of memory, as it is or turned; `staged` learns those that a loop brings."""
        names, turned = [], False
        while True:
            if isinstance(x, ir.Name) and x.name in self.definitions.values:
                names.append(x.name)
                x = self.definitions.values[x.name]
            elif isinstance(x, ir.Trans) and x.permutation == (1, 0):
                turned, x = not turned, x.x
            else:
                break
        if not isinstance(x, ir.Load) or not names:
            return None
        name = names[-1]
        memory = self.definitions.strided(ir.Name(name))
        _need(memory is not None and memory.parameter not in self.stored and not any(memory.bounds))
        assert memory is not None
        if name not in self.brought:
            self.brought[name] = Brought(name, memory, self._map(memory))
        for n in names:
            inside = own.get(n)
            found = inside if inside is not None else next((s for s in self.body if _assigns(s, n)), None)
            _need(found is not None)
            self.skipped[n] = id(found)
        if name in own and name not in staged:
            staged.append(name)
        _need(name in own or name in outside)
        return Side(self.brought[name], staged.index(name) if name in own else -1, (memory.along ^ turned) == position)

    def _map(self, memory: Strided) -> TensorMap:
        along, lines = memory.shape[memory.along], memory.shape[1 - memory.along]
        pitch = memory.pitch
        _need(along % PIECE == 0 and lines % 8 == 0 and lines <= 256 and pitch % PIECE == 0)
        _need(self.definitions.divisor_within(memory.pointer, pitch) % PIECE == 0)
        parameter = list(self.definitions.parameters).index(memory.parameter)
        return TensorMap(parameter, memory.dtype, pitch, (PIECE, lines))

    def _nobody_else_uses_them(self) -> None:
        """Tiles that are not computed are taken by products alone, and by what only gives them other names."""
        allowed = set(self.skipped.values()) | set(self.products)
        for name in self.skipped:
            _need(self.users.get(name, set()) <= allowed)


def is_dot(s: ir.Statement) -> bool:
    return isinstance(s, ir.Assign) and isinstance(s.value, ir.Dot)


def is_early(s: ir.Statement, types: Types) -> bool:
    """Whether a statement is a number or a position that anybody can compute."""
    if not isinstance(s, ir.Assign):
        return False
    t = types.of(s.value)
    whole = t.pointer or not t.dtype.is_float
    return whole and not any(isinstance(x, ir.Load | ir.Reduce | ir.Scan | ir.Dot) for x in walk(s.value))


def _assigns(s: ir.Statement, name: str) -> bool:
    return isinstance(s, ir.Assign) and s.name == name
