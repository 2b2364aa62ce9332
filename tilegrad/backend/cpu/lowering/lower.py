"""From a tile kernel to LLVM IR.

An instance is one turn of the outermost loop. Statements are read into nodes (`nodes.py`), one straight stretch at a
time; what such a stretch must compute is planned (`roots.py`) and written as loop nests (`nests.py`). At loops and branches
variables become values that are carried on: numbers in registers, tiles in memory, and addresses or offsets that only move
by a number each turn as that number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ....errors import CompileError
from ....ir import tile as ir
from ....ir.dtype import DType, bool_, int32, int64
from ....ir.tile_checker import check
from .. import linear, vectors
from ..emit import I64, PTR, Builder, Type, Value, constant
from ..linear import Linear, term
from ..target import Target
from .elements import Elements, Frame, Slot
from .nests import Nests
from .nodes import Nodes, TileNode
from .placing import allocate
from .roots import Plan, Root

MOST_STACK = 4 << 20
"""Bytes of tiles that an instance may have: threads have 8 MiB of stack."""


def lower(kernel: ir.Kernel, target: Target) -> str:
    """The LLVM IR of a kernel: `void NAME(ptr arguments, i64 begin, i64 end)` runs instances begin to end - 1."""
    return _Lowering(kernel, target).text()


class _Lowering:
    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.b = Builder()
        for name in ("entry", "arguments", "begin", "end"):
            self.b.name(name)
        self.nodes = Nodes(check(kernel))
        stored = frozenset(_stored(kernel.body, {p.name for p in kernel.parameters if p.pointer}, {}))
        self.nodes.stores = dict.fromkeys(stored, 0)
        self.frame = Frame(self.b, target, {}, stored, self.b.allocate(64, "nowhere"))
        self.roots: list[Root] = []

    # The function.

    def text(self) -> str:
        b = self.b
        arguments = Value("%arguments", PTR)
        slots = [b.offset(arguments, "i64", constant(n, I64), "slot") for n in range(len(self.kernel.parameters) + 3)]
        for p, slot in zip(self.kernel.parameters, slots, strict=False):
            self._parameter(p, slot)
        grid = [b.instruction(f"load i64, ptr {slot}, align 8", I64, "grid") for slot in slots[-3:]]
        begin = Value("%begin", I64, negative=False)
        loop = b.open_loop("instance", begin, Value("%end", I64), constant(1, I64), guarded=True)
        self._programs(loop.index, grid)
        self._block(self.kernel.body, frozenset())
        b.close_loop(loop)
        if b.stack_bytes > MOST_STACK:
            raise CompileError(
                f"kernel {self.kernel.name}: its tiles take {b.stack_bytes} bytes of the stack, of {MOST_STACK} for "
                "them; take smaller tiles"
            )
        return self._function()

    def _function(self) -> str:
        b = self.b
        bits = self.target.vector_bytes * 8
        width = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        head = [f"; {line}" for line in [*self.kernel.origin.splitlines(), f"kernel {self.kernel.name}"]]
        signature = f"define void @{self.kernel.name}(ptr noalias %arguments, i64 %begin, i64 %end) #0 {{"
        body = [signature, "entry:", *b.allocations, *b.scopes[0].lines, "  ret void", "}"]
        return "\n".join([*head, *b.declarations.values(), *body, f"attributes #0 = {{ nounwind {width} }}", ""])

    def _parameter(self, p: ir.Parameter, slot: Value) -> None:
        b = self.b
        if p.pointer:
            pointer = b.instruction(f"load ptr, ptr {slot}, align 8", PTR, p.name)
            self.nodes.names[p.name] = self.nodes.make("pointer", (), pointer, dtype=p.dtype, pointer=p.name)
            return
        element = vectors.memory_element(p.dtype)
        value = vectors.from_memory(b, b.instruction(f"load {element}, ptr {slot}, align 8", Type(element), p.name), p.dtype)
        self.nodes.names[p.name] = self.nodes.scalar(value, p.dtype)

    def _programs(self, instance: Value, grid: Sequence[Value]) -> None:
        """The place of an instance in its grid: the first axis is the fastest."""
        b = self.b
        for g in grid:
            g.negative = False
        rest = b.op("udiv", instance, grid[0], "rest")
        places = (
            b.op("urem", instance, grid[0], "program"),
            b.op("urem", rest, grid[1], "program"),
            b.op("udiv", rest, grid[1], "program"),
        )
        for axis, (place, extent) in enumerate(zip(places, grid, strict=True)):
            place.negative = False
            self.nodes.names[f"ProgramId {axis}"] = self.nodes.scalar(term(place), int32)
            self.nodes.names[f"NumPrograms {axis}"] = self.nodes.scalar(term(extent), int32)

    # Straight stretches.

    def _block(self, body: Sequence[ir.Statement], later: frozenset[str], slots: Mapping[str, Slot] = {}) -> None:
        """Statements; `later` are the names that code after them may use, `slots` where some of these must be then."""
        after = [later]
        for statement in reversed(body):
            after.append(after[-1] | _used(statement))
        after.reverse()
        for n, statement in enumerate(body):
            match statement:
                case ir.Assign(name, value):
                    self.nodes.names[name] = self.nodes.of(value, self.nodes.types.variables[name].dtype)
                    if not self.nodes.types.variables[name].shape:
                        self._scalar(name)
                case ir.Store():
                    self._store(statement)
                case ir.For():
                    self._flush(after[n])
                    self._for(statement, after[n + 1])
                case ir.While():
                    self._flush(after[n])
                    self._while(statement, after[n + 1])
                case ir.If():
                    self._flush(after[n])
                    self._if(statement, after[n + 1])
        for name, slot in slots.items():
            self._update(name, slot)
        self._flush(later)

    def _scalar(self, name: str) -> None:
        """A number that is loaded is loaded now, if its memory changes."""
        node = self.nodes.names[name]
        if node.kind == "load" and node.data[1] >= 0:
            self.roots.append(Root("keep", node))

    def _store(self, store: ir.Store) -> None:
        pointer = self.nodes.of(store.pointer)
        value = self.nodes.of(store.value, pointer.dtype)
        mask = None if store.mask is None else self.nodes.of(store.mask, bool_)
        count = self.nodes.stores[pointer.pointer]
        self.roots.append(Root("store", value, pointer=pointer, mask=mask, target=pointer.pointer, count=count))
        self.nodes.stores[pointer.pointer] = count + 1

    def _flush(self, live: Iterable[str]) -> None:
        """Writes what has been collected; `live` are the names that are used later."""
        names = [self.nodes.names[name] for name in sorted(live) if name in self.nodes.names]
        if not self.roots and not any(_pending(node, self.frame) for node in names):
            return
        plan = Plan(self.roots, self.frame.results, names)
        self.roots = []
        Nests(self.frame, plan).write()

    # Variables that are carried on.

    def _carried(self, body: Sequence[ir.Statement]) -> list[str]:
        """The names known here that a block assigns."""
        return [name for name in dict.fromkeys(_assigned(body)) if name in self.nodes.names]

    def _read(self, name: str) -> Value:
        """A number (or address) in a register, as it is now."""
        node = self.nodes.names[name]
        elements = Elements(self.frame, 0)
        if node.pointer:
            where = elements.at(node, ())
            element = vectors.memory_element(node.dtype)
            at: Value = linear.address(self.b, where.pointer, element, where.offset)
            return at if where.scattered is None else self.b.offset(at, element, where.scattered)
        return elements.value(node, ())

    def _bind(self, name: str, value: Value, like: TileNode) -> None:
        """A name gets a value in a register."""
        if like.pointer:
            made = self.nodes.make("pointer", (), value, dtype=like.dtype, pointer=like.pointer)
        else:
            made = self.nodes.scalar(value, like.dtype)
        self.nodes.names[name] = made

    def _slot_node(self, name: str, slot: Slot, shape: tuple[int, ...]) -> TileNode:
        count = self.nodes.stores.setdefault(f"tile {name} {slot.pointer}", 0)
        data = (slot, count, f"tile {name} {slot.pointer}")
        return self.nodes.make("slot", (), data, dtype=slot.dtype, shape=shape)

    def _update(self, name: str, slot: Slot) -> None:
        """A variable in memory takes its new value."""
        node = self.nodes.names[name]
        if node.kind == "slot" and node.data[0] is slot:
            return
        key = f"tile {name} {slot.pointer}"
        count = self.nodes.stores.setdefault(key, 0)
        self.roots.append(Root("update", node, slot=slot, target=key, count=count))
        self.nodes.stores[key] = count + 1
        self.nodes.names[name] = self._slot_node(name, slot, node.shape)

    def _into_slots(self, names: Sequence[str]) -> dict[str, Slot]:
        """Puts tile variables in memory."""
        slots = {}
        for name in names:
            node = self.nodes.names[name]
            if node.pointer:
                raise CompileError(
                    f"kernel {self.kernel.name}: `{name}` is a tile of pointers that changes in a loop other than by "
                    "adding a number: carry the offset instead"
                )
            if node.kind == "slot":
                slots[name] = node.data[0]
            else:
                slots[name] = allocate(self.frame, node.dtype, node.shape, name)
                self._update(name, slots[name])
        return slots

    def _moving(self, name: str, body: Sequence[ir.Statement]) -> ir.Tile | None:
        """By what a tile of integers or pointers moves each turn, if that is all that happens to it."""
        found = self.nodes.types.variables[name]
        inner = list(_assigned(body))
        if not (found.pointer or found.dtype in (int32, int64)) or inner.count(name) != 1:
            return None
        for statement in body:
            match statement:
                case ir.Assign(target, ir.Apply("add", (ir.Name(source), step))) if target == source == name:
                    kind = None if isinstance(step, ir.Literal) else self.nodes.types.of(step)
                    if kind is None or (not kind.shape and kind.dtype in (int32, int64)):
                        return step
        return None

    # Loops and branches.

    def _for(self, loop: ir.For, later: frozenset[str]) -> None:
        dtype = self.nodes.types.variables[loop.index].dtype
        bounds = [linear.scalar(self.b, self._integer(x, dtype)) for x in (loop.start, loop.stop, loop.step)]
        names = self._carried(loop.body)
        scalars = [n for n in names if not self.nodes.types.variables[n].shape]
        moving = [n for n in names if n not in scalars and self._moving(n, loop.body) is not None]
        slots = self._into_slots([n for n in names if n not in scalars and n not in moving])
        live = later | _used(loop)
        self._flush(live)
        like = {n: self.nodes.names[n] for n in scalars}
        bases = {n: self.nodes.names[n] for n in moving}
        carried = [(n, self._read(n)) for n in scalars] + [(f"{n}.moved", constant(0, I64)) for n in moving]
        before = self._enter()
        opened = self.b.open_loop(loop.index, bounds[0], bounds[1], bounds[2], carried, guarded=True, pinned=True)
        self.nodes.names[loop.index] = self.nodes.scalar(term(opened.index), dtype)
        values = dict(zip([*scalars, *moving], opened.carried, strict=True))
        for n in scalars:
            self._bind(n, values[n], like[n])
        for n in moving:
            self.nodes.names[n] = self._moved(bases[n], term(values[n]))
        for n in slots:
            self.nodes.names[n] = self._slot_node(n, slots[n], self.nodes.names[n].shape)
        self._block(loop.body, live.union(scalars, moving), slots)
        following = [self._read(n) for n in scalars]
        for n in moving:
            step = self._moving(n, loop.body)
            assert step is not None
            following.append(linear.scalar(self.b, linear.add(self.b, term(values[n]), self._integer(step, int64))))
        finals = dict(zip([*scalars, *moving], self.b.close_loop(opened, following), strict=True))
        self._leave(before, slots)
        for n in scalars:
            self._bind(n, finals[n], like[n])
        for n in moving:
            self.nodes.names[n] = self._moved(bases[n], term(finals[n]))

    def _moved(self, base: TileNode, by: Linear) -> TileNode:
        step = self.nodes.scalar(by, int64)
        if base.pointer:
            return self.nodes.make(
                "forward", (base, step), None, dtype=base.dtype, shape=base.shape, pointer=base.pointer
            )
        step = self.nodes.scalar(by, base.dtype)
        return self.nodes.make("apply", (base, step), "add", dtype=base.dtype, shape=base.shape)

    def _integer(self, x: ir.Tile, dtype: DType) -> Linear:
        node = self.nodes.of(x, dtype)
        found = Elements(self.frame, 0).linear(node, ())
        assert found is not None
        return found

    def _enter(self) -> tuple[dict[str, TileNode], dict[TileNode, object]]:
        return dict(self.nodes.names), dict(self.frame.results)

    def _leave(self, before: tuple[dict[str, TileNode], dict[TileNode, object]], slots: dict[str, Slot]) -> None:
        """Forgets what was known only inside; variables in memory have changed."""
        shapes = {n: self.nodes.names[n].shape for n in slots}
        self.nodes.names = before[0]
        self.frame.results.clear()
        self.frame.results.update(before[1])  # type: ignore[arg-type]
        for name, slot in slots.items():
            self.nodes.names[name] = self._slot_node(name, slot, shapes[name])

    def _while(self, loop: ir.While, later: frozenset[str]) -> None:
        names = self._carried(loop.body)
        scalars = [n for n in names if not self.nodes.types.variables[n].shape]
        slots = self._into_slots([n for n in names if n not in scalars])
        live = later | _used(loop)
        self._flush(live)
        like = {n: self.nodes.names[n] for n in scalars}
        initial = [(n, self._read(n)) for n in scalars]
        before = self._enter()
        label, carried = self.b.open_while(initial)
        for n, value in zip(scalars, carried, strict=True):
            self._bind(n, value, like[n])
        for n in slots:
            self.nodes.names[n] = self._slot_node(n, slots[n], self.nodes.names[n].shape)
        self.nodes.names["while condition"] = self.nodes.of(loop.condition, bool_)
        self._flush([*live, "while condition"])
        self.b.enter_while(Elements(self.frame, 0).value(self.nodes.names.pop("while condition"), ()))
        self._block(loop.body, live.union(scalars), slots)
        following = [self._read(n) for n in scalars]
        finals = self.b.close_while(label, carried, [x for _, x in initial], following)
        self._leave(before, slots)
        for n, value in zip(scalars, finals, strict=True):
            self._bind(n, value, like[n])

    def _if(self, branch: ir.If, later: frozenset[str]) -> None:
        names = [n for n in self._carried([*branch.body, *branch.otherwise])]
        scalars = [n for n in names if not self.nodes.types.variables[n].shape]
        slots = self._into_slots([n for n in names if n not in scalars])
        self.nodes.names["if condition"] = self.nodes.of(branch.condition, bool_)
        self._flush([*(later | _used(branch)), "if condition"])
        condition = Elements(self.frame, 0).value(self.nodes.names.pop("if condition"), ())
        like = {n: self.nodes.names[n] for n in scalars}
        scopes, values = [], []
        for hint, body in (("then", branch.body), ("else", branch.otherwise)):
            before = self._enter()
            self.b.open_branch(hint)
            self._block(body, later.union(scalars), slots)
            values.append([self._read(n) for n in scalars])
            scopes.append(self.b.close_branch())
            self._leave(before, slots)
        merged = self.b.close_branches(condition, scopes[0], scopes[1], list(zip(*values, strict=True)))
        for n, value in zip(scalars, merged, strict=True):
            self._bind(n, value, like[n])


def _pending(node: TileNode, frame: Frame) -> bool:
    """Whether a node needs a nest, or memory that may change, before it can be read later."""
    stack, seen = [node], {node}
    while stack:
        x = stack.pop()
        if x in frame.results:
            continue
        if x.kind in ("reduce", "scan", "dot"):
            return True
        for a in x.args:
            if a not in seen:
                seen.add(a)
                stack.append(a)
    return False


def _statements(body: Iterable[ir.Statement]) -> Iterator[ir.Statement]:
    for statement in body:
        yield statement
        match statement:
            case ir.For(_, _, _, _, inner) | ir.While(_, inner):
                yield from _statements(inner)
            case ir.If(_, then, otherwise):
                yield from _statements(then)
                yield from _statements(otherwise)


def _assigned(body: Iterable[ir.Statement]) -> Iterator[str]:
    for statement in _statements(body):
        if isinstance(statement, ir.Assign):
            yield statement.name


def _names_in(x: ir.Tile) -> Iterator[str]:
    stack, seen = [x], set()
    while stack:
        x = stack.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, ir.Name):
            yield x.name
        stack.extend(ir.parts(x))


def _tiles(statement: ir.Statement) -> tuple[ir.Tile, ...]:
    match statement:
        case ir.Assign(_, value):
            return (value,)
        case ir.Store(pointer, value, mask):
            return (pointer, value) if mask is None else (pointer, value, mask)
        case ir.For(_, start, stop, step, _):
            return start, stop, step
        case ir.While(condition, _) | ir.If(condition, _, _):
            return (condition,)
    raise AssertionError(statement)


def _used(statement: ir.Statement) -> frozenset[str]:
    """The names that a statement and those in it use."""
    return frozenset(name for s in _statements((statement,)) for x in _tiles(s) for name in _names_in(x))


def _stored(body: Sequence[ir.Statement], pointers: set[str], sources: dict[str, set[str]]) -> Iterator[str]:
    """The parameters whose memory a kernel changes; through variables too."""
    for statement in _statements(body):
        if isinstance(statement, ir.Assign):
            found = {n for n in _names_in(statement.value)}
            sources.setdefault(statement.name, set()).update(found)
    for statement in _statements(body):
        if isinstance(statement, ir.Store):
            stack, seen = list(_names_in(statement.pointer)), set()
            while stack:
                name = stack.pop()
                if name in seen:
                    continue
                seen.add(name)
                if name in pointers:
                    yield name
                stack.extend(sources.get(name, ()))


