"""Print a kernel as readable CUDA C++: one line per source line, with the user's names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..ir.dtype import DType, int32
from . import thread_ir as ir
from .expressions import FENCED_ATOMIC, ExpressionWriter
from .names import TYPES, cpp_name
from .traversal import blocks_of, expressions_of, subexpressions

INDENT = "    "
MAX_UNROLLED_ITERATIONS = 32
"""Largest trip count of a loop that is unrolled."""
IN_PLACE = {
    "+": "+=",
    "-": "-=",
    "*": "*=",
    "/": "/=",
    "//": "/=",
    "&": "&=",
    "|": "|=",
    "^": "^=",
    "<<": "<<=",
    ">>": ">>=",
}

HALF_TYPES = {
    "half": """// 16 bits in memory, float to compute with.
struct half {
    unsigned short bits;
    half() = default;
    __device__ half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    __device__ operator float() const {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
    }
};
""",
    "bfloat16": """// The upper 16 bits of a float in memory, float to compute with.
struct bfloat16 {
    unsigned short bits;
    bfloat16() = default;
    __device__ bfloat16(float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    __device__ operator float() const { return __uint_as_float((unsigned int)bits << 16); }
};
""",
}
"""16-bit types, which need CUDA headers that NVRTC lacks."""

FENCE = f"""// An atomic operation orders what its thread does before and after it, for all threads.
template <class T> __device__ T {FENCED_ATOMIC}(T old) {{
    __threadfence();
    return old;
}}
"""


def cuda_source(routine: ir.Routine) -> str:
    """Print a kernel with everything that it calls and launches."""
    order: list[tuple[ir.Routine, bool]] = []

    def visit(one: ir.Routine, launched: bool) -> None:
        starts = {id(s.routine) for s in statements(one.body) if isinstance(s, ir.LaunchStatement)}
        for other in one.routines:
            visit(other, id(other) in starts)
        if (one, launched) not in order:
            order.append((one, launched))

    visit(routine, True)
    fenced = any(launched and synchronises_by_atomics(one) for one, launched in order)
    made = "\n\n".join(RoutineWriter(one, fenced).written(launched) for one, launched in order)
    needed = [text for name, text in HALF_TYPES.items() if re.search(rf"\b{name}\b", made)]
    needed += [FENCE] if FENCED_ATOMIC in made else []
    return "\n".join([*needed, f"{made}\n"])


def statements(body: tuple[ir.Statement, ...]) -> Iterator[ir.Statement]:
    for statement in body:
        yield statement
        for block in blocks_of(statement):
            yield from statements(block)


def synchronises_by_atomics(routine: ir.Routine) -> bool:
    """Whether threads may synchronise through atomic operations before reading others' stores.

