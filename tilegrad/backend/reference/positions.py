"""Which expressions of a kernel compute where it reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.tile import Assign, For, If, Kernel, Load, Name, Statement, Store, Tile, While, parts


def position_parts(kernel: Kernel) -> frozenset[int]:
    """The identities of the expressions that an address follows from, through names too.

    What is loaded ends the search: an index that was read from memory is data.
    """
    statements = list(_all(kernel.body))
    found: set[int] = set()
    names: set[str] = set()

    def mark(x: Tile) -> None:
        if id(x) in found:
            return
        found.add(id(x))
        if isinstance(x, Name):
            names.add(x.name)
        elif not isinstance(x, Load):
            for part in parts(x):
                mark(part)

    for statement in statements:
        for root in _roots(statement):
            for x in _walk(root):
                if isinstance(x, Load):
                    mark(x.pointer)
        if isinstance(statement, Store):
            mark(statement.pointer)
    before = -1
    while before != len(found) + len(names):
        before = len(found) + len(names)
        for statement in statements:
            if isinstance(statement, Assign) and statement.name in names:
                mark(statement.value)
    return frozenset(found)


def _all(body: tuple[Statement, ...]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        match statement:
            case For(body=inner) | While(body=inner):
                yield from _all(inner)
            case If(_, then, otherwise):
                yield from _all((*then, *otherwise))


def _roots(statement: Statement) -> tuple[Tile, ...]:
    match statement:
        case Assign(_, value):
            return (value,)
        case Store(pointer, value, mask):
            return (pointer, value) if mask is None else (pointer, value, mask)
        case For(_, start, stop, step, _):
            return (start, stop, step)
        case While(condition) | If(condition):
            return (condition,)


def _walk(root: Tile) -> Iterator[Tile]:
    seen: set[int] = set()
    stack = [root]
    while stack:
        x = stack.pop()
        if id(x) not in seen:
            seen.add(id(x))
            yield x
            stack.extend(parts(x))
