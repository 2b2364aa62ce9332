"""Walk kernels, and find the memory that a kernel reads and writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .node import cache_fact
from .precision import Precision
from .tile import Assert, Assign, Atomic, Dot, For, If, Kernel, Load, Name, Print, Statement, Store, Tile, While, parts
from .tile_types import Types


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """List every statement, including those of nested blocks."""
    for statement in body:
        yield statement
        match statement:
            case For(body=inner) | While(body=inner):
                yield from statements(inner)
            case If(_, then, otherwise):
                yield from statements(then)
                yield from statements(otherwise)


def roots(statement: Statement) -> tuple[Tile, ...]:
    """List the expressions of a statement itself."""
    match statement:
        case Assign(_, value):
            return (value,)
        case Store(pointer, value, mask):
            return (pointer, value) if mask is None else (pointer, value, mask)
        case Atomic(_, pointer, value, mask, expected):
            return tuple([x for x in (pointer, value, mask, expected) if x is not None])
        case Print(_, values):
            return values
        case Assert(condition):
            return (condition,)
        case For(_, start, stop, step, _):
            return (start, stop, step)
        case While(condition) | If(condition):
            return (condition,)


def walk(*tiles: Tile) -> tuple[Tile, ...]:
    """List every expression object once, parents before operands; what is below one expression is kept with it."""
    if len(tiles) != 1:
        return tuple(_below(tiles))
    (x,) = tiles
    found: tuple[Tile, ...] | None = x.__dict__.get("_below")
    if found is None:
        _, *others = _below(tiles)
        found = tuple(others)
        cache_fact(x, "_below", found)  # without the expression itself, which would then never be freed
    return (x, *found)


def _below(tiles: tuple[Tile, ...]) -> Iterable[Tile]:
    order: dict[int, Tile] = {}
    stack = list(reversed(tiles))
    while stack:
        x = stack.pop()
        if id(x) not in order:
            order[id(x)] = x
            inside = x.__dict__.get("_parts")
            if inside is None:
                inside = parts(x)
            if inside:
                stack += inside[::-1]
    return order.values()


def expressions(*body: Statement) -> tuple[Tile, ...]:
    """List every expression object of statements once, including those of nested blocks."""
    return walk(*(root for s in statements(body) for root in roots(s)))


def names_in(*tiles: Tile) -> set[str]:
    """Return the names in expressions."""
    return {x.name for x in walk(*tiles) if type(x) is Name}


def names_read(statement: Statement) -> set[str]:
    """Return the names in the expressions of a statement itself."""
    return names_in(*roots(statement))


def assigned_name(statement: Statement) -> str:
    """Return the name that a statement assigns, or ""; a loop assigns its index."""
    match statement:
        case Assign(name=name) | Atomic(name=name) | For(index=name):
            return name
    return ""


def count_assignments(body: tuple[Statement, ...]) -> Counter[str]:
    """Count the assignments of each name."""
    return Counter(filter(None, map(assigned_name, statements(body))))


class Accesses(NamedTuple):
    """Names of pointer parameters that a kernel loads from and stores to."""

    loaded: frozenset[str]
    stored: frozenset[str]


def precisions(kernel: Kernel) -> list[Precision]:
    """List the precisions of dots below float32's, sorted by name."""
    return sorted({x.precision for x in expressions(*kernel.body) if isinstance(x, Dot)} - {"highest"})


def accesses(kernel: Kernel, types: Types) -> Accesses:
    """Find the parameters that a kernel reads through and writes through.

    >>> from .tile_checker import check
    >>> from .tile_parser import parse
    >>> kernel = parse('''
    ... def copy(x: "*f32", out: "*f32", n: "i32"):
    ...     p = x + n
    ...     tl.store(out + n, tl.load(p))
    ... ''')
    >>> found = accesses(kernel, check(kernel))
    >>> sorted(found.loaded), sorted(found.stored)
    (['x'], ['out'])
    """
    bases = PointerBases(kernel, types)
    loaded: set[str] = set()
    stored: set[str] = set()
    for s in statements(kernel.body):
        loaded.update(*(bases.of(x.pointer) for x in walk(*roots(s)) if isinstance(x, Load)))
        if isinstance(s, Store | Atomic):
            stored |= bases.of(s.pointer)
        if isinstance(s, Atomic):
            loaded |= bases.of(s.pointer)
    return Accesses(frozenset(loaded), frozenset(stored))


class PointerBases:
    """The parameters whose memory the pointers of a kernel may refer to."""

    def __init__(self, kernel: Kernel, types: Types) -> None:
        self._types = types
        self._bases = {p.name: {p.name} for p in kernel.parameters if p.pointer}
        moved = [s for s in statements(kernel.body) if isinstance(s, Assign) and types.variables[s.name].pointer]
        for _ in moved:  # a name may stand for another name, and so on
            for assign in moved:
                self._bases.setdefault(assign.name, set()).update(self.of(assign.value))

    def of(self, pointer: Tile) -> set[str]:
        """List the parameters that a pointer may refer to."""
        return set().union(*(self._bases.get(name, ()) for name in _pointers(pointer, self._types)))


def stored_through(kernel: Kernel, types: Types) -> set[str]:
    """List the pointers (parameters, variables) that are stored through, directly or by a derived pointer."""
    every = list(statements(kernel.body))
    moved = [s for s in every if isinstance(s, Assign) and types.variables[s.name].pointer]
    found = {n for s in every if isinstance(s, Store | Atomic) for n in _pointers(s.pointer, types)}
    for _ in moved:
        found |= {n for s in moved if s.name in found for n in _pointers(s.value, types)}
    return found


def _pointers(x: Tile, types: Types) -> Iterator[str]:
    """List the names of the pointers that a pointer expression is made of."""
    if isinstance(x, Name):
        yield x.name
    for part in parts(x):
        if types.of(part).pointer:
            yield from _pointers(part, types)
