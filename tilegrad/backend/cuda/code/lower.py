"""Lower a tile kernel to CUDA C++, with a block of threads for each instance.

Statements with one layout are grouped and share a loop over registers (`fused_statements.py`); all threads compute
scalars; loops and branches are uniform over the threads of a block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import NamedTuple

from ....errors import CompileError
from ....ir import tile as ir
from ....ir.dtype import bool_
from ....ir.tile_access import count_assignments, names_in, names_read, statements, stored_through, walk
from ....ir.tile_checker import check
from ....ir.tile_types import TileType
from ....tiles.affine import Affine
from ....tiles.name_expressions import ExpressionNamer
from ....tiles.pipeline import run_passes
from ..tensor_map import TensorMap
from .checked_indices import PLACE, RECORD, checks_indices, fault_declaration, fault_report
from .dot import DotLowering
from .effects import atomic, print_values
from .elements import Elements, RegisterTile
from .functions import MEMORY, TYPES, Text, cast, from_memory
from .guard import HazardTracker
from .layout import SCALAR, RegisterLayout
from .plan import LayoutPlan
from .position_parts import position_parts
from .prefetch import LoopPrefetch
from .prelude import prelude
from .registers import Registers
from .warp_reduce import copy_tiles
from .writing import Lines, Names, SharedMemory

BYTES = {"bool": 1, "int8": 1, "uint8": 1, "uint16": 2, "short": 2, "int": 4, "uint32": 4, "float": 4}
SHARED_KIB = {"80": 163, "87": 163, "90": 227, "100": 227, "103": 227}
"""KiB of shared memory that a block may have, by architecture; others have 99."""
MAX_POSITION_OPERATIONS = 12
"""Operations of a position up to which it is recomputed at each use."""
LOADS_UNROLL, LOADS_UNROLL_OF_SMALL_BLOCKS, SMALL_BLOCK_THREADS = 4, 8, 64
"""Iterations in flight of a loop that only loads; more of them in blocks of few threads."""
MAX_POSITION_NODES = 4096
"""Largest position, in nodes after inlining, that is recomputed at each use; named parts can double it line by line."""
BOUNDS = ("grid_0", "grid_1", "grid_2")


class KernelSource(NamedTuple):
    """The CUDA C++ of a kernel, with its threads and bytes of shared memory."""

    name: str
    text: str
    threads: int
    shared: int
    maps: tuple[TensorMap, ...] = ()
    resident: int = 0
    """Persistent blocks per multiprocessor; 0: one block per instance."""


def max_shared_bytes(architecture: str) -> int:
    """Return the bytes of shared memory that a block may have."""
    return SHARED_KIB.get(architecture.strip("sm_af"), 99) << 10


def lower(kernel: ir.Kernel, architecture: str = "sm_90a") -> KernelSource:
    """Return the source of a kernel for an architecture."""
    lowering = CudaLowering(kernel, architecture)
    source = lowering.source()
    if lowering.products.persistent and lowering.has_barrier:
        source = CudaLowering(kernel, architecture, allow_persistent=False).source()
    most = max_shared_bytes(architecture)
    if source.shared > most:
        raise CompileError(
            f"kernel {kernel.name}: its tiles need {source.shared:,} bytes of shared memory, and a block has {most:,} "
            f"({architecture}): take smaller tiles"
        )
    return source


class CudaLowering(Registers):
    """Lowers one kernel."""

    def __init__(self, kernel: ir.Kernel, architecture: str, allow_persistent: bool = True) -> None:
        self.kernel, self.architecture = kernel, architecture
        self.types = check(kernel)
        lowered = run_passes(kernel, "cuda", types=self.types)
        self.body, self.counts = lowered.body, count_assignments(lowered.body)
        self.products = DotLowering(lowered, self.types, architecture, allow_persistent)
        self.affine = Affine(self.types, {}, {})
        assigned = {s.name for s in statements(self.body) if isinstance(s, ir.Assign | ir.Atomic)}
        self._find_positions(self.body, assigned)
        self.affine.find_divisors(lowered)
        self.plan = LayoutPlan(self.body, self.types, self.affine, self.products.threads)
        self.plan.layouts |= self.products.layouts
        sums = [t.layout for t in self.products.tilings.values() if t.kind != "thread"]
        self.plan.follow_accumulators(sums, self.body, self._updated_in_place())
        self.threads = self.plan.threads
        self.names = Names()
        self.elements = Elements(self.types, self.affine, position_parts(self.body), self.names.of)
        self.out = Lines()
        self.memory = SharedMemory()
        self.hazards = HazardTracker(lowered, self.types, self.affine.expanded)
        self.hazards.threads = self.threads
        self.stored_parameters = stored_through(kernel, self.types)
        self.scopes: list[set[str]] = [{p.name for p in kernel.parameters}]
        self.uses = _uses(self.body)
        self.prefetched: dict[str, str] = {}
        """Shared-memory addresses of vectors prefetched in the previous iteration."""

    @property
    def max_shared_bytes(self) -> int:
        """Bytes of shared memory that a block may have."""
        return max_shared_bytes(self.architecture)

    # --- what is known before --------------------------------------------------------------------

    def _find_positions(self, body: Sequence[ir.Statement], assigned: Set[str]) -> None:
        """Find names that depend on positions alone; they are recomputed where they are used."""
        for statement in body:
            match statement:
                case ir.Assign(name, value) if self.counts.get(name) == 1 and self._is_position(value):
                    self.affine.define(name, value)
                case ir.For(index, body=inner):
                    if index not in assigned:
                        self.affine.add(statement)
                    self._find_positions(inner, assigned)
                case ir.While(_, inner):
                    self._find_positions(inner, assigned)
                case ir.If(_, then, otherwise):
                    self._find_positions((*then, *otherwise), assigned)

    def _updated_in_place(self) -> set[str]:
        """Return the variables loaded from tensors that this kernel stores to."""
        found = set()
        for s in self.body if self.products.dots else ():
            match s:
                case ir.Assign(name, ir.Load(pointer, None)):
                    source = self.products.analysis.parameter(pointer)
                    found |= {name} if source is not None and source in self.products.stored else set()
        return found

    def _is_position(self, value: ir.Tile) -> bool:
        """Return whether an integer expression is cheap to recompute and uses no tile in registers."""
        t = self.types.of(value)
        if not (t.pointer or t.dtype.is_integer or t.dtype is bool_):
            return False
        nodes = list(walk(value))
        if not all(map(self._follows_from_position, nodes)):
            return False
        cost = sum(isinstance(x, ir.Apply) for x in nodes)
        return cost <= MAX_POSITION_OPERATIONS and self.affine.expanded_size(value) <= MAX_POSITION_NODES

    def _follows_from_position(self, x: ir.Tile) -> bool:
        """Return whether a node of an expression needs no data but scalars."""
        match x:
            case ir.Name(name):
                known = name in self.affine.definitions or name in self.affine.loops
                return known or not (self.types.variables[name].shape or self.counts.get(name, 0) > 1)
            case ir.Load() | ir.Reduce() | ir.Scan() | ir.Dot() | ir.Bitcast() | ir.GatherAlongAxis():
                return False
        return isinstance(x, ir.Apply | ir.Literal) or not self.types.of(x).dtype.is_float

    # --- the source ------------------------------------------------------------------------------

    def source(self) -> KernelSource:
        products = self.products
        self.names.taken |= {*products.names, *BOUNDS, "thread", PLACE, RECORD, *self.memory.places}
        for p in self.kernel.parameters:
            self.names.of(p.name)
        self.statements(self.body)
        name = f"{self.kernel.name}_kernel"
        if products.persistent:
            self.out.depth -= 1
            self.out.add("}")
        elif products.roles_split_at:  # producers do not take part in barriers
            rest = [line.replace("__syncthreads()", f"consumer_barrier({self.threads})") for line in self.out.lines]
            self.out.lines[products.roles_split_at :] = rest[products.roles_split_at :]
        checks = checks_indices(self.out.lines)
        body = "\n".join([*self._head(), *self.out.lines, *(fault_report(bool(products.dots)) if checks else [])])
        shown = (
            str(self.kernel).replace("\\", "/").split("\n")
        )  # a backslash would continue the comment on the next line
        comment = [f"// {line.removeprefix('# ')}".rstrip() for line in shown]
        given = [*(self._parameter(p) for p in self.kernel.parameters), *(f"int {b}" for b in BOUNDS)]
        given += [f"int64* {PLACE}"] if checks else []
        parameters = ", ".join([*given, *products.parameters])
        limits = products.bounds or self.threads
        head = f'extern "C" __global__ void __launch_bounds__({limits})\n{name}({parameters}) {{'
        own = "\n".join([*comment, head, body, "}"])
        text = "\n\n".join([prelude(own, products.texts), *products.texts, own]).lstrip() + "\n"
        threads, shared = self.threads + products.producer_threads, self.memory.places["end"]
        return KernelSource(name, text, threads, shared, products.maps, products.resident)

    @property
    def has_barrier(self) -> bool:
        """Return whether there is a barrier after the roles of warps have split."""
        return any("__syncthreads" in line for line in self.out.lines[self.products.roles_split_at :])

    def _head(self) -> list[str]:
        """Return the declarations at the start of the kernel that its body needs."""
        text = "\n".join(self.out.lines)
        lines = []
        if "thread" in text:
            lines.append("const int thread = threadIdx.x;")
        if checks_indices(self.out.lines):
            lines.append(fault_declaration(bool(self.products.dots)))
        lines += [*self._program_ids(text), *self._converted_parameters()]
        places = self.memory.places
        if places.pop("end"):
            lines.append("extern __shared__ __align__(1024) unsigned char shared[];")
        for name, at in places.items():
            if re.search(rf"\b{name}\b", text):
                lines.append(f"unsigned char* const {name} = shared{'' if name == 'large' else f' + {at}'};")
        return ["    " + line for line in lines]

    def _program_ids(self, text: str) -> list[str]:
        """Return the declarations of the program ids; the loop of persistent blocks declares its own."""
        if self.products.dots and "program_" in text:
            return [] if self.products.persistent else self.products.ids()
        ids = ("blockIdx.x % grid_0", "blockIdx.x / grid_0 % grid_1", "blockIdx.x / grid_0 / grid_1")
        return [f"const int program_{n} = {id};" for n, id in enumerate(ids) if f"program_{n}" in text]

    def _converted_parameters(self) -> list[str]:
        """Return the conversions of scalar parameters that are computed in another type than they are passed in."""
        found = []
        for p in self.kernel.parameters:
            name, type = self.names.of(p.name), TYPES[p.dtype.name]
            if not p.pointer and MEMORY[p.dtype.name] != type:
                found.append(f"{type} {name} = {type}(number(given_{name}));")
        return found

    def _parameter(self, p: ir.TileParameter) -> str:
        name, type = self.names.of(p.name), MEMORY[p.dtype.name]
        if not p.pointer:
            return f"{type} {'' if type == TYPES[p.dtype.name] else 'given_'}{name}"
        return f"{self._const(p.name)}{type}* {'' if self.hazards.is_shared(p.name) else '__restrict__ '}{name}"

    # --- statements ------------------------------------------------------------------------------

    @contextmanager
    def scope(self, *names: str) -> Iterator[None]:
        """Enter a scope of variables, beginning with some names."""
        outer = dict(self.elements.inlined), dict(self.elements.register_tiles)
        self.scopes.append(set(names))
        yield
        self.scopes.pop()
        self.elements.inlined, self.elements.register_tiles = outer

    @contextmanager
    def writing(self, lines: Lines) -> Iterator[Lines]:
        """Write to other lines."""
        outer, self.out = self.out, lines
        yield lines
        self.out = outer

    def block(self, body: Sequence[ir.Statement]) -> None:
        """Write statements in a scope of their own."""
        with self.scope():
            self.statements(body)

    def statements(
        self,
        body: Sequence[ir.Statement],
        intercept: Callable[[CudaLowering, ir.Statement, Callable[[], None]], bool] | None = None,
        before_joining: Callable[[], None] = lambda: None,
    ) -> None:
        """Write statements in order, except for those that `intercept` writes."""
        from .group_statements import StatementGrouper

        grouper, intercept = StatementGrouper(self, before_joining), intercept or self.products.write_specialised
        for statement in body:
            if intercept(self, statement, grouper.flush):
                continue
            match statement:
                case ir.Assign(name, value) if name in self.affine.definitions and self.types.of(value).shape:
                    self.elements.inlined[name] = value
                case ir.Assign(_, value) if not self.types.of(value).shape and not isinstance(value, ir.Reduce):
                    grouper.add_scalar(statement)
                case ir.Store():
                    grouper.add(statement)
                case ir.Assign(_, value) if not isinstance(value, ir.Dot):
                    grouper.add(statement)
                case ir.Assert():
                    pass  # only checked runs, by the interpreter, evaluate assertions
                case _:
                    grouper.flush()
                    self._write_alone(statement)
        grouper.flush()

    def _write_alone(self, statement: ir.Statement) -> None:
        """Write a statement that cannot share a loop with others."""
        match statement:
            case ir.Assign():
                self.products.write(self, statement)
            case ir.Atomic():
                atomic(self, statement)
            case ir.Print():
                print_values(self, statement)
            case ir.For() if self.products.loop(self, statement):
                pass
            case _:
                self._control(statement)

    def assign_scalar(self, statement: ir.Assign) -> None:
        """Compute a scalar in all threads."""
        name, value = statement.name, statement.value
        t = self.types.of(value)
        if isinstance(value, ir.Load):
            self.barrier_if(self.hazards.note_load(value.pointer, SCALAR))
            text = self._loaded(value, t)
        else:
            text = self.elements.of(value, (), t.dtype)
        self.assign(name, t, text)

    def _loaded(self, load: ir.Load, t: TileType) -> Text:
        memory = self.elements.memory(load.pointer, ())
        read = from_memory(memory, t.dtype)
        if load.mask is None:
            return read
        other = Text("0") if load.other is None else self.elements.of(load.other, (), t.dtype)
        mask = self.elements.of(load.mask, (), bool_)
        return Text(f"{mask.within(3)} ? {read.within(3)} : {TYPES[t.dtype.name]}({other})", 0)

    def assign(self, name: str, t: TileType, text: Text | str) -> None:
        """Assign a scalar, declaring it the first time."""
        called = self.names.of(name)
        if self.is_declared(name):
            self.out.add(f"{called} = {text};")
            return
        const = "const " if self.counts.get(name, 1) == 1 else ""
        type = "auto" if t.pointer else TYPES[t.dtype.name]
        self.out.add(f"{const}{type} {called} = {text};" if not t.pointer else f"{type} {called} = {text};")
        self.scopes[-1].add(name)

    def is_declared(self, name: str) -> bool:
        return any(name in scope for scope in self.scopes)

    def declare(self, name: str, layout: RegisterLayout) -> RegisterTile:
        """Declare a tile in registers, the first time."""
        if not self.is_declared(name):
            made = RegisterTile(self.names.of(name), layout)
            extents = "".join(f"[{n}]" for n in layout.extents())
            self.out.add(f"{self.register_type(self.types.variables[name], name)} {made.text}{extents};")
            self.scopes[-1].add(name)
            self.elements.register_tiles[name] = made
        return self.elements.register_tiles[name]

    def _control(self, statement: ir.Statement) -> None:
        match statement:
            case ir.For():
                self._for(statement)
            case ir.While(condition, body):
                with self.loop_scope(statement), self.out.block("while (true)"):
                    before, simple = ExpressionNamer(self.types).condition(condition)
                    for name, users in _uses(before).items():
                        self.uses[name] = [*self.uses.get(name, []), *users]
                    with self.scope():
                        self.statements(before)
                        self.out.add(f"if (!{self.elements.of(simple, (), bool_).within(11)}) break;")
                        self.block(body)
                        self._separate_halves()
            case ir.If(condition, then, otherwise):
                self._if(condition, then, otherwise)

    def loop_bounds(self, loop: ir.For) -> list[Text]:
        """Return the start, stop and step of a loop."""
        dtype = self.types.variables[loop.index].dtype
        found = [(self.elements.of(x, (), dtype), x) for x in (loop.start, loop.stop, loop.step)]
        return [cast(text, self.elements.dtype(x, dtype), dtype) for text, x in found]

    def _for(self, loop: ir.For) -> None:
        dtype = self.types.variables[loop.index].dtype
        index, type = self.names.of(loop.index), TYPES[dtype.name]
        start, stop, step = self.loop_bounds(loop)
        forward = f"++{index}" if step.text == "1" else f"{index} += {step}"
        prefetch = LoopPrefetch(self, loop, stop.within(8))
        prefetch.begin()
        with self.loop_scope(loop):
            if _only_loads(loop):
                small = self.threads <= SMALL_BLOCK_THREADS
                self.out.add(f"#pragma unroll {LOADS_UNROLL_OF_SMALL_BLOCKS if small else LOADS_UNROLL}")
            with self.out.block(f"for ({type} {index} = {start}; {index} < {stop.within(8)}; {forward})"):
                with self.scope(loop.index):
                    prefetch.next()
                    self.block(loop.body)
                    prefetch.end()
                    self._separate_halves()

    def _if(self, condition: ir.Tile, then: Sequence[ir.Statement], otherwise: Sequence[ir.Statement]) -> None:
        state, before = self.memory.last, self.hazards.copy()
        with self.out.block(f"if ({self.elements.of(condition, (), bool_)})"):
            self.block(then)
        after, done = self.memory.last, self.hazards.copy()
        self.memory.last = state
        self.hazards.restore(before)
        if otherwise:
            with self.out.block("else"):
                self.block(otherwise)
        self.hazards.merge(done)
        self.memory.last = after if self.memory.last == after else None

    @contextmanager
    def loop_scope(self, statement: ir.Statement) -> Iterator[None]:
        """Prepare for a loop: its first iteration may follow its last one."""
        before, outer_first = self.memory.last, self.memory.first
        dirty = self.memory.large_in_use
        self.memory.first, self.memory.large_in_use = None, True
        with self.hazards.loop_scope(statement):
            yield
        first = self.memory.first
        self.memory.first = outer_first if outer_first is not None else first
        self.memory.last = before if first is None else (self.memory.last if before == self.memory.last else None)
        self.memory.large_in_use = dirty or self.memory.large_in_use

    def _separate_halves(self) -> None:
        """End an iteration: the next one must not write to shared memory that this one still reads."""
        if self.memory.first is not None and self.memory.first == self.memory.last:
            self.barrier()

    # --- what statements are written with --------------------------------------------------------

    def barrier(self) -> None:
        """Write a barrier."""
        self.out.add("__syncthreads();")
        self.hazards.note_barrier()

    def barrier_if(self, hazard: bool) -> None:
        """Write a barrier if there is a hazard; the guard has recorded it."""
        if hazard:
            self.out.add("__syncthreads();")

    def take_shared(self, bytes: int) -> str:
        """Allocate shared memory that no thread reads any more."""
        place, waits = self.memory.take(bytes)
        if waits:
            self.barrier()
        return place

    def shared_array(self, type: str, bytes: int) -> str:
        """Declare an array in shared memory, for values that threads combine."""
        name = self.names.fresh("parts_")
        self.out.add(f"{type}* {name} = reinterpret_cast<{type}*>({self.take_shared(bytes)});")
        return name

    def share_tiles(self, names: Sequence[str]) -> None:
        """Copy variables to shared memory until the next fused loop."""
        self.elements.shared_tiles = copy_tiles(self, names) if names else {}

    def bytes_of(self, type: str) -> int:
        return 16 if type.startswith("Place") else BYTES.get(type, 8)

    def register_type(self, t: TileType, name: str = "") -> str:
        """Return the element type of a variable in registers."""
        return f"{self._const(name)}{MEMORY[t.dtype.name]}*" if t.pointer else TYPES[t.dtype.name]

    def _const(self, name: str) -> str:
        """Return `const` for a pointer through which nothing is stored."""
        return "" if name in self.stored_parameters else "const "

    def is_positional(self, x: ir.Tile | None) -> bool:
        """Return whether an expression depends on positions and scalars only."""
        if x is None:
            return True
        return all(n in self.elements.inlined or not self.types.variables[n].shape for n in names_in(x))


def _only_loads(loop: ir.For) -> bool:
    """Return whether a loop only loads and computes, so that unrolled iterations overlap."""
    return any(isinstance(s, ir.Assign) and isinstance(s.value, ir.Load) for s in loop.body) and all(
        isinstance(s, ir.Assign) and not isinstance(s.value, ir.Reduce | ir.Scan | ir.Dot) for s in loop.body
    )


def _uses(body: Sequence[ir.Statement]) -> dict[str, list[int]]:
    """Return the identities of the statements that use each name."""
    uses: dict[str, list[int]] = {}
    for statement in statements(tuple(body)):
        for name in names_read(statement):
            uses.setdefault(name, []).append(id(statement))
    return uses
