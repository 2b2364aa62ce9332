"""Facts about the names and the memory of a kernel: assignments, uses, aliases, and which tiles are inlined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from ....ir import tile as ir
from ....ir.tile_access import PointerBases, names_in, roots, statements, walk
from ....ir.tile_types import Types
from ..costs import EXPENSIVE_COST, MAX_INLINED_COST

EXPENSIVE = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sigmoid sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf "
    "erfc pow div sqrt rsqrt mod floordiv fmod truncdiv".split()
)
"""Functions that are many instructions, or slow ones."""
MAX_INLINE_DEPTH = 20
"""Names inlined into each other: each costs several nested Python calls."""


class Dataflow:
    """Assignments, uses and stores of the names and pointers of a kernel."""

    def __init__(self, kernel: ir.Kernel, types: Types) -> None:
        self.types = types
        self.parameters = {p.name for p in kernel.parameters}
        self.assigned: Counter[str] = Counter()
        """Assignments of each name."""
        self.used: Counter[str] = Counter()
        """Statements that use each name."""
        self.accumulators: set[str] = set()
        """Names of accumulators of products."""
        self.pointers = PointerBases(kernel, types).of
        """Lists the parameters whose memory a pointer may refer to."""
        self._stored: set[str] = set()
        """Parameters through which the kernel stores."""
        self._inlined: dict[tuple[str, int], tuple[bool, ir.Tile]] = {}
        self._depths: dict[str, int] = {}
        """Depth of inlined names below each name."""
        for statement in statements(kernel.body):
            self._note(statement)

    def _note(self, statement: ir.Statement) -> None:
        names = set()
        for x in walk(*roots(statement)):
            if isinstance(x, ir.Name):
                names.add(x.name)
            elif isinstance(x, ir.Dot) and isinstance(x.accumulator, ir.Name):
                self.accumulators.add(x.accumulator.name)
        self.used.update(names)
        if isinstance(statement, ir.Assign):
            self.assigned[statement.name] += 1
        elif isinstance(statement, ir.Store | ir.Atomic):
            self._stored |= self.pointers(statement.pointer)
            if isinstance(statement, ir.Atomic) and statement.name:
                self.assigned[statement.name] += 1

    def may_alias(self, one: ir.Tile, other: ir.Tile) -> bool:
        return bool(self.pointers(one) & self.pointers(other))

    def is_overwritten(self, pointer: ir.Tile) -> bool:
        """Whether the kernel may store to memory that it loads through a pointer."""
        return bool(self.pointers(pointer) & self._stored)

    def is_reassigned(self, name: str) -> bool:
        return self.assigned[name] + (name in self.parameters) > 1

    def is_inlined(self, name: str, value: ir.Tile) -> bool:
        """Whether a tile is evaluated where it is used, rather than stored."""
        key = name, id(value)
        if key not in self._inlined:
            self._inlined[key] = self._is_inlined(name, value), value
        return self._inlined[key][0]

    def _is_inlined(self, name: str, value: ir.Tile) -> bool:
        parts = list(walk(value))
        if not all(self._can_be_repeated(x) for x in parts):
            return False
        depth = max((self._depths.get(x.name, 0) for x in parts if isinstance(x, ir.Name)), default=0)
        once = self.used[name] <= 1 or not self.types.of(value).dtype.is_float
        if depth >= MAX_INLINE_DEPTH or not (once or self._cost(value, parts) <= MAX_INLINED_COST):
            return False
        self._depths[name] = depth + 1
        return True

    def _can_be_repeated(self, x: ir.Tile) -> bool:
        """Whether an expression may be evaluated later, at each use, as far as its outermost operation goes."""
        match x:
            case ir.Reduce() | ir.Scan() | ir.Dot() | ir.Reshape() | ir.Trans() | ir.GatherAlongAxis():
                return False
            case ir.Name(name):
                return not self.is_reassigned(name)
            case ir.Load(pointer):
                return not self.is_overwritten(pointer)
        return True

    def _cost(self, value: ir.Tile, parts: Sequence[ir.Tile]) -> int:
        """Cost of the functions of an expression that are evaluated at each of its elements."""
        types, elements = self.types, prod(self.types.of(value).shape)
        functions = [x for x in parts if isinstance(x, ir.Apply) and prod(types.of(x).shape) == elements]
        expensive = [x.fn in EXPENSIVE and types.of(x).dtype.is_float for x in functions]
        return sum(EXPENSIVE_COST if slow else 1 for slow in expensive)


def permutes(value: ir.Tile, name: str) -> bool:
    """Whether elements of a new value of a tile depend on other elements of the old one."""
    match value:
        case ir.Name() | ir.Literal() | ir.Dot():
            return False
        case ir.Apply() | ir.Cast():
            return any(permutes(x, name) for x in ir.parts(value))
    return name in names_in(value)
