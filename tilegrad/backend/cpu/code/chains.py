"""Find what a long chain of names is made of, so that it is evaluated from its beginning and not by deep recursion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ....ir import tile as ir

if TYPE_CHECKING:
    from .elements import ElementEvaluator

MAX_RECURSION = 60
"""Nesting depth of expressions evaluated by recursion."""


def names_below(e: ElementEvaluator, x: ir.Tile) -> list[ir.Name]:
    """List the names that stand for expressions of the shape of `x` inside it, the first ones first."""
    shape, order, seen = e.shape(x), list[ir.Name](), set[str]()
    stack: list[ir.Tile | str] = [x]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            order.append(ir.Name(part))
        elif isinstance(part, ir.Name):
            if part.name in e.inlined and part.name not in seen and e.shape(part) == shape:
                seen.add(part.name)
                stack += [part.name, e.inlined[part.name]]
        elif isinstance(part, ir.Apply | ir.Cast) and id(part) not in e.computed:
            stack += ir.parts(part)
    return [name for name in order if name != x]


def parts_first(x: ir.Tile, inlined: Mapping[str, ir.Tile], seen: set[str]) -> Iterator[ir.Tile]:
    """Give the expressions in an expression, parts before wholes; those that names stand for once, if not `seen`."""
    stack = [(x, False)]
    while stack:
        part, parts_done = stack.pop()
        if parts_done:
            yield part
        elif not isinstance(part, ir.Name):
            stack.append((part, True))
            stack += [(y, False) for y in reversed(ir.parts(part))]
        elif part.name in inlined and part.name not in seen:
            seen.add(part.name)
            stack.append((inlined[part.name], False))
