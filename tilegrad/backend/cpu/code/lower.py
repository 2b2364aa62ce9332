"""Lower a tile kernel to LLVM IR.

The outermost loop runs over instances. Each statement becomes loops over the shape of its tile (`nests.py`, `dot.py`),
in which expressions are evaluated (`elements.py`). A named tile is inlined where it is used if that is cheap and no
store may change what it loads; otherwise it is stored on the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from ....errors import CompileError
from ....ir import tile as ir
from ....ir.dtype import DType, bool_, uint8
from ....ir.tile_access import roots, statements, walk
from ....ir.tile_checker import check
from .. import vectors
from ..emit import I64, PTR, Builder, LlvmValue, Type, constant
from ..prepack import PackingKernel, PrepackedKernel, computes, prepacked_sum
from ..target import Target
from . import low_precision
from .accumulate_in_place import accumulated_in_place
from .amx_packing import AmxPacker
from .blocks import padded_shape
from .chains import parts_first
from .dot import dot
from .effects import atomic, print_elements
from .elements import ElementEvaluator, StackTile
from .fused_statements import (
    EXPENSIVE,
    FusedStatements,
    begin,
    find_fused,
    lower_at_position,
    lower_everywhere,
    lower_fused,
)
from .low_precision_forms import SummedProduct
from .nests import LoopNests
from .packing import pack_operand, subexpressions
from .parts import KernelPart, dispatcher, split_branches
from .transpose_tiles import store_transposed

LOOP_EXPRESSIONS = (ir.Reduce, ir.Scan, ir.Dot, ir.Reshape)
"""Expressions that need loops of their own."""
MAX_FUSION_STATEMENTS = 50
"""Statements of a block up to which fusion is tried: each statement is compared with those before it."""
MAX_INLINED_COST = 6
"""Operations of an expression up to which it is evaluated twice rather than stored."""
MAX_STACK_BYTES = 4 << 20
MAX_INLINE_DEPTH = 20
"""Names inlined into each other: each costs several nested Python calls."""


def lower(kernel: ir.Kernel, target: Target) -> str:
    """Lower a kernel to LLVM IR: `void NAME(ptr arguments, i64 begin, i64 end)` runs instances begin to end - 1."""
    functions: list[str] = []
    declared: dict[str, str] = {}
    parts = split_branches(kernel)
    for part in parts:
        made = KernelLowering(part.kernel, target)
        functions += made.function(part)
        declared |= made.b.declarations
    head = [f"; {line}" for line in [*kernel.origin.splitlines(), f"kernel {kernel.name}"]]
    bits = target.vector_bytes * 8
    width = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    attributes = [f"attributes #0 = {{ nounwind {width} }}"]
    if len(parts) > 1:
        functions.append(dispatcher(kernel.name))
        attributes.append(f"attributes #1 = {{ noinline nounwind {width} }}")
    return "\n".join([*head, *declared.values(), *functions, *attributes, ""])


class KernelLowering:
    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.b = Builder()
        for name in ("entry", "arguments", "begin", "end"):
            self.b.name(name)
        self.e = ElementEvaluator(check(kernel), self.b)
        self.e.least_masked = 2 if target.architecture == "x86" and target.vector_bytes == 64 else 4
        self.nests = LoopNests(self.e, target)
        self.prepacked: list[SummedProduct] = []
        """The products of a sum whose operands are all prepacked."""
        if isinstance(kernel, PrepackedKernel):
            self.nests.packed = {(p.operand, p.right): p.place for p in kernel.packed if not p.panels}
            self.nests.laid = {(p.operand, p.right): p.place for p in kernel.packed if p.panels}
            self.prepacked = prepacked_sum(kernel, self.e.types, target)
        self.assigned: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.prepared: set[str] = set()
        """Names whose expressions have been prepared for the current statement."""
        self.stored: set[str] = set()
        self.points: dict[str, set[str]] = {}
        """Pointers that each pointer variable is derived from."""
        self.summed: set[str] = set()
        """Names of accumulators of products."""
        self.first: set[int] = set()
        """Products that begin a sum."""
        self.straight: ir.Reduce | None = None
        """The reduction that the current statement evaluates in place."""
        self.in_place = accumulated_in_place(kernel)
        self._pointed: dict[int, tuple[set[str], ir.Tile]] = {}
        self._lazy: dict[tuple[str, int], tuple[bool, ir.Tile]] = {}
        self._chains: dict[str, int] = {}
        """Depth of inlined names below each name."""
        for statement in statements(kernel.body):
            self._note(statement)
            self._pointed = {}  # later assignments may add pointers

    def _note(self, statement: ir.Statement) -> None:
        for name in {x.name for root in roots(statement) for x in walk(root) if isinstance(x, ir.Name)}:
            self.used[name] = self.used.get(name, 0) + 1
        for x in (x for root in roots(statement) for x in walk(root) if isinstance(x, ir.Dot)):
            self.summed |= {x.accumulator.name} if isinstance(x.accumulator, ir.Name) else set()
        if isinstance(statement, ir.Assign):
            self.assigned[statement.name] = self.assigned.get(statement.name, 0) + 1
            if self.e.types.variables[statement.name].pointer:
                self.points.setdefault(statement.name, set()).update(self.pointed(statement.value))
        elif isinstance(statement, ir.Store | ir.Atomic):
            self.stored |= self.pointed(statement.pointer)
            if isinstance(statement, ir.Atomic) and statement.name:
                self.assigned[statement.name] = self.assigned.get(statement.name, 0) + 1

    def pointed(self, pointer: ir.Tile) -> set[str]:
        """Names that a pointer is derived from, transitively."""
        known = self._pointed.get(id(pointer))
        if known is None:
            named = {x.name for x in walk(pointer) if isinstance(x, ir.Name)}
            names = {name for name in named if self.e.types.variables[name].pointer}
            known = self._pointed[id(pointer)] = names.union(*(self.points.get(name, ()) for name in names)), pointer
        return known[0]

    def function(self, part: KernelPart) -> list[str]:
        """Emit the function of the kernel, or of a part of it."""
        b, e = self.b, self.e
        arguments = LlvmValue("%arguments", PTR)
        slots = [b.offset(arguments, "i64", constant(n, I64), "slot") for n in range(len(self.kernel.parameters) + 3)]
        for p, slot in zip(self.kernel.parameters, slots, strict=False):
            self._parameter(p, slot)
        grid = [b.instruction(f"load i64, ptr {slot}, align 8", I64, "grid") for slot in slots[-3:]]
        e.grid = [b.convert("trunc", g, "i32") for g in grid]
        loop = b.open_loop(
            "instance", LlvmValue("%begin", I64), LlvmValue("%end", I64), constant(1, I64), guarded=True, pinned=True
        )
        rest = b.op("udiv", loop.index, grid[0])
        ids = (b.op("urem", loop.index, grid[0]), b.op("urem", rest, grid[1]), b.op("udiv", rest, grid[1]))
        e.ids = [b.convert("trunc", n, "i32", "program") for n in ids]
        self._block(self.kernel.body)
        if part.condition is not None:
            self._leave_unless(part.condition, loop.index)
        b.close_loop(loop)
        if b.stack_bytes > MAX_STACK_BYTES:
            raise CompileError(
                f"kernel {self.kernel.name}: its tiles take {b.stack_bytes} bytes of the stack, of "
                f"{MAX_STACK_BYTES} for them; take smaller tiles"
            )
        signature = f"define {part.head}(ptr noalias %arguments, i64 %begin, i64 %end) {part.attributes} {{"
        end = "  ret void" if part.condition is None else "  ret i64 %end"
        return [signature, "entry:", *b.allocations, *b.scopes[0].lines, end, "}"]

    def _leave_unless(self, condition: ir.Tile, instance: LlvmValue) -> None:
        self.prepare(condition)
        chosen = self.e.of(condition, [], 0, bool_)
        self.b.open_branch("inside")
        inside = self.b.close_branch()
        self.b.open_branch("border")
        self.b.leave(f"ret i64 {instance}")
        self.b.close_branches(chosen, inside, self.b.close_branch())

    def _parameter(self, p: ir.Parameter, slot: LlvmValue) -> None:
        b = self.b
        element = "ptr" if p.pointer else vectors.memory_element(p.dtype)
        raw = b.instruction(f"load {element}, ptr {slot}, align 8", Type(element), p.name)
        value = raw if p.pointer else vectors.from_memory(b, raw, p.dtype)
        if p.name in self.assigned:
            self.memory(p.name, p.dtype, (), p.pointer)
            self.e.keep(self.e.memory[p.name], [], value, 0)
        else:
            self.e.registers[p.name] = value

    def memory(self, name: str, dtype: DType, shape: tuple[int, ...], pointer: bool) -> StackTile:
        if name not in self.e.memory:
            room = padded_shape(self.target, dtype, shape) if name in self.summed and len(shape) == 2 else ()
            self.e.memory[name] = self.e.allocate(dtype, shape, name, pointer, room)
        return self.e.memory[name]

    # --- statements ------------------------------------------------------------------------------

    def _block(self, body: Sequence[ir.Statement]) -> None:
        done = barren = 0
        short = len(body) <= MAX_FUSION_STATEMENTS and not isinstance(self.kernel, PackingKernel)
        for statement, *more in self._grouped_stores(body):
            at, done = done, done + 1 + len(more)
            self.forget_memory()
            if self.prepacked and computes(statement, self.prepacked[0]):
                rest = self._prepacked_sum(body[done - 1 :])
                return self._block(rest)
            if self._starts_product(statement, body[done:]):
                continue
            taken = lower_fused(self, body[at:]) if short and at >= barren else 0
            if taken > 0:
                return self._block(body[at + taken :])
            barren = max(barren, at - taken)
            self.straight = self._in_place_reduction(statement)
            for root in (r for s in (statement, *more) for r in roots(s)):
                self.prepare(root)
            match statement:
                case ir.Assign(name, value):
                    self.assign(name, value)
                case ir.Store():
                    stores = [s for s in (statement, *more) if isinstance(s, ir.Store)]
                    if not store_transposed(self.nests, stores, self._may_repeat(stores)):
                        self.nests.store(stores)
                case ir.Atomic(_, pointer, _, _, _, name):
                    t = self.e.types.of(pointer)
                    atomic(self.nests, statement, self.memory(name, t.dtype, t.shape, False) if name else None)
                case ir.Print():
                    print_elements(self.nests, statement)
                case ir.For():
                    self._for(statement)
                case ir.While(condition, inner):
                    self._while(condition, inner)
                case ir.If(condition, then, other):
                    self._if(condition, then, other)
        self.forget_memory()

    def _prepacked_sum(self, body: Sequence[ir.Statement]) -> Sequence[ir.Statement]:
        """Lower a sum of products of prepacked operands, or its statements as a fallback; return what follows it."""
        products, self.prepacked = self.prepacked, []
        last = max(n for n, s in enumerate(body) if any(computes(s, product) for product in products))
        region = body[: last + 1]
        self._block([s for s in region if not any(computes(s, product) for product in products)])
        (name,) = self.summed
        t = self.e.types.variables[name]
        memory = self.memory(name, t.dtype, t.shape, False)

        fused, rest = self._epilogue_of(products[-1], t.shape, body[last + 1 :])
        finish = None if fused is None else lambda at, lanes, x: lower_at_position(self, fused, at, lanes, (name, x))

        def otherwise() -> None:
            self.nests.plain = True
            self.nests.keep(memory, ir.Full(t.shape, ir.Literal(0.0), t.dtype))
            self._block([s for s in region if any(computes(s, product) for product in products)])
            if fused is not None:
                lower_everywhere(self, fused)

        low_precision.dot_prepacked(self.nests, memory, products, finish, otherwise)
        return rest

    def _epilogue_of(
        self, product: SummedProduct, shape: tuple[int, ...], body: Sequence[ir.Statement]
    ) -> tuple[FusedStatements | None, Sequence[ir.Statement]]:
        every = statements(self.kernel.body if product.loop is None else product.loop.body)
        assignment = next(s for s in every if isinstance(s, ir.Assign) and s.value is product.dot)
        if not low_precision.may_have_epilogue(self.nests.target, shape):
            return None, body
        fused = find_fused(self, body, assignment)
        if isinstance(fused, int):
            return None, body
        begin(self, fused, body, assignment)
        return fused, body[fused.length :]

    def _grouped_stores(self, body: Sequence[ir.Statement]) -> list[list[ir.Statement]]:
        """Group consecutive stores of one shape that do not access each other's memory."""
        groups: list[list[ir.Statement]] = []
        stored: set[str] = set()
        loaded: set[str] = set()
        for statement in body:
            if not isinstance(statement, ir.Store):
                groups.append([statement])
                continue
            writes = self.pointed(statement.pointer)
            loads = [x.pointer for root in roots(statement) for x in walk(root) if isinstance(x, ir.Load)]
            reads = set().union(*map(self.pointed, loads))
            first = groups[-1][0] if groups else None
            alike = isinstance(first, ir.Store) and self._space(first) == self._space(statement)
            if alike and not (writes | reads) & stored and not writes & loaded:
                groups[-1].append(statement)
            else:
                groups.append([statement])
                stored, loaded = set(), set()
            stored |= writes
            loaded |= reads
        return groups

    def _space(self, store: ir.Store) -> tuple[tuple[int, ...], int]:
        """Shape of a store and bytes per element, as they determine the vectors of its loop."""
        t = self.e.types.of(store.pointer)
        return t.shape, max(4, t.dtype.bytes)

    def _may_repeat(self, stores: Sequence[ir.Store]) -> bool:
        """Whether stores may be executed twice: they read nothing that the kernel stores."""
        loads = [x for s in stores for x in subexpressions(self.e, s.value) if isinstance(x, ir.Load)]
        return not any(self.pointed(x.pointer) & self.stored for x in loads)

    def _starts_product(self, statement: ir.Statement, following: Sequence[ir.Statement]) -> bool:
        """Whether a tile of zeros is only the accumulator of a product, which then starts without it."""
        match statement:
            case ir.Assign(name, ir.Full((_, _), ir.Literal(value))) if str(value) in ("0", "0.0"):
                pass
            case _:
                return False
        after = next((s for s in following if name in _named(s)), None)
        if after is not None and self.prepacked and computes(after, self.prepacked[0]):
            return True
        match after:
            case ir.Assign(other, ir.Dot(x, y, ir.Name(added)) as product) if other == added == name:
                if name not in {part.name for part in walk(x, y) if isinstance(part, ir.Name)}:
                    self.first.add(id(product))
                    return True
        return False

    def _in_place_reduction(self, statement: ir.Statement) -> ir.Reduce | None:
        """Find a reduction of a few rows whose only use is to be added to a tile; both share one loop."""
        match statement:
            case ir.Assign(name, ir.Apply(_, (ir.Name(other), ir.Reduce() as x))) if other == name:
                named = {part.name for part in walk(x) if isinstance(part, ir.Name)}
                if name not in named and self.nests.is_short_across(x):
                    return x
        return None

    def forget_memory(self) -> None:
        self.e.made = {}
        self.prepared = set()
        self.e.begin()

    def assign(self, name: str, value: ir.Tile) -> None:
        if isinstance(self.kernel, PackingKernel) and name in self.kernel.names:
            place = self.e.of(self.kernel.place, [], 0, uint8)
            if self.kernel.width:
                pack_operand(self.nests, value, self.kernel.right, self.kernel.width, place)
            else:
                AmxPacker(self.nests, value, self.kernel.parts, self.kernel.right, place).pack()
            return
        t = self.e.types.variables[name]
        if self.assigned[name] == 1 and not t.shape:
            found = self.e.of(value, [], 0, t.dtype)
            self.e.registers[name] = found
            self.e.ranges.values[name] = value
            return
        if self.assigned[name] == 1 and self.is_inlined(name, value):
            self.e.inlined[name] = self.e.ranges.values[name] = value
            return
        memory = self.memory(name, t.dtype, t.shape, t.pointer)
        if isinstance(value, ir.Dot) and self.e.made.get(id(value)) == memory:
            return
        if self._permutes(value, name):
            forget_memory = self.e.allocate(t.dtype, t.shape, name, t.pointer)
            self.nests.keep(forget_memory, value)
            self.nests.copy(memory, forget_memory)
        else:
            self.nests.keep(memory, value)

    def is_inlined(self, name: str, value: ir.Tile) -> bool:
        key = name, id(value)
        if key not in self._lazy:
            self._lazy[key] = self._is_inlined(name, value), value
        return self._lazy[key][0]

    def _is_inlined(self, name: str, value: ir.Tile) -> bool:
        cost = 0
        chain = max((self._chains.get(x.name, 0) for x in walk(value) if isinstance(x, ir.Name)), default=0)
        elements = prod(self.e.types.of(value).shape)
        for x in walk(value):
            match x:
                case ir.Reduce() | ir.Scan() | ir.Dot() | ir.Reshape() | ir.Trans() | ir.Gather():
                    return False
                case ir.Name(other) if self._is_reassigned(other):
                    return False
                case ir.Load(pointer):
                    if self.pointed(pointer) & self.stored:
                        return False
                case ir.Apply(fn) if prod(self.e.types.of(x).shape) == elements:
                    cost += 10 if fn in EXPENSIVE and self.e.types.of(x).dtype.is_float else 1
        once = self.used.get(name, 0) <= 1 or not self.e.types.of(value).dtype.is_float
        if chain >= MAX_INLINE_DEPTH or not (once or cost <= MAX_INLINED_COST):
            return False
        self._chains[name] = chain + 1
        return True

    def _is_reassigned(self, name: str) -> bool:
        values = self.assigned.get(name, 0) + any(p.name == name for p in self.kernel.parameters)
        return values > 1

    def _permutes(self, value: ir.Tile, name: str) -> bool:
        """Whether elements of the new tile depend on other elements of the old one."""
        match value:
            case ir.Name() | ir.Literal():
                return False
            case ir.Apply() | ir.Cast():
                return any(self._permutes(x, name) for x in ir.parts(value))
            case ir.Dot():
                return False
        return any(isinstance(x, ir.Name) and x.name == name for x in walk(value))

    def _for(self, loop: ir.For) -> None:
        b, e = self.b, self.e
        dtype = e.types.variables[loop.index].dtype

        def limit(x: ir.Tile) -> LlvmValue:
            have = e.dtype(x, dtype)
            return vectors.cast(b, e.of(x, [], 0, have), have, dtype)

        start, stop, step = limit(loop.start), limit(loop.stop), limit(loop.step)
        opened = b.open_loop(loop.index, start, stop, step, guarded=True, pinned=True)
        e.registers[loop.index] = opened.index
        e.multiples.pop(loop.index, None)
        match loop.start, loop.step:
            case ir.Literal(int() as first), ir.Literal(int() as stride) if loop.index not in self.assigned:
                e.multiples[loop.index] = gcd(first, stride)
        match loop.start, loop.stop:
            case ir.Literal(int() as first), ir.Literal(int() as end) if loop.index not in self.assigned:
                e.ranges.set_counter(loop.index, first, end)
        before, e.following = e.following, None
        if loop.index not in self.assigned:
            e.following = (loop.index, b.op("add", opened.index, step))
        self._block(loop.body)
        e.following = before
        b.close_loop(opened)

    def _while(self, condition: ir.Tile, body: Sequence[ir.Statement]) -> None:
        label, _ = self.b.open_while([])
        self.forget_memory()
        self.prepare(condition)
        self.b.enter_while(self.e.of(condition, [], 0, bool_))
        self._block(body)
        self.b.close_while(label, (), (), ())

    def _if(self, condition: ir.Tile, then: Sequence[ir.Statement], other: Sequence[ir.Statement]) -> None:
        chosen = self.e.of(condition, [], 0, bool_)
        before = set(self.b.allocated)
        self.b.open_branch("then")
        self._block(then)
        first = self.b.close_branch()
        self.b.open_branch("else")
        spare, self.b.spare = self.b.spare, self._reusable_memory(before, other)
        self._block(other)
        self.b.spare = spare
        self.b.close_branches(chosen, first, self.b.close_branch())

    def _reusable_memory(self, before: set[str], other: Sequence[ir.Statement]) -> dict[str, int]:
        """Memory allocated in one side of a branch that the other may reuse: all but variables that both assign."""
        both = {s.name for s in statements(tuple(other)) if isinstance(s, ir.Assign | ir.Atomic)}
        kept = {m.address.text for name, m in self.e.memory.items() if name in both}
        return {n: size for n, size in self.b.allocated.items() if n not in before and n not in kept}

    # --- what needs loops of its own -------------------------------------------------------------

    def prepare(self, x: ir.Tile) -> None:
        """Compute the reductions, scans, products and reshapes in an expression, operands first."""
        for part in parts_first(x, self.e.inlined, self.prepared):
            self._prepare_one(part)

    def _prepare_one(self, x: ir.Tile) -> None:
        if isinstance(x, ir.Gather):
            self._keep_source(x.x)
        if not isinstance(x, LOOP_EXPRESSIONS) or id(x) in self.e.made or x is self.straight:
            return
        t = self.e.types.of(x)
        match x:
            case ir.Dot(_, _, accumulator):
                added = accumulator.name if isinstance(accumulator, ir.Name) and id(x) in self.in_place else ""
                out = self.memory(added, t.dtype, t.shape, False) if id(x) in self.first else self.e.memory.get(added)
                out = out or self.e.allocate(t.dtype, t.shape, "dot", room=padded_shape(self.target, t.dtype, t.shape))
                dot(self.nests, out, ir.Dot(x.x, x.y, None, x.precision) if id(x) in self.first else x)
            case ir.Reduce(fn, y, axis):
                out = self.e.allocate(t.dtype, t.shape, "reduced")
                self.nests.reduce(out, fn, y, axis)
            case ir.Scan(fn, y, axis):
                out = self.e.allocate(t.dtype, t.shape, "scanned")
                self.nests.scan(out, fn, y, axis)
            case ir.Reshape(y, _):
                out = self.e.allocate(t.dtype, t.shape, "reshaped")
                self.nests.keep(out, y, self.e.shape(y))
        self.e.made[id(x)] = out
        self.e.begin()

    def _keep_source(self, x: ir.Tile) -> None:
        """Store a tile that is read at computed indices."""
        if id(x) in self.e.made:
            return
        if isinstance(x, ir.Name) and x.name in self.e.memory:
            self.e.made[id(x)] = self.e.memory[x.name]
            return
        t = self.e.types.of(x)
        kept = self.e.allocate(t.dtype, t.shape, "source")
        self.nests.keep(kept, x)
        self.e.made[id(x)] = kept
        self.e.begin()


def _named(statement: ir.Statement) -> set[str]:
    found: set[str] = set()
    for inner in statements((statement,)):
        found |= {x.name for x in walk(*roots(inner)) if isinstance(x, ir.Name)}
        found |= {inner.name} if isinstance(inner, ir.Assign | ir.Atomic) and inner.name else set()
    return found
