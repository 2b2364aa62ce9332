"""Read a user's kernel, specialised for types and constants, into a tile kernel.

An abstract interpreter of the function's syntax tree; its values are Python constants or symbolic tiles
(`expressions.py`). Branches on constants are decided at once and calls of other kernels are inlined; loops and branches
that depend on tiles become those of the tile language, and names that they assign become its variables.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from ...errors import KernelError, KernelSourceError
from ...ir.tile import Kernel, Literal, Name, Statement, Tile, TileParameter
from ...ir.tile_checker import Mistake, Types, check
from ...ir.tile_types import Refused, TileType
from ..dead_code import eliminate_dead_code
from .control_flow import FlowReader
from .scope import FunctionScope, TileFunction
from .source import KernelLocation
from .values import SymbolicTile, Unbound, describe, map_leaves

MAX_CALL_DEPTH = 60
"""Nesting depth of calls at which recursion is reported."""


class ReadKernel(NamedTuple):
    """A kernel that was read, with the source locations of its statements and expressions (by identity)."""

    kernel: Kernel
    places: dict[int, tuple[Statement, KernelLocation]]
    types: Types
    parts: dict[int, tuple[Tile, KernelLocation]]
    captured: dict[tuple[int, str], Any]
    hidden: tuple[TileParameter, ...]
    """Implicit parameters: pointers to address 0, for pointers made of integer addresses."""


def read_kernel(fn: TileFunction, arguments: Mapping[str, Any], parameters: tuple[TileParameter, ...]) -> ReadKernel:
    """Read a function into a tile kernel; `arguments` are the constants, `parameters` everything else."""
    reader = KernelReader(parameters)
    names = {**arguments}
    for p in parameters:
        names.setdefault(p.name, SymbolicTile(Name(p.name), TileType(p.dtype, (), p.pointer)))
    return reader.read_whole(fn, names, parameters)


class KernelReader(FlowReader):
    """Reads statements; `used` collects the captured constants."""

    def __init__(self, parameters: tuple[TileParameter, ...]) -> None:
        super().__init__()
        self.used: dict[tuple[int, str], Any] = {}
        for p in parameters:
            self.types.variables[p.name] = TileType(p.dtype, (), p.pointer)
            self.home[p.name] = -1

    def read_whole(self, fn: TileFunction, names: dict[str, Any], parameters: tuple[TileParameter, ...]) -> ReadKernel:
        self.frame = FunctionScope(fn, {n: names[n] for n in fn.signature.parameters}, self.used)
        source = fn.source_text
        self.block_of(source.tree.body)
        result = self.frame.names.get("return")
        if result is not None:
            returns = [x for x in ast.walk(source.tree) if isinstance(x, ast.Return) and x.value is not None]
            raise self.error_at(returns[0], "a kernel that is launched returns nothing: store what it computes")
        origin = str(source.place(source.tree))
        hidden = tuple(self.hidden.values())
        kernel = Kernel(fn.fn.__name__, (*parameters, *hidden), tuple(self.open[0]), origin)
        kernel, places = eliminate_dead_code(kernel, self.places)
        try:
            types = check(kernel)
        except Mistake as mistake:
            found = self.parts.get(id(mistake.tile)) or places.get(id(mistake.statement))
            raise (found[1] if found else source.place(source.tree)).error(mistake.reason) from None
        except KernelError as error:
            raise source.place(source.tree).error(str(error)) from None
        return ReadKernel(kernel, places, types, self.parts, self.used, hidden)

    # --- statements ------------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> bool | None:
        self.at = self.frame.source.place(node)
        try:
            return self.run(node)
        except KernelSourceError:
            raise
        except Refused as refused:
            raise self.error_at(node, refused.reason) from None

    def run(self, node: ast.stmt) -> bool | None:
        match node:
            case ast.Assign(targets=targets, value=value):
                made = self.value(value)
                for target in targets:
                    self.bind(target, made)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.bind(target, self.value(value))
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self.at = self.frame.source.place(node)
                self.assign_name(name, self.operation(op, self.name(name), self.value(value)))
            case ast.Expr(value=value):
                self.expression_statement(value)
            case ast.Assert(test=test, msg=message):
                self.assertion(test, message)
            case ast.For():
                return self.loop(node)
            case ast.While():
                self.repeat(node)
            case ast.Pass() | ast.AnnAssign(value=None):
                pass
            case _:
                raise Refused(REMEDIES.get(type(node), f"{type(node).__name__} is not part of the tile language"))
        return None

    def expression_statement(self, node: ast.expr) -> None:
        if not isinstance(node, ast.Constant):
            self.value(node)

    def assertion(self, test: ast.expr, message: ast.expr | None) -> None:
        from .debugging import device_assert, static_assert

        condition = self.value(test)
        text = "" if message is None else self.value(message)
        (device_assert if isinstance(condition, SymbolicTile) else static_assert).run(self, (condition, text), {})

    def bind(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.assign_name(name, value)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                if not isinstance(value, tuple) or len(value) != len(parts):
                    count = f"{len(value)} values" if isinstance(value, tuple) else describe(value)
                    raise self.error_at(target, f"{count} cannot be given to {len(parts)} names")
                made = [self.hold_operand(x, parts) for x in value]
                for part, x in zip(parts, made, strict=True):
                    self.bind(part, x)
            case ast.Subscript():
                raise self.error_at(
                    target, "elements of a tile are not assigned: write y = tl.where(condition, new, y)"
                )
            case _:
                raise self.error_at(target, "only names are assigned in kernels")

    def hold_operand(self, x: Any, targets: list[ast.expr]) -> Any:
        """Hold one of several values assigned together, so that assigning the other names does not affect it."""
        if len(targets) > 1 and isinstance(x, SymbolicTile) and not isinstance(x.tile, Literal):
            changed = {n for t in targets if isinstance(t, ast.Name) for n in self.frame.mine.get(t.id, ())}
            if not isinstance(x.tile, Name) or x.tile.name in changed:
                return self.named(x, "next")
        return x

    # --- calls of other kernels ------------------------------------------------------------------

    def inline_call(self, fn: TileFunction, args: tuple[Any, ...], kwargs: dict[str, Any], place: Any) -> Any:
        if len(self.calls) >= MAX_CALL_DEPTH:
            raise Refused(f"{fn.fn.__name__} calls itself without an end that is known when the kernel is compiled")
        try:
            bound = fn.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise Refused(f"{fn.fn.__name__}: {error}; it takes {fn.shown_signature}") from None
        bound.apply_defaults()
        names: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            value = value.value if type(value).__name__ == "constexpr" else value
            names[name] = map_leaves(value, partial(self.held, hint=name))
        before = (self.frame, self.calls, self.at)
        self.frame, self.calls = FunctionScope(fn, names, self.used), (place, *self.calls)
        try:
            self.block_of(self.frame.source.tree.body)
            result = self.frame.names.get("return")
        finally:
            self.frame, self.calls, self.at = before
        if isinstance(result, Unbound):
            raise Refused(f"what {fn.fn.__name__} returns {result.reason}")
        return result


REMEDIES: dict[type, str] = {
    ast.Break: "there is no break: put the condition into a `while`, or the rest of the loop under an `if`",
    ast.Continue: "there is no continue: put the rest of the loop under an `if`",
    ast.Try: "kernels have no exceptions",
    ast.Raise: "kernels have no exceptions: use tl.device_assert, which `check` sees to",
    ast.With: "kernels have no `with`",
    ast.FunctionDef: "functions that kernels call are written outside of them, with @tilegrad.kernel",
    ast.ClassDef: "kernels define no classes",
    ast.Import: "imports stand outside of kernels",
    ast.ImportFrom: "imports stand outside of kernels",
    ast.Global: "a kernel changes nothing outside but what it stores",
    ast.Nonlocal: "a kernel changes nothing outside but what it stores",
    ast.Delete: "names need not be deleted",
    ast.AugAssign: "only names are changed in kernels: elements are stored with tl.store",
    ast.Match: "kernels have no match: use if and elif",
    ast.AsyncFor: "kernels do not wait",
}
"""Replacements to suggest for Python statements that the tile language does not have."""
