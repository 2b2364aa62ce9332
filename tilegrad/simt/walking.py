"""Traverse statements and expressions."""

from __future__ import annotations

from collections.abc import Iterator

from .form import Assign, Claim, Expression, For, If, Launch, Return, Run, Statement, Store, While


def blocks_of(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """Return the nested blocks of a statement."""
    match statement:
        case If(body=body, other=other):
            return body, other
        case While(body=body) | For(body=body):
            return (body,)
        case _:
            return ()


def expressions_of(statement: Statement) -> tuple[Expression, ...]:
    """Return the expressions directly in a statement."""
    match statement:
        case Assign(value=value) | Run(value=value):
            return (value,)
        case Store(target=target, value=value):
            return target, value
        case If(condition=condition) | While(condition=condition) | Claim(condition=condition):
            return (condition,)
        case For(start=start, stop=stop, step=step):
            return start, stop, step
        case Return(value=Expression() as value):
            return (value,)
        case Launch(grid=grid, block=block, shared=shared, arguments=arguments):
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


def parts(x: Expression) -> Iterator[Expression]:
    """Yield an expression and its subexpressions."""
    yield x
    for y in children(x):
        yield from parts(y)
