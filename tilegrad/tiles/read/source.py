"""Source text of a kernel function, and error locations in it."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Callable
from functools import lru_cache
from tokenize import TokenError
from typing import Any, NamedTuple

from ...errors import KernelError, KernelSourceError

MAX_MODULE_LINES = 1000
"""Lines of a module up to which it is parsed as a whole, which is quicker than to find the end of each function."""


class FunctionSource:
    """The source text and syntax tree of a function."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.name = fn.__name__
        self.file = fn.__code__.co_filename
        try:
            text, self.first, parsed = _source_of(fn)
        except (OSError, TypeError, SyntaxError, TokenError, IndexError):
            raise self._unknown() from None
        self.indent = len(text) - len(text.lstrip(" ")) if text else 0
        self.lines = text.split("\n")
        if self.name == "<lambda>":
            raise KernelError(f"{self.name} is no function defined by `def`: a kernel is")
        if not isinstance(parsed, ast.FunctionDef) or parsed.name != inspect.unwrap(fn).__code__.co_name:
            raise self._unknown()  # text of another program, whose file has the same name: "<string>"
        self.tree = parsed
        self._assigned: dict[int, frozenset[str]] = {}

    def assigned_names(self, body: list[ast.stmt]) -> frozenset[str]:
        """Return the names that the statements of a block of this function assign."""
        found = self._assigned.get(id(body))
        if found is None:
            nodes = (node for statement in body for node in ast.walk(statement))
            found = frozenset(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            self._assigned[id(body)] = found
        return found

    def place(self, node: ast.AST) -> KernelLocation:
        return KernelLocation(self, node)

    def _unknown(self) -> KernelError:
        return KernelError(
            f"the source of kernel {self.name} cannot be found: a kernel is read from its source; put it in a file"
        )


def _source_of(fn: Callable[..., Any]) -> tuple[str, int, ast.stmt]:
    """Return the text of a function, its first line and its tree, whose lines count from there."""
    if inspect.isfunction(fn) and fn.__code__.co_name == fn.__qualname__ and not hasattr(fn, "__wrapped__"):
        lines, index = inspect.findsource(fn)
        if len(lines) <= MAX_MODULE_LINES:
            tree = _functions_of("".join(lines)).get(index + 1)
            if tree is not None:
                return "".join(lines[index : index + (tree.end_lineno or 1)]), index + 1, tree
    lines, first = inspect.getsourcelines(fn)
    text = "".join(lines)
    return text, first, ast.parse(textwrap.dedent(text)).body[0]


@lru_cache(16)
def _functions_of(text: str) -> dict[int, ast.FunctionDef]:
    """Parse a module and return its functions by their first line; a tree's lines count from there."""
    found: dict[int, ast.FunctionDef] = {}
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return found  # a document, of which only blocks are Python
    for node in body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[first] = ast.increment_lineno(node, 1 - first)
    return found


class KernelLocation(NamedTuple):
    """A location in a kernel's source."""

    source: FunctionSource
    node: ast.AST

    @property
    def line(self) -> int:
        return self.source.first + int(getattr(self.node, "lineno", 1)) - 1

    def __str__(self) -> str:
        return f"{os.path.basename(self.source.file)}:{self.line}"

    def marked(self) -> str:
        """Return the source line with carets below the node."""
        row = int(getattr(self.node, "lineno", 1))
        text = self.source.lines[row - 1] if row <= len(self.source.lines) else ""
        raw = text[self.source.indent :].encode()
        begin = int(getattr(self.node, "col_offset", 0))
        end = self.node.end_col_offset if getattr(self.node, "end_lineno", 0) == row else len(raw)  # type: ignore[attr-defined]
        column, width = len(raw[:begin].decode()), len(raw[begin:end].decode())
        return f"    {text[self.source.indent :]}\n    {' ' * column}{'^' * max(1, width)}"

    def error(self, reason: str, called: tuple[KernelLocation, ...] = ()) -> KernelSourceError:
        """Make an error at this location; `called` are the calls that led here, innermost first."""
        message = f"kernel {self.source.name}, {self}: {reason}\n{self.marked()}"
        message += "".join(f"\n  called by {place.source.name}, {place}:\n{place.marked()}" for place in called)
        return KernelSourceError(message)
