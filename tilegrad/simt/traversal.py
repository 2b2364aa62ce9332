"""Traverse statements and expressions."""

from __future__ import annotations

from collections.abc import Iterator

from . import thread_ir as ir


def blocks_of(statement: ir.Statement) -> tuple[tuple[ir.Statement, ...], ...]:
    """Return the nested blocks of a statement."""
    return tuple([getattr(statement, field) for field in ("body", "other") if field in statement.fields])


def expressions_of(x: ir.Statement | ir.Expression) -> list[ir.Expression]:
    """Return the expressions directly in a statement or an expression."""
    found: list[ir.Expression] = []
    for field in x.fields:
        value = getattr(x, field)
        if isinstance(value, ir.Expression):
            found.append(value)
        elif isinstance(value, tuple):
            found += [y for y in value if isinstance(y, ir.Expression)]
    return found


def subexpressions(x: ir.Expression) -> Iterator[ir.Expression]:
    """Yield an expression and its subexpressions."""
    yield x
    for y in expressions_of(x):
        yield from subexpressions(y)
