"""Bind reductions inside larger expressions to names of their own.

    d = v - tl.sum(v, axis=0) / n           d_1 = tl.sum(v, axis=0) / n
    tl.store(p, d * d)               ->     d = v - d_1
                                            tl.store(p, d * d)

A cheap expression is recomputed at each use and needs no memory; one that contains a reduction would be materialised.
"""

from __future__ import annotations

from math import prod

from ..ir import tile as ir
from ..ir.tile_access import roots, walk
from ..ir.tile_rewrite import fresh_name, map_statements, rewrite
from ..ir.tile_types import Types


def name_reductions(kernel: ir.Kernel, types: Types) -> ir.Kernel:
    """Name each reduction (with the operations applied to it) that is smaller than the expression around it.

    >>> from ..ir.tile_checker import check
    >>> from ..ir.tile_parser import parse
    >>> kernel = parse('''
    ... def f(x: "*f32"):
    ...     i = tl.arange(0, 8)
    ...     v = tl.load(x + i)
    ...     tl.store(x + i, v - tl.sum(v, axis=0) / 8)
    ... ''')
    >>> print(name_reductions(kernel, check(kernel)))
    @tg.kernel
    def f(x: "*f32"):
        i = tl.arange(0, 8)
        v = tl.load(x + i)
        reduced = tl.sum(v, axis=0) / 8
        tl.store(x + i, v - reduced)
    """
    # a condition of `while` is evaluated in each iteration: it stays as it is
    body = map_statements(
        kernel.body, lambda s: None if isinstance(s, ir.For | ir.While | ir.If) else _hoisted(s, types)
    )
    return kernel if body is kernel.body else kernel.replaced(body=body)


def _hoisted(statement: ir.Statement, types: Types) -> list[ir.Statement] | None:
    """Return a statement preceded by assignments of its reductions."""
    found: dict[ir.Tile, ir.Name] = {}
    for root in roots(statement):
        for x in _smaller_reductions(root, _count(root, types), types):
            if x not in found:
                hint = f"{statement.name}_reduced" if isinstance(statement, ir.Assign) else "reduced"
                found[x] = ir.Name(fresh_name(hint, types.variables))
                types.variables[found[x].name] = types.of(x)
    if not found:
        return None
    before: list[ir.Statement] = [ir.Assign(name.name, x) for x, name in found.items()]
    return [*before, rewrite(statement, lambda part: found.get(part) if isinstance(part, ir.Tile) else None)]


def _smaller_reductions(x: ir.Tile, whole: int, types: Types) -> list[ir.Tile]:
    """Find the largest expressions with a reduction that have fewer elements than the expression around them."""
    if not any(isinstance(y, ir.Reduce) for y in walk(x)):
        return []
    if _count(x, types) < whole and not isinstance(x, ir.ExpandDims):
        return [x]
    elementwise = isinstance(x, ir.Apply | ir.Cast | ir.Bitcast | ir.ExpandDims | ir.BroadcastTo | ir.Load)
    return [y for p in ir.parts(x) for y in _smaller_reductions(p, whole if elementwise else _count(p, types), types)]


def _count(x: ir.Tile, types: Types) -> int:
    return 1 if isinstance(x, ir.Literal) else prod(types.of(x).shape)
