"""Emit LLVM IR as text: typed values, and a builder that hoists and shares instructions.

The builder keeps a stack of *scopes* (function, loop, branch). An instruction without side effects is emitted into the
outermost scope in which its operands are defined, and only once there: loop-invariant code motion and common
subexpression elimination happen on the way, without LLVM's passes, which would take as long as the rest of the
compilation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import ml_dtypes
import numpy as np

from ...ir.dtype import FLOAT8, DType, bfloat16, bool_, float16, float32, float64
from ...ir.functions import convert
from ...ir.node import Node

_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64, "ptr": 64}


class Type(NamedTuple):
    """An LLVM type: the element type, and the number of vector lanes (0: a scalar).

    >>> print(Type("float", 8), Type("i64"))
    <8 x float> i64
    """

    element: str
    lanes: int = 0

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.element}>" if self.lanes else self.element

    @property
    def bits(self) -> int:
        return _BITS.get(self.element) or int(self.element[1:])

    @property
    def is_float(self) -> bool:
        return self.element in ("half", "float", "double")

    @property
    def short(self) -> str:
        """The type as it is spelled in the name of an intrinsic."""
        element = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}.get(self.element, self.element)
        return f"v{self.lanes}{element}" if self.lanes else element

    def of(self, element: str) -> Type:
        """Return the type with the same lanes and another element type."""
        return Type(element, self.lanes)


I1, I32, I64, PTR = Type("i1"), Type("i32"), Type("i64"), Type("ptr")


def element_type(dtype: DType) -> str:
    """Return the LLVM element type of a dtype in registers; bfloat16 and 8-bit floats are held as their bits."""
    if dtype is bool_:
        return "i1"
    if dtype is bfloat16:
        return "i16"
    return {float16: "half", float32: "float", float64: "double"}.get(dtype, f"i{dtype.bits}")


class LlvmValue:
    """An operand: its text, its type, and the level of the scope that defines it."""

    __slots__ = ("level", "multiple", "negative", "text", "type")

    def __init__(self, text: str, type: Type, level: int = 0, multiple: int = 1, negative: bool = True) -> None:
        self.text, self.type, self.level = text, type, level
        self.multiple = multiple
        """A known divisor of the value."""
        self.negative = negative
        """Whether the value may be negative."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def is_constant(self) -> bool:
        return self.text[0] not in "%@"


def constant(value: float | int | bool, type: Type) -> LlvmValue:
    """Return a constant, in all lanes.

    >>> constant(1.5, Type("float", 8)), constant(True, Type("i1"))
    (<8 x float> splat (float 0x3FF8000000000000), i1 true)
    """
    if type.element == "i1":
        text = "true" if value else "false"
    elif type.is_float:
        text = _float_text(struct.pack("<d", value), type.element)
    else:
        return _integer(int(value), type)
    return LlvmValue(f"splat ({type.element} {text})" if type.lanes else text, type, 0)


@lru_cache(4096)
def _integer(value: int, type: Type) -> LlvmValue:
    bits = type.bits
    wrapped = value & ((1 << bits) - 1)
    text = str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
    return LlvmValue(f"splat ({type.element} {text})" if type.lanes else text, type, 0)


def dtype_constant(value: float | int | bool, dtype: DType, lanes: int = 0) -> LlvmValue:
    """Return a number as a constant of a dtype."""
    if dtype is bfloat16:
        bits = int(np.asarray(value, ml_dtypes.bfloat16).view(np.uint16))
        return constant(bits, Type("i16", lanes))
    if dtype in FLOAT8:
        return constant(int(convert(value, dtype).view(np.uint8)), Type("i8", lanes))
    return constant(value, Type(element_type(dtype), lanes))


@lru_cache(4096)
def _float_text(double: bytes, element: str) -> str:
    """Format a float constant by its bits: 0.0 and -0.0 differ."""
    (value,) = struct.unpack("<d", double)
    with np.errstate(over="ignore"):
        if element == "half":
            return f"0xH{int(np.float16(value).view(np.uint16)):04X}"
        wide = float(np.float32(value)) if element == "float" else value
    return f"0x{struct.unpack('<Q', struct.pack('<d', wide))[0]:016X}"


