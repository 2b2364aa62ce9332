"""Plan warp specialisation for loops of several products on Hopper (sm_90a), as in attention.

The last warps of a block are producers and copy; warpgroups of consumers own 64 rows of every accumulator tile and do
everything else. A left operand is resident in shared memory, or is a tile just computed, taken from registers. A right
operand is copied in stages, one per loop iteration. Several products may share a tile of memory, also transposed.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, float16, float32
from ....ir.tile_access import names_in, names_read, statements, walk
from ....ir.tile_types import Types
from ..tensor_map import TensorMap
from .dot_operands import OperandAnalysis, Strided, is_zeros
from .dot_tiling import Tiling
from .hardware import LINE_BYTES, MAX_BOX_LINES, MAX_WARPGROUP_COLUMNS, WARPGROUP_ROWS

SHARED_BYTES = 218 * 1024
"""Bytes of shared memory per multiprocessor for tiles: 227 KiB less a reserve."""
MAX_SHARED_BLOCK_REGISTERS = 80
"""Registers for sums and left operands up to which two blocks share a multiprocessor."""
HEIGHTS = (WARPGROUP_ROWS, 2 * WARPGROUP_ROWS, 3 * WARPGROUP_ROWS)
"""Rows of a tile of accumulators: those of one to three warpgroups."""
MAX_STAGES = 4
"""Largest number of stages in flight."""
LINE_ELEMENTS = LINE_BYTES // bfloat16.bytes
"""Elements of 16 bits in a line of shared memory."""


class CopiedTile(NamedTuple):
    """A tile that is copied to shared memory, in panels of lines of 128 bytes."""

    name: str
    memory: Strided
    map: TensorMap

    @property
    def lines(self) -> int:
        return self.memory.shape[1 - self.memory.along]

    @property
    def panels(self) -> int:
        return self.memory.shape[self.memory.along] // LINE_ELEMENTS

    @property
    def bytes(self) -> int:
        return self.panels * self.lines * LINE_BYTES


class SharedOperand(NamedTuple):
    """An operand in shared memory."""

    tile: CopiedTile
    place: int
    """Number of the tile within a stage; -1 for a resident tile."""
    transposed: bool
    """Whether lines do not run along k."""


class SpecialisedProduct(NamedTuple):
    """A product; `left` is an operand in shared memory or the name of a variable in registers."""

    sums: str
    tiling: Tiling
    dtype: DType
    depth: int
    left: SharedOperand | str
    right: SharedOperand
    fresh: bool
    """Whether accumulation starts from zero."""

    @property
    def function(self) -> str:
        """Name of the device function that multiplies, one for each form."""
        left = "r" if isinstance(self.left, str) else "ts"[not self.left.transposed]
        return f"multiply_{self.tiling.n}{left}{'ts'[not self.right.transposed]}"


class SpecialisedLoop(NamedTuple):
    """A loop and the tiles copied in each of its iterations."""

    loop: ir.For
    tiles: tuple[CopiedTile, ...]


class WarpSpecialisation(NamedTuple):
    """The plan of a kernel all of whose products are in warp-specialised loops."""

    resident: tuple[CopiedTile, ...]
    loops: tuple[SpecialisedLoop, ...]
    products: dict[int, SpecialisedProduct]
    """Products by the identity of their statement."""
    skipped: frozenset[int]
    """Identities of statements that need not be executed."""
    stages: int

    @property
    def staged(self) -> tuple[CopiedTile, ...]:
        """Tiles of a stage; all loops have the same."""
        return self.loops[0].tiles

    @property
    def blocks(self) -> int:
        """Blocks per multiprocessor: with two, one computes while the other begins or ends."""
        most = 0
        for loop_plan in self.loops:
            own = [self.products[id(s)] for s in loop_plan.loop.body if id(s) in self.products]
            most = max(most, sum(p.tiling.n // 2 + (p.depth // 4 if isinstance(p.left, str) else 0) for p in own))
        return 2 if self.tiling.down == 2 and most <= MAX_SHARED_BLOCK_REGISTERS else 1

    @property
    def producer_threads(self) -> int:
        """Producer threads: four warps, so that their registers can be given away, or one warp."""
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
        """Number of barriers: one for resident tiles; in each stage one per tile, and one for "all is read"."""
        return 1 + self.stages * (len(self.staged) + 1)

    @property
    def shared(self) -> int:
        return self.held + self.stages * self.stage + 8 * self.barriers

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        return tuple([tile.map for tile in (*self.resident, *self.staged)])


class _NotSpecialisable(Exception):
    """Raised when the loops do not have the supported form."""


def plan_warp_specialisation(
    analysis: OperandAnalysis, body: Sequence[ir.Statement], stored: Set[str]
) -> WarpSpecialisation | None:
    """Return the plan of a kernel's loops, or None if they do not have the supported form."""
    try:
        return _SpecialisationPlanner(analysis, body, stored).found()
    except _NotSpecialisable:
        return None


