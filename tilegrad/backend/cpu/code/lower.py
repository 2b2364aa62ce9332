"""Lower a tile kernel to LLVM IR.

The outermost loop runs over instances. Each statement becomes loops over the shape of its tile (`nests.py`, `dot.py`),
in which expressions are evaluated (`elements.py`). A named tile is inlined where it is used if that is cheap and no
store may change what it loads; otherwise it is stored on the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....errors import CompileError
from ....ir import tile as ir
from ....ir.dtype import DType, bool_, uint8
from ....ir.tile_access import names_in, roots, statements
from ....ir.tile_checker import check
from .. import vectors
from ..emit import I64, PTR, Builder, LlvmValue, Type, constant
from ..prepacked import PackingKernel, PrepackedKernel
from ..summed_products import SummedProduct, computes
from ..target import Target
from . import reductions
from .accumulate_in_place import accumulated_in_place
from .blocks import padded_shape
from .branches import KernelPart, dispatcher, split_branches
from .chains import parts_first
from .dataflow import Dataflow, permutes
from .dot import dot
from .elements import ElementEvaluator
from .fused_statements import (
    FusedStatements,
    find_fused,
    lower_at_position,
    lower_everywhere,
    lower_with_product,
    prepare_fused,
)
from .grouping import FusedGroup, PrepackedSum, Single, Stores, groups
from .memory import StackTile, allocate
from .nests import LoopNests
from .packing import pack_operand
from .position import position
from .transpose_tiles import store_transposed

LOOP_EXPRESSIONS = (ir.Reduce, ir.Scan, ir.Dot, ir.Reshape)
"""Expressions that need loops of their own."""
MAX_STACK_BYTES = 4 << 20
"""Most bytes of tiles that a kernel keeps on the stack."""


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
    """Emits the function of one kernel."""

    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.b = Builder()
        for name in ("entry", "arguments", "begin", "end"):
            self.b.name(name)
        types = check(kernel)
        self.e = ElementEvaluator(types, self.b, target.min_masked_bytes)
        self.nests = LoopNests(self.e, target)
        self.e.reduction = partial(reductions.reduction, self.nests)
        self.flow = Dataflow(kernel, types)
        self.in_place = accumulated_in_place(kernel)
        self.starting: set[int] = set()
        """Products that begin a sum."""
        self.prepacked: Sequence[SummedProduct] = ()
        """The products of a sum whose operands are all prepacked."""
        if isinstance(kernel, PrepackedKernel):
            self.nests.prepacked_tiles = {(p.operand, p.right): p.place for p in kernel.packed if not p.panels}
            self.nests.prepacked_panels = {(p.operand, p.right): p.place for p in kernel.packed if p.panels}
            self.prepacked = kernel.products
        self._prepared: set[str] = set()
        """Names whose expressions have been prepared for the current statement."""

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
        chosen = self.e.evaluate(condition, position(), bool_)
        self.b.open_branch("inside")
        inside = self.b.close_branch()
        self.b.open_branch("border")
        self.b.leave(f"ret i64 {instance}")
        self.b.close_branches(chosen, inside, self.b.close_branch())

    def _parameter(self, p: ir.TileParameter, slot: LlvmValue) -> None:
        b = self.b
        element = "ptr" if p.pointer else vectors.memory_element(p.dtype)
        raw = b.instruction(f"load {element}, ptr {slot}, align 8", Type(element), p.name)
        value = raw if p.pointer else vectors.from_memory(b, raw, p.dtype)
        if p.name in self.flow.assigned:
            self.memory(p.name, p.dtype, (), p.pointer).store(b, position(), value)
        else:
            self.e.registers[p.name] = value

    def memory(self, name: str, dtype: DType, shape: tuple[int, ...], pointer: bool) -> StackTile:
        if name not in self.e.memory:
            padded = (
                padded_shape(self.target, dtype, shape) if name in self.flow.accumulators and len(shape) == 2 else ()
            )
            self.e.memory[name] = allocate(self.b, dtype, shape, name, pointer, padded)
        return self.e.memory[name]

    # --- statements ------------------------------------------------------------------------------

    def _block(self, body: Sequence[ir.Statement]) -> None:
        for group in groups(self, body):
            match group:
                case Single(statement):
                    in_place = self._in_place_reduction(statement)
                    for x in roots(statement):
                        self.prepare(x, in_place)
                    self._statement(statement)
                case Stores(stores):
                    for x in (x for s in stores for x in roots(s)):
                        self.prepare(x)
                    if not store_transposed(self.nests, stores, self._may_repeat(stores)):
                        self.nests.store_all(stores)
                case FusedGroup(product, fused, rest):
                    prepare_fused(self, fused, rest, product)
                    if product is None:
                        lower_everywhere(self, fused)
                    else:
                        lower_with_product(self, fused, product)
                    self.forget_memory()
                case PrepackedSum(rest):
                    self._prepacked_sum(rest)

    def _statement(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Assign(name, value):
                self.assign(name, value)
            case ir.Atomic(_, pointer, _, _, _, name):
                from .effects import atomic

                t = self.e.types.of(pointer)
                atomic(self.nests, statement, self.memory(name, t.dtype, t.shape, False) if name else None)
            case ir.Print():
                from .effects import print_elements

                print_elements(self.nests, statement)
            case ir.For():
                self._for(statement)
            case ir.While(condition, inner):
                self._while(condition, inner)
            case ir.If(condition, then, other):
                self._if(condition, then, other)

    def _prepacked_sum(self, body: Sequence[ir.Statement]) -> None:
        """Lower a block that begins with a sum of products of prepacked operands; its statements are the fallback."""
        products, self.prepacked = self.prepacked, ()
        ends = [n for n, s in enumerate(body) if any(computes(s, product) for product in products)]
        region, rest = body[: max(ends) + 1], body[max(ends) + 1 :]
        self._block([s for s in region if not any(computes(s, product) for product in products)])
        (name,) = self.flow.accumulators
        t = self.e.types.variables[name]
        memory = self.memory(name, t.dtype, t.shape, False)
        fused = self._epilogue_of(products[-1], t.shape, rest)
        finish = None if fused is None else lambda at, x: lower_at_position(self, fused, at, (name, x))

        def fallback() -> None:
            self.nests.multiply_adds_only = True
            self.nests.store_tile(memory, ir.Full(t.shape, ir.Literal(0.0), t.dtype))
            self._block([s for s in region if any(computes(s, product) for product in products)])
            if fused is not None:
                lower_everywhere(self, fused)

        from .low_precision import dot_prepacked

        dot_prepacked(self.nests, memory, products, finish, fallback)
        self._block(rest if fused is None else rest[fused.length :])

    def _epilogue_of(
        self, product: SummedProduct, shape: tuple[int, ...], body: Sequence[ir.Statement]
    ) -> FusedStatements | None:
        """Find and prepare the epilogue of a sum."""
        every = statements(self.kernel.body if product.loop is None else product.loop.body)
        assignment = next(s for s in every if isinstance(s, ir.Assign) and s.value is product.dot)
        if not self.target.matrix_unit:
            return None
        from .low_precision import has_whole_blocks

        fused = find_fused(self, body, assignment) if has_whole_blocks(self.target, shape) else 0
        if isinstance(fused, int):
            return None
        prepare_fused(self, fused, body, assignment)
        return fused

    def _may_repeat(self, stores: Sequence[ir.Store]) -> bool:
        """Whether stores may be executed twice: they read nothing that the kernel stores."""
        loads = self.e.loads(*(s.value for s in stores))
        return not any(self.flow.is_overwritten(x.pointer) for x in loads)

    def _in_place_reduction(self, statement: ir.Statement) -> ir.Reduce | None:
        """Find a reduction of a few rows whose only use is to be added to a tile; both share one loop."""
        match statement:
            case ir.Assign(name, ir.Apply(_, (ir.Name(other), ir.Reduce() as x))) if other == name:
                if name not in names_in(x) and reductions.is_unrolled(self.nests, x):
                    return x
        return None

    def forget_memory(self) -> None:
        self.e.computed = {}
        self._prepared = set()
        self.e.begin_nest()

    def assign(self, name: str, value: ir.Tile) -> None:
        if isinstance(self.kernel, PackingKernel) and name in self.kernel.names:
            place = self.e.evaluate(self.kernel.place, position(), uint8)
            if self.kernel.width:
                pack_operand(self.nests, value, self.kernel.right, self.kernel.width, place)
            else:
                from .amx_packing import AmxPacker

                AmxPacker(self.nests, value, self.kernel.parts, self.kernel.right, place).pack()
            return
        t = self.e.types.variables[name]
        once = self.flow.assigned[name] == 1
        if once and not t.shape:
            self.e.registers[name] = self.e.evaluate(value, position(), t.dtype)
            self.e.affine.define(name, value)
            return
        if once and self.flow.is_inlined(name, value):
            self.e.inline(name, value)
            return
        memory = self.memory(name, t.dtype, t.shape, t.pointer)
        if isinstance(value, ir.Dot) and self.e.computed.get(id(value)) == memory:
            return
        if permutes(value, name):
            new = allocate(self.b, t.dtype, t.shape, name, t.pointer)
            self.nests.store_tile(new, value)
            self.nests.copy_tile(memory, new)
        else:
            self.nests.store_tile(memory, value)

    def _for(self, loop: ir.For) -> None:
        b, e, at, counter = self.b, self.e, position(), loop.index
        dtype = e.types.variables[counter].dtype

        def limit(x: ir.Tile) -> LlvmValue:
            have = e.dtype(x, dtype)
            return vectors.cast(b, e.evaluate(x, at, have), have, dtype)

        start, stop, step = limit(loop.start), limit(loop.stop), limit(loop.step)
        opened = b.open_loop(counter, start, stop, step, guarded=True, pinned=True)
        e.registers[counter] = opened.index
        constant_counter = counter not in self.flow.assigned
        if constant_counter:
            e.affine.enter(loop)
        with e.loop(counter, b.op("add", opened.index, step) if constant_counter else None):
            self._block(loop.body)
        b.close_loop(opened)

    def _while(self, condition: ir.Tile, body: Sequence[ir.Statement]) -> None:
        label, _ = self.b.open_while([])
        self.forget_memory()
        self.prepare(condition)
        self.b.enter_while(self.e.evaluate(condition, position(), bool_))
        self._block(body)
        self.b.close_while(label, (), (), ())

    def _if(self, condition: ir.Tile, then: Sequence[ir.Statement], other: Sequence[ir.Statement]) -> None:
        chosen = self.e.evaluate(condition, position(), bool_)
        before = set(self.b.allocated)
        self.b.open_branch("then")
        self._block(then)
        first = self.b.close_branch()
        self.b.open_branch("else", self._reusable_memory(before, other))
        self._block(other)
        self.b.close_branches(chosen, first, self.b.close_branch())

    def _reusable_memory(self, before: set[str], other: Sequence[ir.Statement]) -> dict[str, int]:
        """Memory allocated in one side of a branch that the other may reuse: all but variables that both assign."""
        both = {s.name for s in statements(tuple(other)) if isinstance(s, ir.Assign | ir.Atomic)}
        kept = {m.address.text for name, m in self.e.memory.items() if name in both}
        return {n: size for n, size in self.b.allocated.items() if n not in before and n not in kept}

    # --- what needs loops of its own -------------------------------------------------------------

    def prepare(self, x: ir.Tile, in_place: ir.Reduce | None = None) -> None:
        """Compute the reductions, scans, products and reshapes in an expression, operands first; not `in_place`."""
        for part in parts_first(x, self.e.inlined, self._prepared):
            if isinstance(part, ir.GatherAlongAxis):
                self._store_source(part.x)
            if isinstance(part, LOOP_EXPRESSIONS) and id(part) not in self.e.computed and part is not in_place:
                self.e.computed[id(part)] = self._computed(part)
                self.e.begin_nest()

    def _computed(self, x: ir.Tile) -> StackTile:
        t = self.e.types.of(x)
        match x:
            case ir.Dot():
                return self._dot(x)
            case ir.Reduce(fn, y, axis):
                out = allocate(self.b, t.dtype, t.shape, "reduced")
                reductions.reduce(self.nests, out, fn, y, axis)
            case ir.Scan(fn, y, axis):
                out = allocate(self.b, t.dtype, t.shape, "scanned")
                reductions.scan(self.nests, out, fn, y, axis)
            case ir.Reshape(y, _):
                out = allocate(self.b, t.dtype, t.shape, "reshaped")
                self.nests.store_tile(out, y, self.e.shape(y))
            case _:
                raise NotImplementedError(type(x).__name__)
        return out

    def _dot(self, x: ir.Dot) -> StackTile:
        t, starts = self.e.types.of(x), id(x) in self.starting
        added = x.accumulator.name if isinstance(x.accumulator, ir.Name) and id(x) in self.in_place else ""
        out = self.memory(added, t.dtype, t.shape, False) if starts else self.e.memory.get(added)
        if out is None:
            out = allocate(self.b, t.dtype, t.shape, "dot", padded=padded_shape(self.target, t.dtype, t.shape))
        dot(self.nests, out, ir.Dot(x.x, x.y, None, x.precision) if starts else x)
        return out

    def _store_source(self, x: ir.Tile) -> None:
        """Store a tile that is read at computed indices."""
        if id(x) in self.e.computed:
            return
        if isinstance(x, ir.Name) and x.name in self.e.memory:
            self.e.computed[id(x)] = self.e.memory[x.name]
            return
        t = self.e.types.of(x)
        kept = allocate(self.b, t.dtype, t.shape, "source")
        self.nests.store_tile(kept, x)
        self.e.computed[id(x)] = kept
        self.e.begin_nest()
