"""Wrap the only product of a kernel in a loop of one iteration: product loops copy their operands asynchronously.

v = tl.load(x + i)                             for once in range(0, 1):
w = tl.load(y + j)                                 v = tl.load(x + i)
acc = tl.dot(v, w, acc)               ->           w = tl.load(y + j)
                                                   acc = tl.dot(v, w, acc)
"""

from __future__ import annotations

from ..ir.dtype import int32
from ..ir.tile import Assign, Dot, For, Kernel, Literal, Load, Name
from ..ir.tile_access import roots, statements, walk
from ..ir.tile_types import TileType, Types


def wrap_lone_product(kernel: Kernel, types: Types) -> Kernel:
    """Wrap the only product of a kernel and its loads in a loop, if nothing else uses what is loaded.

    >>> from ..ir.tile_checker import check
    >>> from ..ir.tile_parser import parse
    >>> kernel = parse('''
    ... def f(x: "*f32", y: "*f32", out: "*f32"):
    ...     i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    ...     v = tl.load(x + i)
    ...     w = tl.load(y + i)
    ...     acc = tl.zeros([16, 16], tl.float32)
    ...     acc = tl.dot(v, w, acc)
    ...     tl.store(out + i, acc)
    ... ''')
    >>> print(wrap_lone_product(kernel, check(kernel)))
    @tg.kernel
    def f(x: "*f32", y: "*f32", out: "*f32"):
        i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
        acc = tl.zeros([16, 16], tl.float32)
        for once in range(1):
            v = tl.load(x + i)
            w = tl.load(y + i)
            acc = tl.dot(v, w, acc)
        tl.store(out + i, acc)
    """
    body, every = kernel.body, list(statements(kernel.body))
    found = [s for s in every if isinstance(s, Assign) and isinstance(s.value, Dot)]
    if len(found) != 1 or found[0] not in body:
        return kernel
    product, dot = found[0], found[0].value
    assert isinstance(dot, Dot)
    uses = [x.name for s in every for x in walk(*roots(s)) if isinstance(x, Name)]
    names = {x.name for x in (dot.x, dot.y) if isinstance(x, Name) and uses.count(x.name) == 1}
    loads = [s for s in body if isinstance(s, Assign) and isinstance(s.value, Load) and s.name in names]
    if len(loads) != 2 or "once" in types.variables:
        return kernel
    types.variables["once"] = TileType(int32)
    bounds = (Literal(0), Literal(1), Literal(1))
    loop = For("once", *bounds, (*loads, product))
    return kernel.replaced(body=tuple([loop if s is product else s for s in body if s not in loads]))  # type: ignore[no-any-return]
