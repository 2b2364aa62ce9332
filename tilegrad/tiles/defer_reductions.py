"""Defer reductions across threads until the loop around them has ended.

    for k in range(0, n, 16):                   parts = tl.zeros([16, 128], tl.float32)
        x_ = tl.load(...)                       for k in range(0, n, 16):
        acc += tl.sum(x_, axis=0)        =>         x_ = tl.load(...)
                                                    parts = parts + x_
                                                acc = acc + tl.sum(parts, axis=0)

Threads then combine their partial results once instead of in every iteration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..ir import tile as ir
from ..ir.functions import accumulation_dtype, identity
from ..ir.tile_access import count_assignments, names_read, statements
from ..ir.tile_rewrite import map_statements
from ..ir.tile_types import TileType, Types

MAX_PARTIAL_ELEMENTS = 1 << 14
"""Largest tile of partial results, in elements; larger ones would take too many registers."""
DEFERRABLE = ("add", "mul", "maximum", "minimum", "bitand", "bitor")


def defer_reductions(kernel: ir.Kernel, types: Types) -> ir.Kernel:
    """Rewrite loops to keep partial results.

    >>> from ..ir.tile_checker import check
    >>> from ..ir.tile_parser import parse
    >>> kernel = parse('''
    ... def f(x: "*f32", out: "*f32"):
    ...     total = 0.0
    ...     for k in range(0, 64, 8):
    ...         v = tl.load(x + k + tl.arange(0, 8))
    ...         part = tl.sum(v, axis=0)
    ...         total += part
    ...     tl.store(out, total)
    ... ''')
    >>> print(defer_reductions(kernel, check(kernel)))
    @tg.kernel
    def f(x: "*f32", out: "*f32"):
        total = 0.0
        parts1 = tl.zeros([8], tl.float32)
        for k in range(0, 64, 8):
            v = tl.load(x + k + tl.arange(0, 8))
            parts1 += v
        part = tl.sum(parts1, axis=0)
        total += part
        tl.store(out, total)
    """
    counts = count_assignments(kernel.body)

    def change(s: ir.Statement) -> list[ir.Statement] | None:
        return _defer_in_loop(s, types, counts) if isinstance(s, ir.For) else None

    return kernel.replaced(body=map_statements(kernel.body, change))  # type: ignore[no-any-return]


def _defer_in_loop(loop: ir.For, types: Types, counts: Mapping[str, int]) -> list[ir.Statement]:
    """Return the loop with the statements that must precede and follow it."""
    reduces = {s.name: s.value for s in loop.body if isinstance(s, ir.Assign) and isinstance(s.value, ir.Reduce)}
    before: list[ir.Statement] = []
    after: list[ir.Statement] = []
    body: list[ir.Statement] = []
    removed: set[str] = set()
    for s in loop.body:
        found = _match_accumulation(s, reduces)
        if found is None or not _is_only_use(found, loop, reduces):
            body.append(s)
            continue
        total, part, fn = found
        x = reduces[part].x
        t = types.of(x)
        if (
            fn != reduces[part].fn
            or math.prod(t.shape) > MAX_PARTIAL_ELEMENTS
            or accumulation_dtype(t.dtype) is not t.dtype
            or counts.get(part, 1) > 1
        ):
            body.append(s)
            continue
        name = next(f"parts{n}" for n in range(1, 1 << 30) if f"parts{n}" not in types.variables)
        types.variables[name] = TileType(t.dtype, t.shape)
        before.append(ir.Assign(name, ir.Full(t.shape, ir.Literal(identity(fn, t.dtype)), t.dtype)))
        body.append(ir.Assign(name, ir.Apply(fn, (ir.Name(name), x))))
        after.append(ir.Assign(part, ir.Reduce(fn, ir.Name(name), reduces[part].axis)))
        after.append(ir.Assign(total, ir.Apply(fn, (ir.Name(total), ir.Name(part)))))
        removed.add(part)
    body = [s for s in body if not (isinstance(s, ir.Assign) and s.name in removed)]
    return [*before, loop.replaced(body=tuple(body)), *after]


def _match_accumulation(s: ir.Statement, reduces: dict[str, ir.Reduce]) -> tuple[str, str, str] | None:
    """Match `total = total + part` for a part reduced in the loop; return (total, part, function)."""
    match s:
        case ir.Assign(total, ir.Apply(fn, (ir.Name(x), ir.Name(y)))) if fn in DEFERRABLE:
            if x == total and y in reduces:
                return total, y, fn
            if y == total and x in reduces:
                return total, x, fn
    return None


def _is_only_use(found: tuple[str, str, str], loop: ir.For, reduces: dict[str, ir.Reduce]) -> bool:
    """Return whether the loop uses the total and the part for nothing else."""
    total, part, _ = found
    uses = {total: 0, part: 0}
    for s in statements(loop.body):
        for name in names_read(s) & {total, part}:
            uses[name] += 1
        if isinstance(s, ir.Assign) and s.name == total and _match_accumulation(s, reduces) != found:
            return False
    return uses == {total: 1, part: 1}