def _need(fits: object) -> None:
    if not fits:
        raise _NotSpecialisable


class _SpecialisationPlanner:
    def __init__(self, analysis: OperandAnalysis, body: Sequence[ir.Statement], stored: Set[str]) -> None:
        self.analysis, self.body, self.stored = analysis, body, stored
        self.copied: dict[str, CopiedTile] = {}
        """Copied tiles by the variable that is loaded."""
        self.skipped: dict[str, int] = {}
        self.products: dict[int, SpecialisedProduct] = {}
        self.users: dict[str, set[int]] = {}
        for s in statements(tuple(body)):
            for name in names_read(s):
                self.users.setdefault(name, set()).add(id(s))

    def found(self) -> WarpSpecialisation:
        loops = [s for s in self.body if isinstance(s, ir.For) and any(map(is_dot, statements(s.body)))]
        count = sum(map(is_dot, statements(tuple(self.body))))
        outside = {s.name for s in self.body if isinstance(s, ir.Assign)}
        plans = []
        for loop in loops:
            own = {s.name: s for s in loop.body if isinstance(s, ir.Assign)}
            staged: list[str] = []
            for at, s in enumerate(loop.body):
                _need(isinstance(s, ir.Assign | ir.Store))
                if is_dot(s):
                    assert isinstance(s, ir.Assign)
                    self._product(s, loop.body[:at], own, outside, staged)
            plans.append(SpecialisedLoop(loop, tuple([self.copied[name] for name in staged])))
        _need(loops and len(self.products) == count)
        self._check_only_products_use_tiles()
        forms = [[(b.map, b.memory.shape) for b in loop_plan.tiles] for loop_plan in plans]
        _need(all(form == forms[0] for form in forms))
        everywhere = {b.name for loop_plan in plans for b in loop_plan.tiles}
        resident = tuple([b for name, b in self.copied.items() if name not in everywhere])
        for loop_plan in plans:
            loop = loop_plan.loop
            pointers = [b.memory.pointer for b in (*loop_plan.tiles, *resident)]
            self._check_known_early(loop, (loop.start, loop.stop, loop.step, *pointers))
        made = WarpSpecialisation(resident, tuple(plans), self.products, frozenset(self.skipped.values()), 0)
        stages = (SHARED_BYTES // made.blocks - made.held - 8) // (made.stage + 8 * (len(made.staged) + 1))
        _need(stages >= 2)
        return made._replace(stages=min(MAX_STAGES, stages))

    def _check_known_early(self, loop: ir.For, wanted: Sequence[ir.Tile]) -> None:
        """Check that addresses and bounds depend only on values that producers can compute."""
        types = self.analysis.types
        early = set(self.analysis.parameters) | {loop.index}
        for s in self.body:
            if not is_uniform(s, types):
                break
            assert isinstance(s, ir.Assign)
            early.add(s.name)
        early |= {s.name for s in loop.body if is_uniform(s, types) and isinstance(s, ir.Assign)}
        _need(names_in(*wanted) <= early)

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
        types = self.analysis.types
        (m, n), depth, dtype = types.variables[s.name].shape, types.of(dot.x).shape[1], types.of(dot.x).dtype
        _need(dtype in (bfloat16, float16) and dtype is types.of(dot.y).dtype)
        _need(m in HEIGHTS and n % 16 == 0 and n <= MAX_WARPGROUP_COLUMNS and depth % LINE_ELEMENTS == 0)
        left: SharedOperand | str | None = self._shared_operand(dot.x, 0, own, outside, staged)
        if left is None:
            left = self._registers(dot.x, earlier, own)
        right = self._shared_operand(dot.y, 1, own, outside, staged)
        _need(right is not None and right.place >= 0)
        assert right is not None
        before = earlier[-1] if earlier else None
        fresh = isinstance(before, ir.Assign) and before.name == s.name and is_zeros(before.value)
        if fresh:
            self.skipped[f"{s.name} {id(s)}"] = id(before)
        tiling = Tiling("group", m, n, m // 64, 1, 64, n)
        self.products[id(s)] = SpecialisedProduct(s.name, tiling, dtype, depth, left, right, fresh)

    def _registers(self, x: ir.Tile, earlier: Sequence[ir.Statement], own: dict[str, ir.Assign]) -> str:
        """Return the variable whose rounded, unmodified copy an operand is."""
        _need(isinstance(x, ir.Name) and x.name in own and x.name in self.analysis.definitions)
        assert isinstance(x, ir.Name)
        rounded = own[x.name]
        match rounded.value:
            case ir.Cast(ir.Name(name)) if name in own and self.analysis.types.variables[name].dtype is float32:
                since = earlier[next(n for n, s in enumerate(earlier) if s is rounded) :]
                _need(not any(_assigns(s, name) for s in since))
                self.skipped[x.name] = id(rounded)
                return name
        raise _NotSpecialisable

    def _loaded_names(self, x: ir.Tile) -> tuple[list[str], bool]:
        """Return the names that lead from an operand to a load, if it is one, and whether it is transposed."""
        names, transposed = [], False
        while True:
            if isinstance(x, ir.Name) and x.name in self.analysis.definitions:
                names.append(x.name)
                x = self.analysis.definitions[x.name]
            elif isinstance(x, ir.Trans) and x.permutation == (1, 0):
                transposed, x = not transposed, x.x
            else:
                return (names if isinstance(x, ir.Load) else []), transposed

    def _shared_operand(
        self, x: ir.Tile, position: int, own: dict[str, ir.Assign], outside: set[str], staged: list[str]
    ) -> SharedOperand | None:
        """Return an operand that is a tile of memory, perhaps transposed; a tile copied by the loop joins `staged`."""
        names, transposed = self._loaded_names(x)
        if not names:
            return None
        name = names[-1]
        memory = self.analysis.strided(ir.Name(name))
        _need(memory is not None and memory.parameter not in self.stored and not any(memory.bounds))
        assert memory is not None
        if name not in self.copied:
            self.copied[name] = CopiedTile(name, memory, self._map(memory))
        for n in names:
            inside = own.get(n)
            found = inside if inside is not None else next((s for s in self.body if _assigns(s, n)), None)
            _need(found is not None)
            self.skipped[n] = id(found)
        if name in own and name not in staged:
            staged.append(name)
        _need(name in own or name in outside)
        return SharedOperand(
            self.copied[name], staged.index(name) if name in own else -1, (memory.along ^ transposed) == position
        )

    def _map(self, memory: Strided) -> TensorMap:
        along, lines = memory.shape[memory.along], memory.shape[1 - memory.along]
        pitch = memory.pitch
        _need(along % LINE_ELEMENTS == 0 and lines % 8 == 0 and lines <= MAX_BOX_LINES and pitch % LINE_ELEMENTS == 0)
        _need(self.analysis.divisor_within(memory.pointer, pitch) % LINE_ELEMENTS == 0)
        parameter = list(self.analysis.parameters).index(memory.parameter)
        return TensorMap(parameter, memory.dtype, pitch, (LINE_ELEMENTS, lines))

    def _check_only_products_use_tiles(self) -> None:
        """Check that copied tiles are used only by products and by aliases."""
        allowed = set(self.skipped.values()) | set(self.products)
        for name in self.skipped:
            _need(self.users.get(name, set()) <= allowed)


def is_dot(s: ir.Statement) -> bool:
    return isinstance(s, ir.Assign) and isinstance(s.value, ir.Dot)


def is_uniform(s: ir.Statement, types: Types) -> bool:
    """Return whether a statement computes only scalars or positions, which any thread can repeat."""
    if not isinstance(s, ir.Assign):
        return False
    t = types.of(s.value)
    whole = t.pointer or not t.dtype.is_float
    return whole and not any(isinstance(x, ir.Load | ir.Reduce | ir.Scan | ir.Dot) for x in walk(s.value))


def _assigns(s: ir.Statement, name: str) -> bool:
    return isinstance(s, ir.Assign) and s.name == name
