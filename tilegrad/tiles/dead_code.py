"""Eliminate dead code: unused assignments, copies of names, compiler hints."""

from __future__ import annotations

from ..ir.tile import Assign, Atomic, For, If, Kernel, Statement, While
from ..ir.tile_access import names_read, statements
from .read.source import KernelLocation

Places = dict[int, tuple[Statement, KernelLocation]]


def eliminate_dead_code(kernel: Kernel, places: Places) -> tuple[Kernel, Places]:
    """Remove assignments that nothing reads; the remaining statements keep their source locations.

    >>> from ..ir.tile_parser import parse
    >>> kernel = parse('''
    ... def f(x: "*f32"):
    ...     a = tl.load(x)
    ...     b = a + 1
    ...     if a > 0:
    ...         c = b
    ...     tl.store(x, a)
    ... ''')
    >>> print(eliminate_dead_code(kernel, {})[0])
    @tg.kernel
    def f(x: "*f32"):
        a = tl.load(x)
        tl.store(x, a)
    """
    while True:
        used = {name for s in statements(kernel.body) for name in names_read(s)}
        body = _block(kernel.body, used, places)
        if body == kernel.body:
            return kernel, places
        kernel = kernel.replaced(body=body)


def _block(body: tuple[Statement, ...], used: set[str], places: Places) -> tuple[Statement, ...]:
    made = []
    for statement in body:
        new = _statement(statement, used, places)
        if new is not None:
            if new is not statement and id(statement) in places:
                places[id(new)] = (new, places[id(statement)][1])
            made.append(new)
    return tuple(made)


def _statement(statement: Statement, used: set[str], places: Places) -> Statement | None:
    match statement:
        case Assign(name) if name not in used:
            return None
        case Atomic(name=name) if name and name not in used:
            return statement.replaced(name="")  # type: ignore[no-any-return]
        case For(body=inner) | While(body=inner):
            body = _block(inner, used, places)
            if not body and isinstance(statement, For):
                return None
            return statement if _same(body, inner) else statement.replaced(body=body)
        case If(_, then, otherwise):
            return _branches(statement, _block(then, used, places), _block(otherwise, used, places))
    return statement


def _branches(statement: If, then: tuple[Statement, ...], otherwise: tuple[Statement, ...]) -> If | None:
    if not then and not otherwise:
        return None
    same = _same(then, statement.body) and _same(otherwise, statement.otherwise)
    return statement if same else If(statement.condition, then, otherwise)


def _same(x: tuple[Statement, ...], y: tuple[Statement, ...]) -> bool:
    return len(x) == len(y) and all(a is b for a, b in zip(x, y, strict=True))
