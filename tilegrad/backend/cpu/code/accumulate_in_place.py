"""Find matrix products that may accumulate in the memory of their accumulator, whose old value is dead."""

from __future__ import annotations

from collections import Counter

from ....ir import tile as ir
from ....ir.tile_access import roots, statements, walk


def accumulated_in_place(kernel: ir.Kernel) -> frozenset[int]:
    """Return the identities of such products.

    >>> from ....ir.tile_parser import parse
    >>> kernel = parse('''
    ... def k(x: "*f32", out: "*f32"):
    ...     a = tl.load(x + tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :])
    ...     first = a * 2
    ...     total = tl.dot(a, a, first)
    ...     for t in range(3):
    ...         other = tl.dot(a, a, total)
    ...         total = tl.dot(a, a, total)
    ...     tl.store(out + tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :], total)
    ... ''')
    >>> found = accumulated_in_place(kernel)
    >>> assigned = [s for s in statements(kernel.body) if isinstance(s, ir.Assign)]
    >>> [s.name for s in assigned if id(s.value) in found]
    ['total', 'total']
    """
    every = list(statements(kernel.body))
    read = Counter(name for s in every for root in roots(s) for name in _names(root))
    made = Counter(s.name for s in every if isinstance(s, ir.Assign | ir.Atomic))
    once = {name for name, times in read.items() if times == 1 and made[name] == 1}
    found: set[int] = set()
    seen: set[int] = set()
    for body in _blocks(kernel.body):
        here = {s.name for s in body if isinstance(s, ir.Assign)} & once
        for s in body:
            target = s.name if isinstance(s, ir.Assign) else ""
            for x in (x for root in roots(s) for x in walk(root) if isinstance(x, ir.Dot)):
                again, name = id(x) in seen, x.accumulator.name if isinstance(x.accumulator, ir.Name) else ""
                seen.add(id(x))
                alone = name == target and sum(_names(root).count(name) for root in roots(s)) == 1
                if name and not again and (alone or name in here):
                    found.add(id(x))
                elif again:
                    found.discard(id(x))
    return frozenset(found)


def _names(x: ir.Tile) -> list[str]:
    """List the names in an expression, once per use."""
    parts = [x, *[part for whole in walk(x) for part in ir.parts(whole)]]
    return [part.name for part in parts if isinstance(part, ir.Name)]


def _blocks(body: tuple[ir.Statement, ...]) -> list[tuple[ir.Statement, ...]]:
    """List a block and the blocks nested in it."""
    found = [body]
    for s in body:
        match s:
            case ir.For(body=inner) | ir.While(body=inner):
                found += _blocks(inner)
            case ir.If(_, then, otherwise):
                found += _blocks(then) + _blocks(otherwise)
    return found
