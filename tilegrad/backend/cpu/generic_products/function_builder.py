"""Emit a function of the generic products: loads and stores of words, loops and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .. import vectors
from ..emit import I64, Builder, LlvmValue, Type, constant, lane_constants
from .element_format import ElementFormat


class FunctionBuilder(Builder):
    """Emits one function, whose arguments have names."""

    def __init__(self, name: str, parameters: Sequence[tuple[str, Type]], result: Type | None = None) -> None:
        super().__init__()
        self.function, self.parameters, self.result = name, parameters, result
        self.name("entry")
        self.arguments = [LlvmValue(self.name(hint), type) for hint, type in parameters]
        self.returned: LlvmValue | None = None

    def text(self, linkage: str = "internal") -> str:
        """Return the function as LLVM IR."""
        shown = ", ".join(f"{x.type} {x}" for x in self.arguments)
        last = "ret void" if self.returned is None else f"ret {self.returned.type} {self.returned}"
        head = f"define {linkage} {self.result or 'void'} @{self.function}({shown}) #0 {{"
        return "\n".join([head, "entry:", *self.allocations, *self.scopes[0].lines, f"  {last}", "}"])

    # Words.

    def word_at(self, pointer: LlvmValue, index: LlvmValue | int) -> LlvmValue:
        """Load a word of a table."""
        at = self.offset(pointer, "i64", index if isinstance(index, LlvmValue) else constant(index, I64))
        return self.instruction(f"load i64, ptr {at}, align 8", I64, "word")

    def set_word(self, pointer: LlvmValue, index: LlvmValue | int, value: LlvmValue) -> None:
        at = self.offset(pointer, "i64", index if isinstance(index, LlvmValue) else constant(index, I64))
        self.effect(f"store i64 {value}, ptr {at}, align 8")

    def plus(self, x: LlvmValue, y: LlvmValue | int) -> LlvmValue:
        return self.op("add", x, y if isinstance(y, LlvmValue) else constant(y, I64))

    def minus(self, x: LlvmValue, y: LlvmValue | int) -> LlvmValue:
        return self.op("sub", x, y if isinstance(y, LlvmValue) else constant(y, I64))

    def times(self, x: LlvmValue, y: LlvmValue | int) -> LlvmValue:
        return self.op("mul", x, y if isinstance(y, LlvmValue) else constant(y, I64))

    def least(self, x: LlvmValue, y: LlvmValue | int) -> LlvmValue:
        return self.intrinsic("smin", x, y if isinstance(y, LlvmValue) else constant(y, I64))

    def rounded_up(self, x: LlvmValue, multiple: int) -> LlvmValue:
        return self.times(self.op("udiv", self.plus(x, multiple - 1), constant(multiple, I64)), multiple)

    def run(self, function: str, *arguments: LlvmValue) -> None:
        """Emit a call of a function of the same module."""
        self.effect(f"call void @{function}({', '.join(f'{x.type} {x}' for x in arguments)})")

    def run_for_word(self, function: str, *arguments: LlvmValue) -> LlvmValue:
        """Emit a call of a function of the same module that returns a word."""
        shown = ", ".join(f"{x.type} {x}" for x in arguments)
        return self.instruction(f"call i64 @{function}({shown})", I64)

    # Control flow.

    @contextmanager
    def counted(
        self, hint: str, start: LlvmValue | int, stop: LlvmValue | int, step: LlvmValue | int = 1
    ) -> Iterator[LlvmValue]:
        """Emit a loop over a range, which may be empty."""
        first, last, by = (x if isinstance(x, LlvmValue) else constant(x, I64) for x in (start, stop, step))
        loop = self.open_loop(hint, first, last, by, guarded=True, pinned=True)
        yield loop.index
        self.close_loop(loop)

    @contextmanager
    def when(self, condition: LlvmValue) -> Iterator[None]:
        """Emit code that runs if a condition holds."""
        self.open_branch("then")
        yield
        side = self.close_branch()
        self.open_branch("otherwise")
        self.close_branches(condition, side, self.close_branch())

    # Vectors.

    def first_lanes(self, count: LlvmValue, lanes: int) -> LlvmValue:
        """Return the mask of the first lanes, `count` of them or all."""
        bounded = self.intrinsic("smax", self.least(count, lanes), constant(0, I64))
        within = self.splat(self.convert("trunc", bounded, "i32"), lanes)
        return self.compare("slt", lane_constants(range(lanes), "i32"), within)

    def load_vector(self, at: LlvmValue, format: ElementFormat, align: int = 0) -> LlvmValue:
        """Load stored elements and convert them to what is summed."""
        type = Type(format.stored.element, format.lanes)
        found = self.instruction(f"load {type}, ptr {at}, align {align or format.stored_bytes}", type)
        return vectors.cast(self, found, format.dtype, format.accumulated)

    def load_first(self, at: LlvmValue, count: LlvmValue, format: ElementFormat) -> LlvmValue:
        """Load and convert the first elements of a vector, `count` or all; others are not read, and 0."""
        type = Type(format.stored.element, format.lanes)
        if format.has_masks:
            mask = self.first_lanes(count, format.lanes)
            return vectors.cast(self, self.load_masked(at, mask, format), format.dtype, format.accumulated)
        buffer = self.allocate(format.lanes * format.stored_bytes, "some")
        self.effect(f"store {type} zeroinitializer, ptr {buffer}, align 64")
        with self.counted("lane", 0, self.least(count, format.lanes)) as n:
            self._copy_element(
                self.offset(buffer, str(format.stored), n), self.offset(at, str(format.stored), n), format
            )
        found = self.instruction(f"load {type}, ptr {buffer}, align 64", type)
        return vectors.cast(self, found, format.dtype, format.accumulated)

    def load_masked(self, at: LlvmValue, mask: LlvmValue, format: ElementFormat) -> LlvmValue:
        """Load the stored elements of some lanes; the others are 0."""
        type = Type(format.stored.element, format.lanes)
        name = f"llvm.masked.load.{type.short}.p0"
        self.declarations.setdefault(name, f"declare {type} @{name}(ptr, i32, {mask.type}, {type})")
        arguments = f"ptr {at}, i32 {format.stored_bytes}, {mask.type} {mask}, {type} zeroinitializer"
        return self.instruction(f"call {type} @{name}({arguments})", type)

    def store_first(self, x: LlvmValue, at: LlvmValue, count: LlvmValue, format: ElementFormat) -> None:
        """Convert sums to stored elements, and store the first of them, `count` or all."""
        x = vectors.cast(self, x, format.accumulated, format.dtype)
        if format.has_masks:
            self.store_masked(x, at, self.first_lanes(count, format.lanes), format)
            return
        buffer = self.allocate(format.lanes * format.stored_bytes, "some")
        self.effect(f"store {x.type} {x}, ptr {buffer}, align 64")
        with self.counted("lane", 0, self.least(count, format.lanes)) as n:
            self._copy_element(
                self.offset(at, str(format.stored), n), self.offset(buffer, str(format.stored), n), format
            )

    def store_masked(self, x: LlvmValue, at: LlvmValue, mask: LlvmValue, format: ElementFormat) -> None:
        name = f"llvm.masked.store.{x.type.short}.p0"
        self.declarations.setdefault(name, f"declare void @{name}({x.type}, ptr, i32, {mask.type})")
        self.effect(f"call void @{name}({x.type} {x}, ptr {at}, i32 {format.stored_bytes}, {mask.type} {mask})")

    def _copy_element(self, to: LlvmValue, source: LlvmValue, format: ElementFormat) -> None:
        found = self.instruction(f"load {format.stored}, ptr {source}, align {format.stored_bytes}", format.stored)
        self.effect(f"store {format.stored} {found}, ptr {to}, align {format.stored_bytes}")
