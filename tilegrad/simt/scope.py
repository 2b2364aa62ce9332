"""Scope of a routine while it is read: names and their types, arrays, and definite assignment."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import Any

from ..errors import KernelSourceError
from ..ir.dtype import DType
from ..tiles.read.source import KernelLocation
from .kinds import NameType, UnsupportedCode, join_types
from .thread_ir import Argument, Array, Routine


class RoutineScope:
    """State of one reading; `known` has the types that the previous reading inferred."""

    def __init__(self, function: Any, parameters: dict[str, Any], known: dict[str, NameType], final: bool) -> None:
        self.function = function
        self.source = function.source_text
        self.given = parameters
        self.known = known
        self.final = final
        """Whether all types are final, so that type errors are reported."""
        self.changed = False
        self.fixed: dict[str, DType] = {}
        """Types that were declared."""
        self.types: dict[str, DType] = {}
        self.assigned: set[str] = set()
        self.partly: dict[str, str] = {}
        """Names without a value at this point, and why."""
        self.arrays: dict[str, Array] = {}
        self.own: list[Array] = []
        self.accessed: dict[str, set[str]] = defaultdict(set)
        self.routines: list[Routine] = []
        self.loops: list[str] = []
        """Variables of the enclosing loops."""
        self.depth = 0
        for name, value in parameters.items():
            if isinstance(value, Array):
                self.arrays[name] = value
            elif isinstance(value, DType):
                self.fixed[name] = value
                self.known.setdefault(name, NameType(value))
                self.assigned.add(name)

    def parameters(self) -> tuple[Argument, ...]:
        from .thread_ir import VariableReference

        return tuple(
            [
                x if isinstance(x, Array) else VariableReference(x, name)
                for name, x in self.given.items()
                if isinstance(x, Array | DType)
            ]
        )

    def give(self, name: str, kind: NameType) -> DType:
        """Record an assignment to a name, and return the name's type."""
        if name in self.fixed:
            dtype = self.fixed[name]
            if kind.dtype.is_float and not dtype.is_float and not kind.open:
                raise UnsupportedCode(
                    f"`{name}` is {dtype.name}, and is given {kind.dtype.name}: convert it, simt.{dtype.name}(...)"
                )
            if kind.open and kind.dtype.is_float and not dtype.is_float:
                raise UnsupportedCode(f"`{name}` is {dtype.name}, and is given a number with a fraction")
            return dtype
        old = self.known.get(name)
        new = kind if old is None else join_types(name, old, kind)
        if new != old:
            self.known[name] = new
            self.changed = True
        self.types[name] = new.dtype
        return new.dtype

    def access(self, array: Array, how: str) -> None:
        self.accessed[array.name].add(how)

    def outside(self, name: str) -> tuple[Any] | None:
        """Look up a name in the function's closure, its module, or Python's builtins."""
        code = self.function.fn.__code__
        if name in code.co_freevars and self.function.fn.__closure__ is not None:
            try:
                return (self.function.fn.__closure__[code.co_freevars.index(name)].cell_contents,)
            except ValueError:
                return None
        names = self.function.fn.__globals__
        if name in names:
            return (names[name],)
        found = names.get("__builtins__", {})
        found = found if isinstance(found, dict) else vars(found)
        return (found[name],) if name in found else None

    def place(self, node: ast.AST) -> KernelLocation:
        return KernelLocation(self.source, node)

    def wrong(self, node: ast.AST, reason: str) -> KernelSourceError:
        return self.place(node).error(reason)
