"""Type-check a kernel.

One pass over the statements; errors name the kernel, the statement and the reason.
"""

from __future__ import annotations

from keyword import iskeyword

from ..errors import KernelError
from .dtype import DType, bool_
from .tile import ATOMICS, Assert, Assign, Atomic, For, If, Kernel, Literal, Print, Statement, Store, Tile, While
from .tile_types import (
    Refused,
    TileType,
    Types,
    mask_fits,
    pointer_type,
    spreads,
)

__all__ = ["KernelChecker", "Mistake", "Refused", "TileType", "Types", "check", "loop_dtype"]

_RESERVED = frozenset({"tl", "tg", "range", "float"})
"""Names reserved by the printed form of a kernel."""


class Mistake(KernelError):
    """An invalid statement: the reason, and the part at fault."""

    def __init__(self, kernel: str, statement: Statement, reason: str, tile: Tile | None) -> None:
        from .tile_printer import show_statement

        text = show_statement(statement).split("\n")[0]
        super().__init__(f"kernel {kernel}: in `{text}`: {reason}")
        self.statement, self.reason, self.tile = statement, reason, tile


def check(kernel: Kernel) -> Types:
    """Return the types of a kernel's variables and expressions; raise KernelError if it is wrong.

    >>> from .dtype import int32
    >>> from .tile import Arange, Name, TileParameter
    >>> kernel = Kernel("k", (TileParameter("n", int32, pointer=False),), (Assign("i", Arange(0, 8)),))
    >>> types = check(kernel)
    >>> print(types.variables["n"], types.variables["i"], types.of(Name("i")))
    i32 i32[8] i32[8]
    """
    checker = KernelChecker(kernel)
    for statement in kernel.body:
        checker.statement(statement)
    return checker.finished()


class KernelChecker:
    """Checks the statements of a kernel in order."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel.name
        self.variables: dict[str, TileType] = {}
        """Every name of the kernel with its type, which is the same in all scopes."""
        self.types = Types({})
        """The types of the names in scope."""
        self.beyond: dict[int, tuple[Tile, TileType]] = {}
        """Types of expressions in blocks that have been left."""
        self.indices: list[str] = []
        if not kernel.name.isidentifier() or iskeyword(kernel.name):
            raise KernelError(f"`{kernel.name}` cannot be the name of a kernel")
        for p in kernel.parameters:
            if p.name in self.types.variables:
                raise KernelError(f"kernel {self.kernel}: two parameters have the name `{p.name}`")
            try:
                self.bind(p.name, TileType(p.dtype, (), p.pointer))
            except Refused as refused:
                raise KernelError(f"kernel {self.kernel}: {refused.reason}") from None

    def finished(self) -> Types:
        """Return the types of the whole kernel, ignoring scopes."""
        types = Types(self.variables)
        types.known = {**self.beyond, **self.types.known}
        return types

    def statement(self, statement: Statement) -> None:
        try:
            self.check(statement)
        except Refused as refused:
            raise Mistake(self.kernel, statement, self.explained(refused), refused.tile) from None

    def explained(self, refused: Refused) -> str:
        prefix = "there is no variable `"
        name = refused.reason.removeprefix(prefix)[:-1]
        if refused.reason.startswith(prefix) and name in self.variables:
            return f"`{name}` is known only inside the block that assigns it: give it a value before that block"
        return refused.reason

    def check(self, statement: Statement) -> None:
        match statement:
            case Assign(name, value):
                if name in self.indices:
                    raise Refused(f"`{name}` counts the loop around it and cannot be assigned")
                self.bind(name, self.types.of(value))
            case Store(pointer, value, mask):
                self.store(pointer, value, mask)
            case Atomic():
                self.atomic(statement)
            case Print(_, values):
                for value in values:
                    self.types.number(value)
            case Assert(condition):
                self.types.takes(condition, bool_, "the condition")
            case For():
                self.loop(statement)
            case While(condition, body):
                self.condition(condition)
                self.block(body)
            case If(condition, body, otherwise):
                self.condition(condition)
                self.block(body)
                self.block(otherwise)
            case _:
                raise Refused(f"{type(statement).__name__} is no statement")

    def bind(self, name: str, found: TileType) -> None:
        """Bind a name to a value of a type; a second binding must have the same type."""
        before = self.types.variables.get(name)
        if before is None:
            if not name.isidentifier() or iskeyword(name) or name in _RESERVED:
                raise Refused(f"`{name}` cannot be the name of a variable")
            before = self.variables.setdefault(name, found)
            self.types.variables[name] = found
        if before is not found and before != found:
            raise Refused(f"`{name}` is {before} elsewhere and would be {found} here: take another name, or convert")

    def store(self, pointer: Tile, value: Tile, mask: Tile | None) -> None:
        target = pointer_type(self.types, pointer)
        mask_fits(self.types, mask, target)
        shape = self.types.takes(value, target.dtype, "the value")
        if not spreads(shape, target.shape):
            raise Refused(f"a value of shape {list(shape)} does not fit pointers of {list(target.shape)}", value)

    def atomic(self, x: Atomic) -> None:
        if x.fn not in ATOMICS:
            raise Refused(f"there is no atomic {x.fn}: there are {', '.join(ATOMICS)}")
        if (x.fn == "cas") != (x.expected is not None):
            raise Refused("cas compares with an expected value, and nothing else does")
        self.store(x.pointer, x.value, x.mask)
        target = pointer_type(self.types, x.pointer)
        if x.fn in ("and", "or", "xor") and target.dtype.is_float:
            raise Refused(f"atomic_{x.fn} takes integers, and `{x.pointer}` is {target}")
        if x.expected is not None:
            self.types.takes(x.expected, target.dtype, "the expected value")
        if x.name:
            self.bind(x.name, TileType(target.dtype, target.shape))

    def loop(self, loop: For) -> None:
        dtype = loop_dtype(self.types, loop)
        if loop.index in self.types.variables:
            raise Refused(f"`{loop.index}` is a variable already: take another name for the index")
        self.indices.append(loop.index)
        self.block(loop.body, {loop.index: TileType(dtype)})
        self.indices.pop()

    def condition(self, condition: Tile) -> None:
        found = self.types.of(condition)
        if found != TileType(bool_):
            raise Refused(f"a condition is one bool, and `{condition}` is {found}: reduce it with tl.any or tl.all")

    def block(self, body: tuple[Statement, ...], names: dict[str, TileType] = {}) -> None:
        """Check a nested block; its own names, and the expressions that use them, go out of scope after it."""
        outer = self.enter()
        for name, found in names.items():
            self.bind(name, found)
        for statement in body:
            self.statement(statement)
        self.leave(outer)

    def enter(self) -> Types:
        outer, self.types = self.types, Types(dict(self.types.variables))
        self.types.known = dict(outer.known)
        return outer

    def leave(self, outer: Types) -> None:
        self.beyond.update(self.types.known)
        self.types = outer


def loop_dtype(types: Types, loop: For) -> DType:
    """Return the dtype of a loop index: the widest of its bounds, int32 if all bounds are literals."""
    bounds = (loop.start, loop.stop, loop.step)
    found = [types.number(x) for x in bounds]
    if any(t.shape for t in found) or not all(t.dtype.is_integer for t in found):
        raise Refused(f"the bounds of a loop are single integers, and not {', '.join(map(str, found))}")
    if isinstance(loop.step, Literal) and loop.step.value <= 0:
        raise Refused("the step of a loop is positive", loop.step)
    return types.meet(loop.stop, bounds)
