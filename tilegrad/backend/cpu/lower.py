"""Tile kernels to LLVM IR, statement by statement: each tile variable is a buffer on the stack."""

from __future__ import annotations

from typing import Any

from ...errors import CompileError
from ...ir import tile as ir
from ...ir.dtype import DType, bool_, float32, float64, bfloat16, float16, int32, int64
from ...ir.functions import identity
from ...ir.tile_checker import check
from ...ir.tile_types import literal_dtype
from . import vectors
from .emit import I1, I32, I64, PTR, Builder, Type, Value, constant, dtype_constant, element_type, lane_constants
from .target import Target


def lower(kernel: ir.Kernel, target: Target) -> str:
    return _Plain(kernel, target).text()


LOOPS = (ir.Reduce, ir.Scan, ir.Dot, ir.Reshape)


class _Plain:
    def __init__(self, kernel: ir.Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.types = check(kernel)
        self.b = Builder()
        self.b._names.update(dict.fromkeys(("entry", "begin", "end", "arguments"), 1))
        self.slots: dict[str, tuple[Value, DType, tuple[int, ...], bool]] = {}
        self.lazy: dict[str, ir.Tile] = {}
        self.made: dict[int, tuple[Any, ...]] = {}
        self.counts: dict[str, int] = {}
        self.loops: set[str] = set()
        self._count(kernel.body)
        self.parameters: dict[str, Value] = {}

    def _count(self, body: Any) -> None:
        for s in body:
            match s:
                case ir.Assign(name, _):
                    self.counts[name] = self.counts.get(name, 0) + 1
                case ir.For(index, _, _, _, inner):
                    self.loops.add(index)
                    self._count(inner)
                case ir.While(_, inner):
                    self._count(inner)
                case ir.If(_, inner, other):
                    self._count(inner)
                    self._count(other)

    def text(self) -> str:
        b = self.b
        arguments = Value("%arguments", PTR, 0)
        for n, p in enumerate(self.kernel.parameters):
            at = b.offset(arguments, "i64", constant(n, I64), "slot")
            if p.pointer:
                self.parameters[p.name] = b.instruction(f"load ptr, ptr {at}, align 8", PTR, p.name)
            else:
                element = vectors.memory_element(p.dtype)
                raw = b.instruction(f"load {element}, ptr {at}, align 8", Type(element), p.name)
                self._slot(p.name, p.dtype, (), False)
                self._set(p.name, vectors.from_memory(b, raw, p.dtype))
        count = len(self.kernel.parameters)
        grid = [
            b.instruction(f"load i64, ptr {b.offset(arguments, 'i64', constant(count + n, I64), 'slot')}, align 8", I64, f"grid{n}")
            for n in range(3)
        ]
        self.grid = [b.convert("trunc", g, "i32") for g in grid]
        begin, end = Value("%begin", I64, 0), Value("%end", I64, 0)
        loop = b.open_loop("instance", begin, end, constant(1, I64), guarded=True, pinned=True)
        x = b.op("urem", loop.index, grid[0])
        rest = b.op("udiv", loop.index, grid[0])
        y, z = b.op("urem", rest, grid[1]), b.op("udiv", rest, grid[1])
        self.ids = [b.convert("trunc", v, "i32") for v in (x, y, z)]
        self.body(self.kernel.body)
        b.close_loop(loop)
        declarations = "\n".join(b.declarations.values())
        lines = [*b.allocations, *b.scopes[0].lines]
        head = f"define void @{self.kernel.name}(ptr noalias %arguments, i64 %begin, i64 %end) #0 {{\nentry:"
        if b.stack_bytes > 4 << 20:
            raise CompileError(f"kernel {self.kernel.name}: its tiles take {b.stack_bytes} bytes; take smaller tiles")
        bits = self.target.vector_bytes * 8
        attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" }}'
        return "\n".join([declarations, head, *lines, "  ret void", "}", attributes, ""])

    # variables

    def _slot(self, name: str, dtype: DType, shape: tuple[int, ...], pointer: bool) -> None:
        if name in self.slots:
            return
        n = 1
        for s in shape:
            n *= s
        size = 8 if pointer else max(1, dtype.bytes)
        self.slots[name] = (self.b.allocate(n * size + 64, name), dtype, shape, pointer)

    def _element(self, dtype: DType, pointer: bool) -> str:
        return "ptr" if pointer else vectors.memory_element(dtype)

    def _set(self, name: str, value: Value) -> None:
        where, dtype, _, pointer = self.slots[name]
        self._store(where, value, dtype, pointer)

    def _store(self, at: Value, value: Value, dtype: DType, pointer: bool = False) -> None:
        raw = value if pointer else vectors.to_memory(self.b, value, dtype)
        size = 8 if pointer else dtype.bytes
        self.b.effect(f"store {raw.type} {raw}, ptr {at}, align {size}")

    def _load(self, at: Value, dtype: DType, lanes: int, pointer: bool = False) -> Value:
        type = Type(self._element(dtype, pointer), lanes)
        raw = self.b.instruction(f"load {type}, ptr {at}, align {8 if pointer else dtype.bytes}", type)
        return raw if pointer else vectors.from_memory(self.b, raw, dtype)

    # statements

    def body(self, body: Any) -> None:
        for s in body:
            self.made = {}
            self.keep: list[Any] = []
            match s:
                case ir.Assign(name, value):
                    self.assign(name, value)
                case ir.Store(pointer, value, mask):
                    self.store(pointer, value, mask)
                case ir.For(index, start, stop, step, inner):
                    self.loop(index, start, stop, step, inner)
                case ir.While(condition, inner):
                    self.loop_while(condition, inner)
                case ir.If(condition, then, other):
                    self.branch(condition, then, other)

    def assign(self, name: str, value: ir.Tile) -> None:
        t = self.types.variables[name]
        if self.counts[name] == 1 and t.shape and self._is_lazy(value):
            self.lazy[name] = value
            return
        self._slot(name, t.dtype, t.shape, t.pointer)
        self.prepare(value)
        where = self.slots[name][0]
        if t.shape and self._mentions(value, name) and not self._elementwise_in(value, name):
            n = 1
            for s in t.shape:
                n *= s
            copy = self.b.allocate(n * (8 if t.pointer else t.dtype.bytes) + 64, name + "_new")
            self.fill(copy, value, t.dtype, t.shape, t.pointer)
            self.copy(where, copy, t.dtype, t.shape, t.pointer)
        else:
            self.fill(where, value, t.dtype, t.shape, t.pointer)

    def _is_lazy(self, x: ir.Tile) -> bool:
        match x:
            case ir.Load() | ir.Reduce() | ir.Scan() | ir.Dot() | ir.Reshape():
                return False
            case ir.Name(name):
                return name in self.lazy or name in self.loops or name in self.parameters or self.counts.get(name, 0) <= 1
        t = self.types.of(x) if not isinstance(x, ir.Literal) else None
        if t is not None and t.dtype.is_float and not t.pointer and not isinstance(x, ir.Cast | ir.Full | ir.Expand | ir.BroadcastTo):
            return False
        if t is not None and t.dtype.is_float and not t.pointer:
            return False
        return all(self._is_lazy(c) for c in ir.parts(x))

    def _mentions(self, x: ir.Tile, name: str) -> bool:
        return (isinstance(x, ir.Name) and x.name == name) or any(self._mentions(c, name) for c in ir.parts(x))

    def _elementwise_in(self, x: ir.Tile, name: str) -> bool:
        match x:
            case ir.Name():
                return True
            case ir.Apply() | ir.Cast():
                return all(self._elementwise_in(c, name) for c in ir.parts(x))
            case ir.Dot(y, z, _):
                return True
        return not self._mentions(x, name)

    def fill(self, where: Value, value: ir.Tile, dtype: DType, shape: tuple[int, ...], pointer: bool = False) -> None:
        element = self._element(dtype, pointer)

        def write(at: list[Value], lanes: int) -> None:
            v = self.ev(value, at, lanes, dtype)
            v = self.b.splat(v, lanes)
            self._store(self.b.offset(where, element, self.linear(at, shape)), v, dtype, pointer)

        self.nest(shape, write, dtype)

    def copy(self, where: Value, source: Value, dtype: DType, shape: tuple[int, ...], pointer: bool) -> None:
        element = self._element(dtype, pointer)

        def write(at: list[Value], lanes: int) -> None:
            n = self.linear(at, shape)
            v = self._load(self.b.offset(source, element, n), dtype, lanes, pointer)
            self._store(self.b.offset(where, element, n), v, dtype, pointer)

        self.nest(shape, write, dtype)

    def linear(self, at: list[Value], shape: tuple[int, ...]) -> Value:
        b = self.b
        n = constant(0, I64)
        for i, e in zip(at, shape, strict=True):
            n = b.op("add", b.op("mul", n, constant(e, I64)), i) if n.text != "0" else i
        return n

    def nest(self, shape: tuple[int, ...], write: Any, dtype: DType, vector: bool = True) -> None:
        """Loops over a shape, vectors along the last axis."""
        b = self.b
        if not shape:
            write([], 0)
            return
        if any(e == 0 for e in shape):
            return
        loops, at = [], []
        for e in shape[:-1]:
            loop = b.open_loop("r", constant(0, I64), constant(e, I64), constant(1, I64), guarded=False, pinned=True)
            loops.append(loop)
            at.append(loop.index)
        width = self.target.lanes(max(4, dtype.bytes)) if vector else 0
        full = shape[-1] // width * width if width else 0
        if full:
            loop = b.open_loop("c", constant(0, I64), constant(full, I64), constant(width, I64), guarded=False, pinned=True)
            write([*at, loop.index], width)
            b.close_loop(loop)
        if shape[-1] > full:
            loop = b.open_loop("t", constant(full, I64), constant(shape[-1], I64), constant(1, I64), guarded=False, pinned=True)
            write([*at, loop.index], 0)
            b.close_loop(loop)
        for loop in reversed(loops):
            b.close_loop(loop)

    def store(self, pointer: ir.Tile, value: ir.Tile, mask: ir.Tile | None) -> None:
        t = self.types.of(pointer)
        for x in (pointer, value, mask):
            if x is not None:
                self.prepare(x)
        b = self.b
        stride = self.stride(pointer) if t.shape else 0

        def write(at: list[Value], lanes: int) -> None:
            v = b.splat(self.ev(value, self.aligned(at, t.shape, value), lanes if self._last(value, t.shape) else 0, t.dtype), lanes)
            m = None
            if mask is not None:
                m = b.splat(self.ev(mask, self.aligned(at, t.shape, mask), lanes if self._last(mask, t.shape) else 0, bool_), lanes)
            raw = vectors.to_memory(b, v, t.dtype)
            if lanes and stride == 1:
                p = self.ev(pointer, at, 0, t.dtype)
                self._masked_store(p, raw, m, t.dtype)
            elif lanes:
                p = self.ev(pointer, at, lanes, t.dtype)
                self._scatter(p, raw, m, t.dtype, lanes)
            else:
                p = self.ev(pointer, at, 0, t.dtype)
                if m is None:
                    b.effect(f"store {raw.type} {raw}, ptr {p}, align {t.dtype.bytes}")
                else:
                    b.open_branch("do")
                    b.effect(f"store {raw.type} {raw}, ptr {p}, align {t.dtype.bytes}")
                    then = b.close_branch()
                    b.open_branch("skip")
                    b.close_branches(m, then, b.close_branch())

        self.nest(t.shape, write, t.dtype)

    def _masked_store(self, p: Value, raw: Value, m: Value | None, dtype: DType) -> None:
        b = self.b
        if m is None:
            b.effect(f"store {raw.type} {raw}, ptr {p}, align {dtype.bytes}")
            return
        name = f"llvm.masked.store.{raw.type.short}.p0"
        b.declarations.setdefault(name, f"declare void @{name}({raw.type}, ptr, i32, {m.type})")
        b.effect(f"call void @{name}({raw.type} {raw}, ptr {p}, i32 {dtype.bytes}, {m.type} {m})")

    def _scatter(self, p: Value, raw: Value, m: Value | None, dtype: DType, lanes: int) -> None:
        b = self.b
        p = b.splat(p, lanes)
        m = constant(True, Type("i1", lanes)) if m is None else m
        name = f"llvm.masked.scatter.{raw.type.short}.{p.type.short}"
        b.declarations.setdefault(name, f"declare void @{name}({raw.type}, {p.type}, i32, {m.type})")
        b.effect(f"call void @{name}({raw.type} {raw}, {p.type} {p}, i32 {dtype.bytes}, {m.type} {m})")

    def loop(self, index: str, start: ir.Tile, stop: ir.Tile, step: ir.Tile, inner: Any) -> None:
        b = self.b
        t = self.types.variables[index]
        for x in (start, stop, step):
            self.prepare(x)
        first, last, by = (self._integer(x, t.dtype) for x in (start, stop, step))
        self._slot(index, t.dtype, (), False)
        loop = b.open_loop(index, first, last, by, guarded=True, pinned=True)
        self._set(index, loop.index)
        self.body(inner)
        b.close_loop(loop)

    def _integer(self, x: ir.Tile, dtype: DType) -> Value:
        have = dtype if isinstance(x, ir.Literal) else self.types.of(x).dtype
        return vectors.cast(self.b, self.ev(x, [], 0, have), have, dtype)

    def loop_while(self, condition: ir.Tile, inner: Any) -> None:
        b = self.b
        label, _ = b.open_while([])
        self.prepare(condition)
        b.enter_while(self.ev(condition, [], 0, bool_))
        self.body(inner)
        b.close_while(label, (), (), ())

    def branch(self, condition: ir.Tile, then: Any, other: Any) -> None:
        b = self.b
        self.prepare(condition)
        c = self.ev(condition, [], 0, bool_)
        b.open_branch("then")
        self.body(then)
        first = b.close_branch()
        b.open_branch("else")
        self.body(other)
        b.close_branches(c, first, b.close_branch())

    # what needs a loop of its own

    def prepare(self, x: ir.Tile) -> None:
        if isinstance(x, ir.Name) and x.name in self.lazy:
            self.prepare(self.lazy[x.name])
            return
        for c in ir.parts(x):
            self.prepare(c)
        if isinstance(x, LOOPS) and id(x) not in self.made:
            self.keep.append(x)
            t = self.types.of(x)
            n = 1
            for s in t.shape:
                n *= s
            where = self.b.allocate(n * t.dtype.bytes + 64, type(x).__name__.lower())
            match x:
                case ir.Reduce(fn, y, axis):
                    self.reduce(where, fn, y, axis, t)
                case ir.Scan(fn, y, axis):
                    self.scan(where, fn, y, axis, t)
                case ir.Dot(y, z, accumulator):
                    self.dot(where, y, z, accumulator, t)
                case ir.Reshape(y, _):
                    self.fill(where, y, t.dtype, self.types.of(y).shape)
            self.made[id(x)] = (where, t.dtype, t.shape)

    def reduce(self, where: Value, fn: str, y: ir.Tile, axis: int, t: Any) -> None:
        b = self.b
        source = self.types.of(y)
        shape, dtype = source.shape, source.dtype
        wide = float32 if dtype in (float16, bfloat16) else dtype
        if fn.startswith("arg"):
            self._arg(where, fn, y, axis, t, source)
            return
        last = axis == len(shape) - 1
        lanes = self.target.lanes(max(4, wide.bytes))
        out = self.b.allocate(max(1, _product(t.shape)) * wide.bytes + 64, "wide") if wide is not dtype else where
        element = vectors.memory_element(wide)
        first = identity(fn, wide)
        if last:
            full = shape[-1] // lanes * lanes

            def row(at: list[Value], _: int) -> None:
                total = dtype_constant(first, wide)
                if full:
                    many = dtype_constant(first, wide, lanes)
                    loop = b.open_loop("k", constant(0, I64), constant(full, I64), constant(lanes, I64), [("acc", many)], guarded=False, pinned=True)
                    v = vectors.cast(b, b.splat(self.ev(y, [*at, loop.index], lanes, dtype), lanes), dtype, wide)
                    (many,) = b.close_loop(loop, [vectors.apply(b, fn, wide, (loop.carried[0], v))])
                    for n in range(lanes):
                        total = vectors.apply(b, fn, wide, (total, b.extract(many, n)))
                if full < shape[-1]:
                    loop = b.open_loop("k", constant(full, I64), constant(shape[-1], I64), constant(1, I64), [("acc", total)], guarded=False, pinned=True)
                    v = vectors.cast(b, self.ev(y, [*at, loop.index], 0, dtype), dtype, wide)
                    (total,) = b.close_loop(loop, [vectors.apply(b, fn, wide, (loop.carried[0], v))])
                self._store(b.offset(out, element, self.linear(at, t.shape)), total, wide)

            self.nest(t.shape, row, wide, vector=False)
        else:

            def column(at: list[Value], width: int) -> None:
                start = dtype_constant(first, wide, width)
                loop = b.open_loop("k", constant(0, I64), constant(shape[axis], I64), constant(1, I64), [("acc", start)], guarded=False, pinned=True)
                inner = [*at[:axis], loop.index, *at[axis:]]
                v = vectors.cast(b, b.splat(self.ev(y, inner, width, dtype), width), dtype, wide)
                (total,) = b.close_loop(loop, [vectors.apply(b, fn, wide, (loop.carried[0], v))])
                self._store(b.offset(out, element, self.linear(at, t.shape)), total, wide)

            self.nest(t.shape, column, wide)
        if wide is not dtype:

            def narrow(at: list[Value], width: int) -> None:
                n = self.linear(at, t.shape)
                v = vectors.cast(b, self._load(b.offset(out, element, n), wide, width), wide, dtype)
                self._store(b.offset(where, vectors.memory_element(dtype), n), v, dtype)

            self.nest(t.shape, narrow, wide)

    def _arg(self, where: Value, fn: str, y: ir.Tile, axis: int, t: Any, source: Any) -> None:
        b = self.b
        dtype = source.dtype

        def one(at: list[Value], _: int) -> None:
            zero = constant(0, I64)
            best = self.ev(y, [*at[:axis], zero, *at[axis:]], 0, dtype)
            loop = b.open_loop("k", constant(0, I64), constant(source.shape[axis], I64), constant(1, I64), [("best", best), ("place", zero)], guarded=False, pinned=True)
            v = self.ev(y, [*at[:axis], loop.index, *at[axis:]], 0, dtype)
            old, place = loop.carried
            better = vectors.apply(b, "gt" if fn == "argmax" else "lt", dtype, (v, old))
            if dtype.is_float:
                nan = vectors.apply(b, "isnan", dtype, (v,))
                known = vectors.apply(b, "isnan", dtype, (old,))
                better = b.op("or", better, b.op("and", nan, b.op("xor", known, constant(True, I1))))
                better = b.op("and", better, b.op("xor", known, constant(True, I1)))
            _, found = b.close_loop(loop, [b.select(better, v, old), b.select(better, loop.index, place)])
            self._store(b.offset(where, "i32", self.linear(at, t.shape)), b.convert("trunc", found, "i32"), int32)

        self.nest(t.shape, one, dtype, vector=False)

    def scan(self, where: Value, fn: str, y: ir.Tile, axis: int, t: Any) -> None:
        b = self.b
        dtype = t.dtype
        wide = float32 if dtype in (float16, bfloat16) else dtype
        outer = (*t.shape[:axis], *t.shape[axis + 1 :])

        def line(at: list[Value], _: int) -> None:
            loop = b.open_loop("k", constant(0, I64), constant(t.shape[axis], I64), constant(1, I64), [("acc", dtype_constant(identity(fn, wide), wide))], guarded=False, pinned=True)
            here = [*at[:axis], loop.index, *at[axis:]]
            v = vectors.cast(b, self.ev(y, here, 0, dtype), dtype, wide)
            total = vectors.apply(b, fn, wide, (loop.carried[0], v))
            self._store(b.offset(where, vectors.memory_element(dtype), self.linear(here, t.shape)), vectors.cast(b, total, wide, dtype), dtype)
            b.close_loop(loop, [total])

        self.nest(outer, line, dtype, vector=False)

    def dot(self, where: Value, y: ir.Tile, z: ir.Tile, accumulator: ir.Tile | None, t: Any) -> None:
        b = self.b
        a, c = self.types.of(y), self.types.of(z)
        (m, k), n = a.shape, c.shape[1]
        dtype = t.dtype
        left, right = b.allocate(m * k * dtype.bytes + 64, "left"), b.allocate(k * n * dtype.bytes + 64, "right")
        self.fill(left, ir.Cast(y, dtype) if a.dtype is not dtype else y, dtype, (m, k))
        self.fill(right, ir.Cast(z, dtype) if c.dtype is not dtype else z, dtype, (k, n))
        element = vectors.memory_element(dtype)
        if accumulator is not None:
            self.fill(where, accumulator, dtype, (m, n))
        else:
            self.fill(where, ir.Literal(0.0 if dtype.is_float else 0), dtype, (m, n))

        def rows(i: Value, count: int, j: Value, lanes: int) -> None:
            starts = []
            for r in range(count):
                row = b.op("add", i, constant(r, I64))
                starts.append(self._load(b.offset(where, element, self.linear([row, j], (m, n))), dtype, lanes))
            loop = b.open_loop("k", constant(0, I64), constant(k, I64), constant(1, I64), [(f"acc{r}", s) for r, s in enumerate(starts)], guarded=False, pinned=True)
            w = self._load(b.offset(right, element, self.linear([loop.index, j], (k, n))), dtype, lanes)
            sums = []
            for r in range(count):
                row = b.op("add", i, constant(r, I64))
                x = b.splat(self._load(b.offset(left, element, self.linear([row, loop.index], (m, k))), dtype, 0), lanes)
                if dtype.is_float:
                    sums.append(b.intrinsic("fma", x, w, loop.carried[r]))
                else:
                    sums.append(b.op("add", b.op("mul", x, w), loop.carried[r]))
            sums = list(b.close_loop(loop, sums))
            for r in range(count):
                row = b.op("add", i, constant(r, I64))
                self._store(b.offset(where, element, self.linear([row, j], (m, n))), sums[r], dtype)

        lanes = self.target.lanes(dtype.bytes)
        block = 8
        for first, last, count in ((0, m // block * block, block), (m // block * block, m, 1)):
            if first == last:
                continue
            outer = b.open_loop("m", constant(first, I64), constant(last, I64), constant(count, I64), guarded=False, pinned=True)
            full = n // lanes * lanes
            if full:
                inner = b.open_loop("n", constant(0, I64), constant(full, I64), constant(lanes, I64), guarded=False, pinned=True)
                rows(outer.index, count, inner.index, lanes)
                b.close_loop(inner)
            if full < n:
                inner = b.open_loop("n", constant(full, I64), constant(n, I64), constant(1, I64), guarded=False, pinned=True)
                rows(outer.index, count, inner.index, 0)
                b.close_loop(inner)
            b.close_loop(outer)

    # expressions

    def aligned(self, at: list[Value], shape: tuple[int, ...], x: ir.Tile) -> list[Value]:
        own = () if isinstance(x, ir.Literal) else self.types.of(x).shape
        at = at[len(at) - len(own) :] if own else []
        whole = shape[len(shape) - len(own) :] if own else ()
        return [constant(0, I64) if e == 1 and w != 1 else i for i, e, w in zip(at, own, whole, strict=True)]

    def _last(self, x: ir.Tile, shape: tuple[int, ...]) -> bool:
        own = () if isinstance(x, ir.Literal) else self.types.of(x).shape
        return bool(own) and (own[-1] == shape[-1])

    def ev(self, x: ir.Tile, at: list[Value], lanes: int, dtype: DType) -> Value:
        """The element(s) of an expression: `lanes` of them along the last axis, or one."""
        b = self.b
        if isinstance(x, ir.Literal):
            return dtype_constant(x.value, dtype, 0)
        found = self.made.get(id(x))
        if found is not None:
            where, kind, shape = found
            if not shape:
                return self._load(where, kind, 0)
            return self._load(b.offset(where, vectors.memory_element(kind), self.linear(at, shape)), kind, lanes)
        t = self.types.of(x)
        match x:
            case ir.Name(name):
                return self._name(name, at, lanes, t)
            case ir.ProgramId(axis):
                return self.ids[axis]
            case ir.NumPrograms(axis):
                return self.grid[axis]
            case ir.Arange(start, _):
                first = b.op("add", b.convert("trunc", at[-1], "i32"), constant(start, I32))
                if not lanes:
                    return first
                return b.op("add", b.splat(first, lanes), lane_constants(range(lanes), "i32"))
            case ir.Load(pointer, mask, other):
                return self._read(x, pointer, mask, other, at, lanes, t)
            case ir.Cast(y, target):
                have = literal_dtype(y) if isinstance(y, ir.Literal) else self.types.of(y).dtype
                return vectors.cast(b, self.ev(y, at, lanes, have), have, target)
            case ir.Bitcast(y, target):
                return vectors.bitcast(b, self.ev(y, at, lanes, self.types.of(y).dtype), target)
            case ir.Full(_, value, kind):
                have = kind if isinstance(value, ir.Literal) else self.types.of(value).dtype
                return vectors.cast(b, self.ev(value, [], 0, have), have, kind)
            case ir.Expand(y, axes):
                inner = [i for n, i in enumerate(at) if n not in axes]
                return self.ev(y, inner, 0 if len(t.shape) - 1 in axes else lanes, t.dtype)
            case ir.BroadcastTo(y, shape):
                return self._part(y, at, shape, lanes, t.dtype)
            case ir.Trans(y, permutation):
                inner = [at[permutation.index(n)] for n in range(len(permutation))]
                if not lanes:
                    return self.ev(y, inner, 0, t.dtype)
                made = Value("poison", Type(element_type(t.dtype), lanes))
                for n in range(lanes):
                    moved = [*at[:-1], b.op("add", at[-1], constant(n, I64))]
                    one = self.ev(y, [moved[permutation.index(q)] for q in range(len(permutation))], 0, t.dtype)
                    made = b.pure(f"insertelement {made.type} {made}, {one.type} {one}, i64 {n}", made.type, (made, one))
                return made
            case ir.Apply():
                return self._apply(x, at, lanes, t)
        raise NotImplementedError(type(x).__name__)

    def _part(self, y: ir.Tile, at: list[Value], shape: tuple[int, ...], lanes: int, dtype: DType) -> Value:
        return self.ev(y, self.aligned(at, shape, y), lanes if self._last(y, shape) else 0, dtype)

    def _name(self, name: str, at: list[Value], lanes: int, t: Any) -> Value:
        if name in self.parameters:
            return self.parameters[name]
        if name in self.lazy:
            return self.ev(self.lazy[name], at, lanes, t.dtype)
        where, dtype, shape, pointer = self.slots[name]
        if not shape:
            return self._load(where, dtype, 0, pointer)
        return self._load(self.b.offset(where, self._element(dtype, pointer), self.linear(at, shape)), dtype, lanes, pointer)

    def _apply(self, x: ir.Apply, at: list[Value], lanes: int, t: Any) -> Value:
        b = self.b
        meeting = self.types.arguments(x)
        if t.pointer:
            left, right = x.args
            if isinstance(left, ir.Literal) or not self.types.of(left).pointer:
                left, right = right, left
            p = self._part(left, at, t.shape, lanes, t.dtype)
            have = int32 if isinstance(right, ir.Literal) else self.types.of(right).dtype
            n = vectors.cast(b, self._part(right, at, t.shape, lanes, have), have, int64)
            if x.fn == "sub":
                n = b.op("sub", constant(0, n.type), n)
            if p.type.lanes and not n.type.lanes:
                n = b.splat(n, p.type.lanes)
            return b.offset(p, vectors.memory_element(t.dtype), n)
        wanted = (bool_, meeting, meeting) if x.fn == "where" else (meeting,) * len(x.args)
        args = []
        for a, d in zip(x.args, wanted, strict=True):
            have = d if isinstance(a, ir.Literal) else self.types.of(a).dtype
            args.append(vectors.cast(b, self._part(a, at, t.shape, lanes, have), have, d))
        return vectors.apply(b, x.fn, meeting, tuple(args))

    def _read(self, x: ir.Load, pointer: ir.Tile, mask: Any, other: Any, at: list[Value], lanes: int, t: Any) -> Value:
        b = self.b
        element = vectors.memory_element(t.dtype)
        stride = self.stride(pointer) if lanes else 0
        m = None if mask is None else self._part(mask, at, t.shape, lanes, bool_)
        o = None if other is None else self._part(other, at, t.shape, lanes, t.dtype)
        if not lanes or (stride == 0 and (m is None or not m.type.lanes)):
            p = self.ev(pointer, at, 0, t.dtype)
            if m is None:
                return self._load(p, t.dtype, 0)
            b.open_branch("read")
            v = self._load(p, t.dtype, 0)
            then = b.close_branch()
            b.open_branch("other")
            skip = b.close_branch()
            default = dtype_constant(0, t.dtype) if o is None else o
            return b.close_branches(m, then, skip, [(v, default)])[0]
        type = Type(element, lanes)
        if stride == 1 and m is None:
            return self._load(self.ev(pointer, at, 0, t.dtype), t.dtype, lanes)
        m = constant(True, Type("i1", lanes)) if m is None else b.splat(m, lanes)
        default = b.splat(dtype_constant(0, t.dtype) if o is None else o, lanes)
        default = vectors.to_memory(b, default, t.dtype)
        if stride == 1:
            p = self.ev(pointer, at, 0, t.dtype)
            name = f"llvm.masked.load.{type.short}.p0"
            b.declarations.setdefault(name, f"declare {type} @{name}(ptr, i32, {m.type}, {type})")
            raw = b.instruction(f"call {type} @{name}(ptr {p}, i32 {t.dtype.bytes}, {m.type} {m}, {type} {default})", type)
        else:
            p = b.splat(self.ev(pointer, at, lanes, t.dtype), lanes)
            name = f"llvm.masked.gather.{type.short}.{p.type.short}"
            b.declarations.setdefault(name, f"declare {type} @{name}({p.type}, i32, {m.type}, {type})")
            raw = b.instruction(f"call {type} @{name}({p.type} {p}, i32 {t.dtype.bytes}, {m.type} {m}, {type} {default})", type)
        return vectors.from_memory(b, raw, t.dtype)

    def stride(self, x: ir.Tile) -> int | None:
        """By how much an integer (or pointer) grows along the last axis."""
        if isinstance(x, ir.Literal | ir.ProgramId | ir.NumPrograms):
            return 0
        t = self.types.of(x)
        if not t.shape or t.shape[-1] == 1:
            return 0
        match x:
            case ir.Arange():
                return 1
            case ir.Name(name):
                return self.stride(self.lazy[name]) if name in self.lazy else None
            case ir.Cast(y, target) if target.is_integer:
                return self.stride(y)
            case ir.Full():
                return 0
            case ir.Expand(y, axes):
                return 0 if len(t.shape) - 1 in axes else self.stride(y)
            case ir.BroadcastTo(y, _):
                return self.stride(y)
            case ir.Apply("add" | "sub" as fn, (y, z)):
                one, two = self.stride(y), self.stride(z)
                return None if one is None or two is None else one + two if fn == "add" else one - two
            case ir.Apply("mul", (y, z)):
                if isinstance(y, ir.Literal):
                    y, z = z, y
                one, two = self.stride(y), self.stride(z)
                if one == 0 and two == 0:
                    return 0
                return one * int(z.value) if isinstance(z, ir.Literal) and one is not None else None
            case ir.Apply(_, args):
                return 0 if all(self.stride(a) == 0 for a in args) else None
        return None


def _product(shape: tuple[int, ...]) -> int:
    n = 1
    for e in shape:
        n *= e
    return n