    That is so if an old element is used and an array is both loaded and stored: a lock, a flag, a last-block reduction.
    """
    if not any(uses_old_element(one) for one in device_routines(routine)):
        return False
    both = {n for n, how in routine.accessed.items() if {"load", "store"} <= how}
    atomic = {n for n, how in routine.accessed.items() if "atomic" in how}
    own = {array.name for array in routine.arrays}
    return bool(both - own) or bool(both and atomic & own)


def device_routines(routine: ir.Routine) -> Iterator[ir.Routine]:
    """Return a routine and the device functions that it calls."""
    yield routine
    starts = {id(s.routine) for s in statements(routine.body) if isinstance(s, ir.LaunchStatement)}
    for other in routine.routines:
        if id(other) not in starts:
            yield from device_routines(other)


def uses_old_element(routine: ir.Routine) -> bool:
    """Whether the old element of an atomic operation is used."""
    for s in statements(routine.body):
        inside = (
            s.value.operands
            if isinstance(s, ir.ExpressionStatement) and isinstance(s.value, ir.AtomicOperation)
            else expressions_of(s)
        )
        if any(isinstance(x, ir.AtomicOperation) for e in inside for x in subexpressions(e)):
            return True
    return False


class RoutineWriter(ExpressionWriter):
    """Prints one function; `fenced` if its atomic operations order other accesses."""

    def __init__(self, routine: ir.Routine, fenced: bool = False) -> None:
        self.routine, self.fenced, self.kernel = routine, fenced, True
        self.lines: list[str] = []
        self.depth = 1
        self.loops = 0
        self.declared: set[str] = {p.name for p in routine.parameters}
        self.home = declaration_blocks(routine)

    def written(self, kernel: bool) -> str:
        one, self.kernel = self.routine, kernel
        head = 'extern "C" __global__ void' if kernel else f"__device__ {TYPES[one.result] if one.result else 'void'}"
        given = ", ".join(self.parameter(p) for p in one.parameters)
        for array in one.arrays:
            self.line(self.declaration(array))
        self.body(one.body)
        return f"// {one.place}\n{head} {one.text}({given}) {{\n" + "\n".join(self.lines) + "\n}"

    def parameter(self, p: ir.Array | ir.VariableReference) -> str:
        if isinstance(p, ir.VariableReference):
            return f"{TYPES[p.dtype]} {cpp_name(p.name)}"
        const = "" if self.routine.accessed.get(p.name, frozenset()) & {"store", "atomic"} else "const "
        if p.shape:
            extents = "".join(f"[{n}]" for n in p.shape)
            return f"{const}{TYPES[p.dtype]} (&{cpp_name(p.name)}){extents}"
        return f"{const}{TYPES[p.dtype]}* {cpp_name(p.name)}"

    def declaration(self, array: ir.Array) -> str:
        extents = "".join(f"[{n}]" for n in array.shape)
        name = cpp_name(array.name)
        match array.space:
            case "dynamic":
                return (
                    f"extern __shared__ __align__(16) unsigned char {name}_bytes[];\n{INDENT}"
                    f"{TYPES[array.dtype]}* {name} = reinterpret_cast<{TYPES[array.dtype]}*>({name}_bytes);"
                )
            case "shared":
                return f"__shared__ {TYPES[array.dtype]} {name}{extents};"
            case _:
                return f"{TYPES[array.dtype]} {name}{extents};"

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self.depth + text)

    # --- statements ------------------------------------------------------------------------------

    def body(self, body: tuple[ir.Statement, ...]) -> None:
        for name in [n for n, (block, first) in self.home.items() if block is body and not first]:
            self.line(f"{TYPES[self.routine.types[name]]} {cpp_name(name)};")
            self.declared.add(name)
        for statement in body:
            self.statement(statement)

    def inner(self, body: tuple[ir.Statement, ...]) -> None:
        self.depth += 1
        self.body(body)
        self.depth -= 1

    def statement(self, statement: ir.Statement) -> None:
        match statement:
            case ir.AssignStatement(name=name, value=value):
                self.assign(name, value)
            case ir.StoreStatement(target=target, value=value):
                if self.fenced and self.unlocks(target.array):
                    self.line("__threadfence();")
                self.line(self.changed(self.expression(target), target, value))
            case ir.BarrierStatement(kind=kind):
                self.line(f"__{kind}();")
            case ir.ExpressionStatement(value=value):
                self.line(f"{self.expression(value)};")
            case ir.AssertStatement(condition=condition):
                self.line(f"if (!({self.expression(condition)})) __trap();  // {statement.message or 'assert'}")
            case ir.LaunchStatement():
                self.launch(statement)
            case _:
                self.control(statement)

    def control(self, statement: ir.Statement) -> None:
        """Print a statement of control flow."""
        match statement:
            case ir.IfStatement():
                self.branch(statement, "if")
            case ir.WhileStatement(condition=condition, body=body):
                self.line(f"while ({self.expression(condition)}) {{")
                self.inner(body)
                self.line("}")
            case ir.ForStatement():
                self.loop(statement)
            case ir.LoopExit(kind=kind):
                self.line(f"{kind};")
            case ir.ReturnStatement(value=value):
                self.line("return;" if value is None else f"return {self.converted(value, self.routine.result)};")

    def unlocks(self, array: ir.Array) -> bool:
        """Whether a plain store may release a lock; within a device function, judged from that function alone."""
        how = self.routine.accessed.get(array.name, frozenset())
        return "atomic" in how or (not self.kernel and how == {"store"} and array.space == "global")

    def assign(self, name: str, value: ir.Expression) -> None:
        dtype = self.routine.types.get(name) or value.dtype
        text = self.raw(value) if dtype is int32 else self.expression(value)
        if name in self.declared:
            self.line(self.changed(cpp_name(name), ir.VariableReference(dtype, name), value))
        else:
            self.declared.add(name)
            self.line(f"{TYPES[dtype]} {cpp_name(name)} = {text};")

    def changed(self, target: str, old: ir.Expression, value: ir.Expression) -> str:
        """Print an assignment, with `+=` and the like where possible."""
        match value:
            case ir.OperatorExpression(op=op, operands=(first, second)) if op in IN_PLACE and is_same_location(
                first, old
            ):
                return f"{target} {IN_PLACE[op]} {self.expression(second)};"
            case _:
                return f"{target} = {self.expression(value)};"

    def converted(self, value: ir.Expression, dtype: DType | None) -> str:
        text = self.expression(value)
        return text if dtype is None or value.dtype is dtype else f"{TYPES[dtype]}({text})"

    def branch(self, statement: ir.IfStatement, word: str) -> None:
        self.line(f"{word} ({self.expression(statement.condition)}) {{")
        self.inner(statement.body)
        match statement.other:
            case ():
                self.line("}")
            case (ir.IfStatement() as nested,) if not any(block is statement.other for block, _ in self.home.values()):
                self.branch(nested, "} else if")
            case other:
                self.line("} else {")
                self.inner(other)
                self.line("}")

    def loop(self, loop: ir.ForStatement) -> None:
        name, dtype = cpp_name(loop.name), loop.start.dtype
        stop = self.expression(loop.stop)
        match loop.step:
            case ir.NumberLiteral(value=1):
                step, compared = f"++{name}", "<"
            case ir.NumberLiteral(value=value) if value < 0:
                step, compared = f"{name} -= {-value}", ">"
            case _:
                step, compared = f"{name} += {self.expression(loop.step)}", "<"
        innermost = not any(blocks_of(s) for s in loop.body)
        in_registers = any(array.space == "local" for array in self.routine.arrays)
        if is_short_loop(loop) and (in_registers or (innermost and self.loops)):
            self.line("#pragma unroll")
        start = self.raw(loop.start) if dtype is int32 else self.expression(loop.start)
        self.line(f"for ({TYPES[dtype]} {name} = {start}; {name} {compared} {stop}; {step}) {{")
        self.loops += 1
        self.inner(loop.body)
        self.loops -= 1
        self.line("}")

    def launch(self, launch: ir.LaunchStatement) -> None:
        grid, block = (
            self.raw(x[0]) if len(x) == 1 else f"dim3({', '.join(self.raw(n) for n in x)})"
            for x in (launch.grid, launch.block)
        )
        shared = (
            ""
            if isinstance(launch.shared, ir.NumberLiteral) and not launch.shared.value
            else f", {self.expression(launch.shared)}"
        )
        given = ", ".join(cpp_name(x.name) if isinstance(x, ir.Array) else self.expression(x) for x in launch.arguments)
        self.line(f"{launch.routine.text}<<<{grid}, {block}{shared}>>>({given});")


def is_short_loop(loop: ir.ForStatement) -> bool:
    """Whether a loop's trip count is known and small enough to unroll."""
    match loop:
        case ir.ForStatement(
            start=ir.NumberLiteral(value=start), stop=ir.NumberLiteral(value=stop), step=ir.NumberLiteral(value=step)
        ):
            return abs(stop - start) <= MAX_UNROLLED_ITERATIONS * abs(step)
        case _:
            return False


def is_same_location(x: ir.Expression, y: ir.Expression) -> bool:
    """Whether two expressions denote the same location."""
    return type(x) is type(y) and x.dtype is y.dtype and comparable(x) == comparable(y)


def comparable(x: object) -> object:
    """Return an expression as a comparable value."""
    match x:
        case ir.Array():
            return id(x)
        case ir.DeviceCall():
            return id(x)
        case ir.Expression():
            return (type(x).__name__, *[comparable(getattr(x, f)) for f in x.fields if f != "place"])
        case tuple():
            return tuple([comparable(y) for y in x])
        case _:
            return x


Block = tuple[ir.Statement, ...]


def declaration_blocks(routine: ir.Routine) -> dict[str, tuple[Block, bool]]:
    """Choose the block that declares each variable, and whether at its first assignment.

    That block must contain all other mentions; if none does, the smallest enclosing block declares it at its start.
    """
    mentions: dict[str, list[tuple[Block, ...]]] = {}
    firsts: dict[str, Block] = {}
    counted: set[str] = set()

    def visit(block: Block, around: tuple[Block, ...]) -> None:
        here = (*around, block)
        for statement in block:
            if isinstance(statement, ir.ForStatement):
                counted.add(statement.name)
            for name in [
                v.name
                for e in expressions_of(statement)
                for v in subexpressions(e)
                if isinstance(v, ir.VariableReference)
            ]:
                mentions.setdefault(name, []).append(here)
            if isinstance(statement, ir.AssignStatement):
                mentions.setdefault(statement.name, []).append(here)
                firsts.setdefault(statement.name, block)
            for inner in blocks_of(statement):
                visit(inner, here)

    visit(routine.body, ())
    found: dict[str, tuple[Block, bool]] = {}
    for name, first in firsts.items():
        paths = mentions[name]
        common = [b for n, b in enumerate(paths[0]) if all(len(w) > n and w[n] is b for w in paths)]
        found[name] = (common[-1], common[-1] is first)
    parameters = {p.name for p in routine.parameters}
    return {n: home for n, home in found.items() if n not in parameters and n not in counted}
