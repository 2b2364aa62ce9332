"""Traverse statements and expressions."""

from __future__ import annotations

from collections.abc import Iterator

from . import thread_ir as ir


def blocks_of(statement: ir.Statement) -> tuple[tuple[ir.Statement, ...], ...]:
    """Return the nested blocks of a statement."""
    match statement:
        case ir.IfStatement(body=body, other=other):
            return body, other
        case ir.WhileStatement(body=body) | ir.ForStatement(body=body):
            return (body,)
        case _:
            return ()


def expressions_of(statement: ir.Statement) -> tuple[ir.Expression, ...]:
    """Return the expressions directly in a statement."""
    match statement:
        case ir.AssignStatement(value=value) | ir.ExpressionStatement(value=value):
            return (value,)
        case ir.StoreStatement(target=target, value=value):
            return target, value
        case (
            ir.IfStatement(condition=condition)
            | ir.WhileStatement(condition=condition)
            | ir.AssertStatement(condition=condition)
        ):
            return (condition,)
        case ir.ForStatement(start=start, stop=stop, step=step):
            return start, stop, step
        case ir.ReturnStatement(value=ir.Expression() as value):
            return (value,)
        case ir.LaunchStatement(grid=grid, block=block, shared=shared, arguments=arguments):
            return (*grid, *block, shared, *[x for x in arguments if isinstance(x, ir.Expression)])
        case _:
            return ()


def children(x: ir.Expression) -> list[ir.Expression]:
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
    for y in children(x):
        yield from subexpressions(y)
