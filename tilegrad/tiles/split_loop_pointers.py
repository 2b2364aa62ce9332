"""Split loop-carried pointer tiles into a loop-invariant base and a scalar offset.

    p = x + i                          p = x + i
    for k in range(n):                 p_moved = 0
        v = tl.load(p)          ->     for k in range(n):
        p += step                          v = tl.load(p + p_moved)
                                           p_moved += step

A tile of pointers updated in each iteration would be held in memory and its elements gathered; an invariant tile plus a
scalar is a contiguous access.
"""

from __future__ import annotations

from ..ir.dtype import int64
from ..ir.tile import Apply, Assign, Cast, For, Full, Kernel, Literal, Name, Statement, Tile
from ..ir.tile_access import statements
from ..ir.tile_rewrite import substitute
from ..ir.tile_types import TileType, Types


def split_loop_pointers(kernel: Kernel, types: Types) -> Kernel:
    """Split every such tile of a kernel."""
    counts: dict[str, int] = {}
    for statement in statements(kernel.body):
        if isinstance(statement, Assign):
            counts[statement.name] = counts.get(statement.name, 0) + 1
    body = _block(kernel.body, counts, types)
    return kernel if body is kernel.body else kernel.replaced(body=body)


def _block(body: tuple[Statement, ...], counts: dict[str, int], types: Types) -> tuple[Statement, ...]:
    """Rewrite the statements of a block; candidates that come first are tried first."""
    for place, statement in enumerate(body):
        if isinstance(statement, For):
            for name in _advancing_tiles(body[:place], statement, counts, types):
                before, rest = body[:place], body[place + 1 :]
                return _block((*before, *_split(statement, rest, name, counts, types)), counts, types)
            inner = _block(statement.body, counts, types)
            if inner is not statement.body:
                return _block((*body[:place], statement.replaced(body=inner), *body[place + 1 :]), counts, types)
    return body


def _advancing_tiles(before: tuple[Statement, ...], loop: For, counts: dict[str, int], types: Types) -> list[str]:
    """Return the tiles that are initialised before a loop and only advanced by numbers in it."""
    first = {s.name for s in before if isinstance(s, Assign)}
    found = []
    for name in sorted(first):
        t = types.variables[name]
        if not t.shape or not (t.pointer or t.dtype.is_integer):
            continue
        moves = [s for s in loop.body if isinstance(s, Assign) and s.name == name]
        if moves and len(moves) == counts[name] - 1 and all(_is_advance(s, types) for s in moves):
            found.append(name)
    return found


def _is_advance(statement: Assign, types: Types) -> bool:
    match statement.value:
        case Apply("add", (Name(name), Literal())):
            return name == statement.name
        case Apply("add", (Name(name), step)):
            return name == statement.name and not types.of(step).shape
    return False


def _split(
    loop: For, rest: tuple[Statement, ...], name: str, counts: dict[str, int], types: Types
) -> tuple[Statement, ...]:
    """Split one tile: return the loop, the statements after it, and the initialisation before it."""
    t = types.variables[name]
    dtype = int64 if t.pointer else t.dtype
    distance, after = _fresh(f"{name}_moved", types, TileType(dtype)), _fresh(f"{name}_after", types, t)
    whole = Apply("add", (Name(name), Name(distance)))
    body: list[Statement] = []
    for statement in loop.body:
        if isinstance(statement, Assign) and statement.name == name:
            assert isinstance(statement.value, Apply)
            step: Tile = substitute(statement.value.args[1], {name: whole})
            wide: Tile = (
                step
                if isinstance(step, Literal) or types.of(statement.value.args[1]).dtype is dtype
                else Cast(step, dtype)
            )
            body.append(Assign(distance, Apply("add", (Name(distance), wide))))
        else:
            body.append(substitute(statement, {name: whole}))
    counts.update({distance: 2, after: 1, name: 1})
    behind = tuple([substitute(s, {name: Name(after)}) for s in rest])
    used = behind != rest
    made = (Assign(distance, Full((), Literal(0), dtype)), loop.replaced(body=tuple(body)))
    return (*made, Assign(after, whole), *behind) if used else (*made, *rest)


def _fresh(hint: str, types: Types, type: TileType) -> str:
    """Return a name that the kernel does not use."""
    name, n = hint, 0
    while name in types.variables:
        n += 1
        name = f"{hint}_{n}"
    types.variables[name] = type
    return name