def lane_constants(values: Sequence[int | bool], element: str) -> LlvmValue:
    """Return a vector constant with one number per lane."""
    shown = [("true" if v else "false") if element == "i1" else str(v) for v in values]
    return LlvmValue("<" + ", ".join(f"{element} {v}" for v in shown) + ">", Type(element, len(values)))


class CodeScope:
    """Code being emitted: its lines, the values known in it, and its current basic block."""

    def __init__(self, label: str, pinned: bool, reusable: dict[str, int] | None = None) -> None:
        self.lines: list[str] = []
        self.known: dict[str, LlvmValue] = {}
        self.label = label
        self.pinned = pinned
        """Whether loads must stay inside: the scope may not run, or memory may have changed when it does."""
        self.reusable = reusable
        """Stack memory of a branch that is not taken when this one is: bytes by name."""


class OpenLoop(Node):
    """A loop being emitted: its counter and its loop-carried values."""

    index: LlvmValue
    carried: tuple[LlvmValue, ...]
    label: str
    start: LlvmValue
    stop: LlvmValue
    step: LlvmValue
    initial: tuple[LlvmValue, ...]
    guarded: bool


class Builder:
    """Emits one function."""

    def __init__(self) -> None:
        self.scopes = [CodeScope("entry", True)]
        self.allocations: list[str] = []
        self.declarations: dict[str, str] = {}
        self.stack_bytes = 0
        self.allocated: dict[str, int] = {}
        self.nest = 0
        """Number of the loop nest being emitted."""
        self._nest_level = 0
        """Scope level at which the nest began: what is invariant in the nest is computed there."""
        self._dummy: LlvmValue | None = None
        self._names: dict[str, int] = {}

    @property
    def level(self) -> int:
        return len(self.scopes) - 1

    def name(self, hint: str) -> str:
        count = self._names.get(hint, 0)
        self._names[hint] = count + 1
        return f"%{hint}.{count}" if count else f"%{hint}"

    def label(self, hint: str) -> str:
        return self.name(hint)[1:]

    def comment(self, text: str) -> None:
        self.scopes[-1].lines.append(f"  ; {text}")

    # Instructions without side effects.

    def pure(
        self, text: str, type: Type, operands: Sequence[LlvmValue], hint: str = "v", min_level: int = 0
    ) -> LlvmValue:
        """Emit an instruction without side effects once, hoisted as far as its operands and `min_level` allow."""
        level = min_level
        for x in operands:
            if x.level > level:
                level = x.level
        for scope in self.scopes[level:]:
            found = scope.known.get(text)
            if found is not None:
                return found
        scope = self.scopes[level]
        made = LlvmValue(self.name(hint), type, level)
        scope.lines.append(f"  {made.text} = {text}")
        scope.known[text] = made
        return made

    def op(self, opcode: str, x: LlvmValue, y: LlvmValue, hint: str = "v") -> LlvmValue:
        """Emit a binary instruction."""
        return self.pure(f"{opcode} {x.type} {x.text}, {y.text}", x.type, (x, y), hint)

    def compare(self, predicate: str, x: LlvmValue, y: LlvmValue, hint: str = "is") -> LlvmValue:
        opcode = "fcmp" if x.type.is_float else "icmp"
        return self.pure(f"{opcode} {predicate} {x.type} {x.text}, {y.text}", x.type.of("i1"), (x, y), hint)

    def select(self, condition: LlvmValue, x: LlvmValue, y: LlvmValue, hint: str = "v") -> LlvmValue:
        if x.text == y.text:
            return x
        text = f"select {condition.type} {condition.text}, {x.type} {x.text}, {y.type} {y.text}"
        return self.pure(text, x.type, (condition, x, y), hint)

    def convert(self, opcode: str, x: LlvmValue, element: str, hint: str = "v") -> LlvmValue:
        """Emit trunc, sext, fpext, bitcast, ... to another element type."""
        target = x.type.of(element)
        return x if target == x.type else self.pure(f"{opcode} {x.type} {x.text} to {target}", target, (x,), hint)

    def call(self, function: str, type: Type, *args: LlvmValue, hint: str = "v", attributes: str = "") -> LlvmValue:
        """Emit a call of a function without side effects, and declare the function."""
        self.declare(function, type, args)
        shown = ", ".join([f"{a.type} {a.text}" for a in args])
        return self.pure(f"call {type} @{function}({shown}){attributes}", type, args, hint)

    def intrinsic(self, name: str, *args: LlvmValue, hint: str = "v") -> LlvmValue:
        """Emit a call of `llvm.NAME` on arguments of one type."""
        return self.call(f"llvm.{name}.{args[0].type.short}", args[0].type, *args, hint=hint)

    def declare(self, function: str, type: Type | str, args: Sequence[LlvmValue]) -> None:
        if function not in self.declarations:
            self.declarations[function] = f"declare {type} @{function}({', '.join(str(a.type) for a in args)})"

    def splat(self, x: LlvmValue, lanes: int) -> LlvmValue:
        """Broadcast a scalar to all lanes."""
        if x.type.lanes or not lanes:
            return x
        type = Type(x.type.element, lanes)
        if x.is_constant:
            return LlvmValue(f"splat ({x.type.element} {x.text})", type)
        one = self.pure(f"insertelement {type} poison, {x.type} {x.text}, i64 0", type, (x,), "one")
        return self.pure(
            f"shufflevector {type} {one.text}, {type} poison, <{lanes} x i32> zeroinitializer", type, (one,), "all"
        )

    def shuffle(self, x: LlvmValue, y: LlvmValue, lanes: Sequence[int], hint: str = "v") -> LlvmValue:
        """Permute the lanes of two vectors; -1 leaves a lane undefined."""
        type = Type(x.type.element, len(lanes))
        mask = ", ".join(["i32 poison" if n < 0 else f"i32 {n}" for n in lanes])
        text = f"shufflevector {x.type} {x.text}, {y.type} {y.text}, <{len(lanes)} x i32> <{mask}>"
        return self.pure(text, type, (x, y), hint)

    def extract(self, x: LlvmValue, lane: int, hint: str = "v") -> LlvmValue:
        return self.pure(f"extractelement {x.type} {x.text}, i64 {lane}", Type(x.type.element), (x,), hint)

    def offset(self, pointer: LlvmValue, element: str, index: LlvmValue, hint: str = "at") -> LlvmValue:
        """Return the address `index` elements past a pointer (a vector of addresses for a vector of indices)."""
        if index.text == "0":
            return pointer
        lanes = index.type.lanes
        return self.pure(
            f"getelementptr {element}, {pointer.type} {pointer.text}, {index.type} {index.text}",
            Type("ptr", lanes or pointer.type.lanes),
            (pointer, index),
            hint,
        )

    # Memory.

    def allocate(self, bytes: int, hint: str, reusable: dict[str, int] | None = None) -> LlvmValue:
        """Allocate memory of this instance on the stack, or take it from `reusable` memory (that of the branch)."""
        size = -(-bytes // 64) * 64
        if reusable is None:
            reusable = next((scope.reusable for scope in reversed(self.scopes) if scope.reusable is not None), {})
        fitting = [(room, name) for name, room in reusable.items() if room >= size]
        if fitting:
            _, name = min(fitting)
            del reusable[name]
            return LlvmValue(name, PTR, 0)
        name = self.name(hint)
        self.allocations.append(f"  {name} = alloca [{size} x i8], align 64")
        self.allocated[name] = size
        self.stack_bytes += size
        return LlvmValue(name, PTR, 0)

    @property
    def dummy(self) -> LlvmValue:
        """Memory to read in place of masked-out elements."""
        if self._dummy is None:
            self._dummy = self.allocate(64, "nowhere")
        return self._dummy

    def begin_nest(self) -> None:
        """Begin a loop nest: memory may have changed since the last one."""
        self.nest += 1
        self._nest_level = self.level

    def load_invariant(self, address: LlvmValue, type: Type, bytes: int) -> LlvmValue:
        """Load memory that the current nest does not change, hoisted as far as the address is invariant."""
        text = f"load {type}, ptr {address}, align {bytes} ; nest {self.nest}"
        return self.pure(text, type, (address,), min_level=self._nest_level)

    def instruction(self, text: str, type: Type, hint: str = "v") -> LlvmValue:
        """Emit an instruction that must stay in the current scope."""
        made = LlvmValue(self.name(hint), type, self.level)
        self.scopes[-1].lines.append(f"  {made.text} = {text}")
        return made

    def effect(self, text: str) -> None:
        self.scopes[-1].lines.append(f"  {text}")

    def prefetch(self, pointer: LlvmValue, cache: int) -> None:
        """Prefetch a cache line to level 1 or 2; the address need not be mapped."""
        name = "llvm.prefetch.p0"
        self.declarations.setdefault(name, f"declare void @{name}(ptr, i32, i32, i32)")
        self.effect(f"call void @{name}(ptr {pointer}, i32 0, i32 {4 - cache}, i32 1)")

    def leave(self, text: str) -> None:
        """Return from the function; code that follows is unreachable."""
        label = self.label("never")
        self.scopes[-1].lines += [f"  {text}", f"{label}:"]
        self.scopes[-1].label = label

    # Control flow.

    def open_loop(
        self,
        hint: str,
        start: LlvmValue,
        stop: LlvmValue,
        step: LlvmValue,
        carried: Sequence[tuple[str, LlvmValue]] = (),
        *,
        guarded: bool,
        pinned: bool = False,
    ) -> OpenLoop:
        """Open a loop `for index in range(start, stop, step)`; `guarded` if it may have no iteration."""
        if guarded:
            self._open_guard(hint, start, stop)
        label = self.label(hint + ".loop")
        self.scopes.append(CodeScope(label, pinned))
        level = self.level
        negative = start.negative and not (start.is_constant and not start.text.startswith("-"))
        index = LlvmValue(self.name(hint), start.type, level, _multiple_of(start, step), negative)
        values = tuple(LlvmValue(self.name(name), x.type, level) for name, x in carried)
        return OpenLoop(index, values, label, start, stop, step, tuple(x for _, x in carried), guarded)

    def _open_guard(self, hint: str, start: LlvmValue, stop: LlvmValue) -> None:
        condition = self.compare("slt", start, stop, "some")
        inside = self.label(hint + ".some")
        self.scopes.append(CodeScope(inside, True))
        self.scopes[-1].lines.append(f"  br i1 {condition}, label %{inside}, label %{{after}}")
        self.scopes[-1].lines.append(f"{inside}:")

    def close_loop(self, loop: OpenLoop, following: Sequence[LlvmValue] = ()) -> tuple[LlvmValue, ...]:
        """Close a loop and return its carried values as they are after it."""
        scope = self.scopes[-1]
        following_index = self.instruction(
            f"add nsw {loop.index.type} {loop.index}, {loop.step}", loop.index.type, "next"
        )
        again = self.instruction(f"icmp slt {loop.index.type} {following_index}, {loop.stop}", I1, "again")
        after = self.label(loop.label + ".end")
        latch = scope.label
        self.scopes.pop()
        outer = self.scopes[-1]
        before = outer.label
        lines = [f"  br label %{loop.label}", f"{loop.label}:"]
        for phi, first, then in zip(
            (loop.index, *loop.carried), (loop.start, *loop.initial), (following_index, *following), strict=True
        ):
            lines.append(f"  {phi} = phi {phi.type} [ {first}, %{before} ], [ {then}, %{latch} ]")
        lines += scope.lines
        lines += [f"  br i1 {again}, label %{loop.label}, label %{after}", f"{after}:"]
        outer.lines += lines
        outer.label = after
        # Values of the last iteration are defined after the loop, at the level outside.
        results = tuple(LlvmValue(x.text, x.type, self.level) for x in following)
        return self._close_guard(loop, results) if loop.guarded else results

    def _close_guard(self, loop: OpenLoop, results: tuple[LlvmValue, ...]) -> tuple[LlvmValue, ...]:
        guard = self.scopes.pop()
        after = self.label(loop.label + ".after")
        outer = self.scopes[-1]
        branch = guard.lines[0].replace("{after}", after)
        outer.lines += [branch, *guard.lines[1:], f"  br label %{after}", f"{after}:"]
        merged = []
        for x, first in zip(results, loop.initial, strict=True):
            name = self.name("merged")
            outer.lines.append(f"  {name} = phi {x.type} [ {first}, %{outer.label} ], [ {x}, %{guard.label} ]")
            merged.append(LlvmValue(name, x.type, self.level))
        outer.label = after
        return tuple(merged)

    def open_branch(self, hint: str, reusable: dict[str, int] | None = None) -> None:
        """Open one side of a branch; `close_branches` puts its code in place."""
        label = self.label(hint)
        self.scopes.append(CodeScope(label, True, reusable))
        self.scopes[-1].lines.append(f"{label}:")

    def close_branch(self) -> CodeScope:
        return self.scopes.pop()

    def under_condition(self, condition: LlvmValue, then: str, body: Callable[[], None], other: str) -> None:
        """Emit code that runs if a condition holds; `then` and `other` are the labels of the sides."""
        self.open_branch(then)
        body()
        side = self.close_branch()
        self.open_branch(other)
        self.close_branches(condition, side, self.close_branch())

    def close_branches(
        self,
        condition: LlvmValue,
        then: CodeScope,
        other: CodeScope,
        results: Sequence[tuple[LlvmValue, LlvmValue]] = (),
    ) -> tuple[LlvmValue, ...]:
        """Emit both sides of a branch behind a condition, and merge the values that each computed."""
        outer = self.scopes[-1]
        after = self.label("join")
        first, second = then.lines[0][:-1], other.lines[0][:-1]
        outer.lines.append(f"  br i1 {condition}, label %{first}, label %{second}")
        outer.lines += [*then.lines, f"  br label %{after}", *other.lines, f"  br label %{after}", f"{after}:"]
        outer.label = after
        merged = []
        for x, y in results:
            name = self.name("joined")
            outer.lines.append(f"  {name} = phi {x.type} [ {x}, %{then.label} ], [ {y}, %{other.label} ]")
            merged.append(LlvmValue(name, x.type, self.level))
        return tuple(merged)

    def open_while(self, carried: Sequence[tuple[str, LlvmValue]]) -> tuple[str, tuple[LlvmValue, ...]]:
        """Open a loop whose condition is emitted next."""
        label = self.label("while")
        self.scopes.append(CodeScope(label, True))
        return label, tuple(LlvmValue(self.name(name), x.type, self.level) for name, x in carried)

    def enter_while(self, condition: LlvmValue) -> None:
        """Begin the body, after the condition."""
        body = self.label("while.body")
        scope = self.scopes[-1]
        scope.lines += [f"  br i1 {condition}, label %{body}, label %{{after}}", f"{body}:"]
        scope.label = body

    def close_while(
        self, label: str, carried: Sequence[LlvmValue], initial: Sequence[LlvmValue], following: Sequence[LlvmValue]
    ) -> tuple[LlvmValue, ...]:
        scope = self.scopes.pop()
        outer = self.scopes[-1]
        after = self.label("while.end")
        lines = [f"  br label %{label}", f"{label}:"]
        for phi, first, then in zip(carried, initial, following, strict=True):
            lines.append(f"  {phi} = phi {phi.type} [ {first}, %{outer.label} ], [ {then}, %{scope.label} ]")
        lines += [line.replace("{after}", after) for line in scope.lines]
        outer.lines += [*lines, f"  br label %{label}", f"{after}:"]
        outer.label = after
        return tuple(LlvmValue(x.text, x.type, self.level) for x in carried)


def _multiple_of(start: LlvmValue, step: LlvmValue) -> int:
    """Return a divisor of every value of a loop counter."""
    from math import gcd

    first = int(start.text) if start.is_constant else start.multiple
    width = int(step.text) if step.is_constant else step.multiple
    return gcd(first, width) or 1
