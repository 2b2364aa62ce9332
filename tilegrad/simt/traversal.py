"""Traverse statements and expressions."""

from __future__ import annotations

from collections.abc import Iterator

from .thread_ir import (
    AssertStatement,
    AssignStatement,
    Expression,
    ExpressionStatement,
    ForStatement,
    IfStatement,
    LaunchStatement,
    ReturnStatement,
    Statement,
    StoreStatement,
    WhileStatement,
)


def blocks_of(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """Return the nested blocks of a statement."""
    match statement:
        case IfStatement(body=body, other=other):
            return body, other
        case WhileStatement(body=body) | ForStatement(body=body):
            return (body,)
        case _:
            return ()


def expressions_of(statement: Statement) -> tuple[Expression, ...]:
    """Return the expressions directly in a statement."""
    match statement:
        case AssignStatement(value=value) | ExpressionStatement(value=value):
            return (value,)
        case StoreStatement(target=target, value=value):
            return target, value
        case (
            IfStatement(condition=condition)
            | WhileStatement(condition=condition)
            | AssertStatement(condition=condition)
        ):
            return (condition,)
        case ForStatement(start=start, stop=stop, step=step):
            return start, stop, step
        case ReturnStatement(value=Expression() as value):
            return (value,)
        case LaunchStatement(grid=grid, block=block, shared=shared, arguments=arguments):
            return (*grid, *block, shared, *[x for x in arguments if isinstance(x, Expression)])
        case _:
            return ()


def children(x: Expression) -> list[Expression]:
    found: list[Expression] = []
    for field in x.fields:
        value = getattr(x, field)
        if isinstance(value, Expression):
            found.append(value)
        elif isinstance(value, tuple):
            found += [y for y in value if isinstance(y, Expression)]
    return found


def subexpressions(x: Expression) -> Iterator[Expression]:
    """Yield an expression and its subexpressions."""
    yield x
    for y in children(x):
        yield from subexpressions(y)
