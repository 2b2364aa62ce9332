"""Fuse consecutive elementwise statements into one loop nest.

    gate = sigmoid(given + gate)                for each vector:
    cell = cell * gate                              all of these, in registers
    tl.store(out + place, cell)

Statements fuse if they assign or store tiles of one shape and read from each other only elements at the same position.
A tile with no other use needs no memory. The statements after a matrix product may become its epilogue, run for
each of its blocks as soon as that is computed: values then come from registers or the L1 cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ....ir import tile as ir
from ....ir.dtype import DType, bool_
from ....ir.tile_access import names_read, roots, walk
from ..costs import MAX_UNROLLED_EXPRESSIONS
from ..emit import LlvmValue
from .dataflow import EXPENSIVE
from .dot import Epilogue, dot_with_epilogue
from .position import Position

if TYPE_CHECKING:
    from .elements import ElementEvaluator
    from .lower import KernelLowering
    from .position import Position

Member: TypeAlias = ir.Assign | ir.Store
SEPARATE = (ir.Reduce, ir.Scan, ir.Dot, ir.Reshape)
"""Expressions that are computed before the statements that use them."""


class FusedStatements(NamedTuple):
    members: tuple[Member, ...]
    shape: tuple[int, ...]
    length: int
    """Number of statements covered, including those whose values are inlined."""
    loads: tuple[ir.Load, ...]
    kept: frozenset[str]
    """Names with uses outside."""

    @property
    def assigned(self) -> set[str]:
        return {s.name for s in self.members if isinstance(s, ir.Assign)}


class NameUses:
    """Names used by a statement, classified by the position of the elements that it reads."""

    def __init__(self, e: ElementEvaluator, shape: tuple[int, ...]) -> None:
        self.e, self.shape = e, shape
        self.same_position: set[str] = set()
        """Elements at the same position."""
        self.other_positions: set[str] = set()
        self.computed_before: set[str] = set()
        """Operands of expressions that are computed before."""
        self.loads: list[ir.Load] = []
        self._noted: set[int] = set()

    def _classify_name(self, x: ir.Name, name: str) -> None:
        if name in self.e.inlined:
            self.classify(self.e.inlined[name])
        elif self.e.types.of(x).shape == self.shape:
            self.same_position.add(name)
        else:
            self.other_positions.add(name)

    def classify(self, x: ir.Tile) -> None:
        """Classify the names in an expression, each shared subexpression once."""
        if isinstance(x, ir.Literal) or id(x) in self._noted:
            return
        self._noted.add(id(x))
        match x:
            case ir.Name(name):
                self._classify_name(x, name)
            case ir.Apply() | ir.Cast() | ir.Bitcast() if not self.e.types.of(x).pointer:
                for part in ir.parts(x):
                    self.classify(part)
            case ir.Load(pointer, mask, other):
                self.loads.append(x)
                self.other_positions |= self.names_in(pointer)
                for also in (mask, other):
                    if also is not None:
                        self.classify(also)
            case _ if isinstance(x, SEPARATE):
                self.computed_before |= self.names_in(x)
            case _:
                self.other_positions |= self.names_in(x)

    def names_in(self, x: ir.Tile) -> set[str]:
        """All names in an expression, through inlined names."""
        inside = self.e.subexpressions(x)
        self.loads += [y for y in inside if isinstance(y, ir.Load)]
        return {y.name for y in inside if isinstance(y, ir.Name)}


def lower_with_product(low: KernelLowering, fused: FusedStatements, product: ir.Assign) -> None:
    """Lower a product with fused statements as its epilogue."""
    assert isinstance(product.value, ir.Dot)
    name = product.name
    epilogue = Epilogue(lambda at, x: lower_at_position(low, fused, at, (name, x)), _is_expensive(fused), fused.loads)
    dot_with_epilogue(low.nests, product.value, epilogue)


def prepare_fused(
    low: KernelLowering, fused: FusedStatements, body: Sequence[ir.Statement], product: ir.Assign | None
) -> None:
    """Compute what fused statements need: statements between them, reductions, memory."""
    for s in body[: fused.length]:
        if isinstance(s, ir.Assign) and s not in fused.members:
            low.assign(s.name, s.value)
    low.forget_memory()
    for x in (
        *(dot_operands(product) if product is not None else ()),
        *(root for s in fused.members for root in roots(s)),
    ):
        low.prepare(x)
    for name in sorted(fused.kept):  # deterministic order
        t = low.e.types.variables[name]
        low.memory(name, t.dtype, t.shape, False)


def lower_everywhere(low: KernelLowering, fused: FusedStatements) -> None:
    """Lower fused statements at all positions."""
    low.nests.for_each(fused.shape, lambda at: lower_at_position(low, fused, at), _widest(low, fused))


def may_have_epilogue(low: KernelLowering, s: ir.Assign) -> bool:
    """Whether a product may have an epilogue: a whole sum, by multiply-adds."""
    x = s.value
    if (
        not isinstance(x, ir.Dot)
        or not (x.accumulator is None or id(x) in low.starting)
        or 0 in low.e.types.of(x).shape
    ):
        return False
    if low.target.vector_bytes == 64 and low.e.types.of(x).shape[1] <= low.target.lanes(4):
        return False  # a single vector wide: storing the product is faster
    return low.nests.form_of(x) is None


def lower_at_position(
    low: KernelLowering, fused: FusedStatements, at: Position, product: tuple[str, LlvmValue] | None = None
) -> None:
    """Lower fused statements at a position; everything is read before anything is stored."""
    e, b, stores = low.e, low.b, list[Callable[[], None]]()
    at = at._replace(names=dict([product]) if product is not None else {})
    if product is not None and product[0] in fused.kept - fused.assigned:
        stores.append(partial(e.memory[product[0]].store, b, at, product[1]))
    for s in fused.members:
        if isinstance(s, ir.Store):
            stores.append(low.nests.prepared_store(s, at))
            continue
        value = b.splat(e.evaluate(s.value, at, e.types.variables[s.name].dtype), at.lanes)
        if low.flow.assigned[s.name] > 1:
            at = at._replace(known={})
        at.names[s.name] = value
        if s.name in fused.kept:
            stores.append(partial(e.memory[s.name].store, b, at, value))
    for emit in stores:
        emit()


def _widest(low: KernelLowering, fused: FusedStatements) -> DType:
    s = fused.members[0]
    return low.e.types.variables[s.name].dtype if isinstance(s, ir.Assign) else low.e.types.of(s.pointer).dtype


def _is_expensive(fused: FusedStatements) -> bool:
    """Whether fused statements are many or expensive instructions."""
    every = walk(*(root for s in fused.members for root in roots(s)))
    fns = [x.fn if isinstance(x, ir.Apply) else "" for x in every if isinstance(x, ir.Apply | ir.Load)]
    return len(fns) > MAX_UNROLLED_EXPRESSIONS or not EXPENSIVE.isdisjoint(fns)


def find_fused(
    low: KernelLowering, body: Sequence[ir.Statement], product: ir.Assign | None = None
) -> FusedStatements | int:
    """Find the fused statements that a block begins with; `product`: the product whose epilogue they would be.

    If there are none, return how many statements need not be tried as a beginning: the first candidate has no second.
    """
    scan = _FusionSearch(low, product)
    for statement in body:
        if not scan.accepts(statement):
            break
    if not scan.members:
        return scan.seen - 1
    if product is None and len(scan.members) < 2:
        return scan.length
    shape = scan.space[0]
    return FusedStatements(tuple(scan.members), shape, scan.length, tuple(scan.loads), frozenset(scan.kept()))


class _FusionSearch:
    def __init__(self, low: KernelLowering, product: ir.Assign | None) -> None:
        self.low, self.e, self.product = low, low.e, product
        self.members: list[Member] = []
        self.length = self.seen = 0
        self.space: tuple[tuple[int, ...], int] = ((), 0)
        self.given: set[str] = set()
        """Names whose values exist at the current position only."""
        self.other_positions: set[str] = set()
        self.loads: list[ir.Load] = []
        self.read: list[ir.Load] = []
        """Loads of the product."""
        self.stored: list[ir.Tile] = []
        """Pointers that members store through."""
        if product is not None:
            self.space, self.given = self._loop_shape(product.name), {product.name}
            operands = NameUses(self.e, ())
            for operand in dot_operands(product):
                operands.classify(operand)
            self.other_positions = operands.same_position | operands.other_positions | operands.computed_before
            self.read = operands.loads

    def _loop_shape(self, name: str) -> tuple[tuple[int, ...], int]:
        t = self.e.types.variables[name]
        return t.shape, max(4, t.dtype.bytes)

    def accepts(self, s: ir.Statement) -> bool:
        """Whether a statement joins, or stands between members without being part of them."""
        self.seen += 1
        match s:
            case ir.Assign(name, ir.Full()) if name in self.low.flow.accumulators:
                return False  # the accumulator of a product that follows, which may start from zero
            case ir.Assign(name, value):
                inlined, reads = self._is_inlined(name, value), NameUses(self.e, self._loop_shape(name)[0])
                if self.given or self.stored or not inlined:
                    reads.classify(value)
                if self._is_member(name, value, reads, inlined):
                    return self._joins(s, self._loop_shape(name), name, reads)
                return self._accepts_between(name, value, reads, inlined)
            case ir.Store(pointer):
                t = self.e.types.of(pointer)
                reads = NameUses(self.e, t.shape)
                reads.other_positions |= reads.names_in(pointer)
                if s.mask is not None:
                    reads.classify(s.mask)
                reads.classify(s.value)
                return self._joins(s, (t.shape, max(4, t.dtype.bytes)), "", reads)
        return False

    def _is_member(self, name: str, value: ir.Tile, reads: NameUses, inlined: bool) -> bool:
        t = self.e.types.variables[name]
        if not t.shape or t.pointer or not (t.dtype.is_float or t.dtype is bool_) or isinstance(value, SEPARATE):
            return False
        if self.low.nests.is_transposed_copy(t.dtype, t.shape, value):
            return False  # transposed by squares, not element by element
        return not inlined or not self.given.isdisjoint(reads.same_position | reads.other_positions)

    def _is_inlined(self, name: str, value: ir.Tile) -> bool:
        return self.low.flow.assigned[name] == 1 and self.low.flow.is_inlined(name, value)

    def _accepts_between(self, name: str, value: ir.Tile, reads: NameUses, inlined: bool) -> bool:
        """Accept a scalar, computed before, or an inlined tile."""
        t = self.e.types.variables[name]
        if self.low.flow.assigned[name] != 1 or (t.shape and not inlined):
            return False
        if (reads.same_position | reads.other_positions | reads.computed_before) & self.given:
            return False
        if not t.shape and any(isinstance(x, SEPARATE) for x in walk(value)):
            return False
        if any(self._may_alias(x.pointer, pointer) for x in reads.loads for pointer in self.stored):
            return False
        if t.shape:
            self.e.inline(name, value)
        return True

    def _assigned(self) -> set[str]:
        return {s.name for s in self.members if isinstance(s, ir.Assign)}

    def _joins(self, s: Member, space: tuple[tuple[int, ...], int], name: str, reads: NameUses) -> bool:
        if space != (self.space if self.space[1] else space) or not space[0]:
            return False
        other_positions = self.other_positions | reads.other_positions
        if (reads.other_positions | reads.computed_before) & self.given or name in other_positions:
            return False
        if any(self._may_alias(x.pointer, pointer) for x in reads.loads for pointer in self.stored):
            return False
        if isinstance(s, ir.Store) and not self._may_store(s.pointer, [*self.loads, *reads.loads]):
            return False
        self.space, self.other_positions = space, other_positions
        self.loads += reads.loads
        self.stored += [s.pointer] if isinstance(s, ir.Store) else []
        self.given |= {name} if name else set()
        self.members.append(s)
        self.length = self.seen
        return True

    def _may_alias(self, one: ir.Tile, other: ir.Tile) -> bool:
        return self.low.flow.may_alias(one, other)

    def _may_store(self, pointer: ir.Tile, loads: list[ir.Load]) -> bool:
        """Whether a store touches no element that another position loads or stores."""
        if any(self._may_alias(x.pointer, pointer) for x in self.read):
            return False
        for x in loads:
            if self._may_alias(x.pointer, pointer) and (x.pointer != pointer or self._extent(pointer) is None):
                return False
        return all(not self._may_alias(other, pointer) or self._are_disjoint(other, pointer) for other in self.stored)

    def _steps(self, pointer: ir.Tile) -> list[int | None]:
        """Return the steps of a pointer along the axes of more than one element."""
        shape = self.space[0] or self.e.types.of(pointer).shape
        return [self.e.affine.step(pointer, n - len(shape)) for n, extent in enumerate(shape) if extent > 1]

    def _extent(self, pointer: ir.Tile) -> int | None:
        """Distance between the first and last element in memory, if all have different addresses."""
        shape, reach = self.space[0] or self.e.types.of(pointer).shape, 0
        extents = [extent for extent in shape if extent > 1]
        for step, extent in sorted(
            (abs(s or 0), extent) for s, extent in zip(self._steps(pointer), extents, strict=True)
        ):
            if step <= reach:
                return None
            reach += step * (extent - 1)
        return reach

    def _are_disjoint(self, one: ir.Tile, other: ir.Tile) -> bool:
        """Whether two pointers are so far from each other that their tiles do not overlap."""
        distance, span = self.e.affine.distance(one, other), self._extent(one)
        near = distance is None or span is None or abs(distance) <= span
        return not near and self._steps(one) == self._steps(other)

    def kept(self) -> set[str]:
        """Names with uses elsewhere."""
        names_in: dict[str, int] = {}
        for s in [*self.members, *([self.product] if self.product is not None else [])]:
            for name in names_read(s):
                names_in[name] = names_in.get(name, 0) + 1
        mine = self._assigned()
        own = {self.product.name} - mine if self.product is not None else set()
        most = dict.fromkeys(mine, 1) | dict.fromkeys(own, 2)
        return {
            name
            for name in most
            if self.low.flow.assigned[name] > most[name] or self.low.flow.used[name] > names_in.get(name, 0)
        }


def dot_operands(product: ir.Assign) -> tuple[ir.Tile, ...]:
    """Operands of a product."""
    match product.value:
        case ir.Dot(x, y, _):
            return x, y
    return ()
