"""Sink loads of tiles that are combined with accumulators below the statements that do not need them.

    bias = tl.load(b + i)                          acc = tl.dot(v, w, acc)
    acc = tl.dot(v, w, acc)               ->       bias = tl.load(b + i)
    out = acc + bias                               out = acc + bias

They would occupy registers during the product.
"""

from __future__ import annotations

from ..ir.tile import Assign, Dot, Kernel, Load, Statement
from ..ir.tile_access import names_read, statements
from ..ir.tile_types import Types


def sink_tile_loads(kernel: Kernel, types: Types) -> Kernel:
    """Sink loads of tiles of an accumulator's shape below assignments that do not need them.

    >>> from ..ir.tile_checker import check
    >>> from ..ir.tile_parser import parse
    >>> kernel = parse('''
    ... def f(x: "*f32", bias: "*f32", out: "*f32"):
    ...     i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    ...     b = tl.load(bias + i)
    ...     v = tl.load(x + tl.arange(0, 16)[:, None] * 32 + tl.arange(0, 32)[None, :])
    ...     acc = tl.dot(v, tl.trans(v))
    ...     tl.store(out + i, acc + b)
    ... ''')
    >>> print(sink_tile_loads(kernel, check(kernel)))
    @tg.kernel
    def f(x: "*f32", bias: "*f32", out: "*f32"):
        i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
        v = tl.load(x + tl.arange(0, 16)[:, None] * 32 + tl.arange(0, 32)[None, :])
        acc = tl.dot(v, tl.trans(v))
        b = tl.load(bias + i)
        tl.store(out + i, acc + b)
    """
    body = kernel.body
    shapes = {
        types.variables[s.name].shape for s in statements(body) if isinstance(s, Assign) and isinstance(s.value, Dot)
    }
    made: list[Statement] = []
    late: list[Assign] = []
    for s in body:
        needed = names_read(s)
        if isinstance(s, Assign) and isinstance(s.value, Load) and types.variables[s.name].shape in shapes:
            late.append(s)
        elif isinstance(s, Assign) and not needed & {x.name for x in late}:
            made.append(s)
        else:
            made += [*late, s]
            late = []
    return kernel.replaced(body=(*made, *late))  # type: ignore[no-any-return]
