"""Store an operand of large float32 products with the summed axes contiguous, as tensor cores require.

An operand in another layout passes through registers. If neither operand has the required layout, transposing the
smaller one first takes a small part of the time of the product.
"""

from __future__ import annotations

import math

from ..ir.dtype import float32
from ..ir.graph import Graph, Value
from ..ops.contraction import Contract, letters
from ..ops.movement import Permute, permute
from ..ops.packed_rows import Materialised
from .rewrite import rewrite

MIN_MULTIPLICATIONS = 1 << 28
"""Multiplications from which an additional kernel pays off."""
MIN_EXTENT = 64
"""Shortest extent of a product for which operands are rearranged."""
LINE_MULTIPLE = 4
"""Elements of an asynchronous copy: the length of rows is a multiple of it."""


def contiguous_k(graph: Graph) -> Graph:
    """Store one operand of each large float32 product at `high` with the summed axes last, where neither has them last.

    >>> from ..ir.graph import Input, TensorType
    >>> x, y = (Input(TensorType(float32, (4096, 512)), name) for name in "xy")
    >>> print(contiguous_k(Graph((x, y), (Contract(x, y, "ki,kj->ij", "high"),))))
    graph(x: f32[4096,512], y: f32[4096,512])
      %0: f32[512,4096] = permute[axes=(1, 0)] y
      %1: f32[512,4096] = materialised %0
      %2: f32[512,512] = contract[ki,jk->ij, high] x %1
      return %2
    """
    return rewrite(graph, lambda value, _: with_contiguous_k(value), of=Contract)


def with_contiguous_k(value: Value) -> Value | None:
    """Rewrite a large product at `high` whose operands both lack the layout; None for any other value.

    >>> from ..ir.graph import Input, TensorType
    >>> x, y = (Input(TensorType(float32, (4096, 512)), name) for name in "xy")
    >>> with_contiguous_k(Contract(x, y, "ki,kj->ij", "high")).equation
    'ki,jk->ij'
    >>> with_contiguous_k(Contract(x, y, "ik,jk->ij", "high"))
    """
    if not isinstance(value, Contract) or value.precision != "high" or value.x.dtype is not float32:
        return None
    of_x, of_y, out = letters(value.equation)
    extents = dict(zip((*of_x, *of_y), (*value.x.shape, *value.y.shape), strict=True))
    if not all(isinstance(n, int) for n in extents.values()):
        return None
    summed = [a for a in of_x if a not in out]
    sizes = [math.prod([extents[a] for a in group]) for group in (summed, set(of_x) - set(of_y), set(of_y) - set(of_x))]
    if min(sizes) < MIN_EXTENT or math.prod(extents.values()) < MIN_MULTIPLICATIONS or sizes[0] % LINE_MULTIPLE:
        return None
    if any(contiguous_axis(v, axes) in summed for v, axes in ((value.x, of_x), (value.y, of_y))):
        return None
    if value.x.type.count < value.y.type.count:  # type: ignore[operator]
        x, of_x = _with_k_last(value.x, of_x, summed)
        return Contract(x, value.y, f"{of_x},{of_y}->{out}", value.precision)
    y, of_y = _with_k_last(value.y, of_y, summed)
    return Contract(value.x, y, f"{of_x},{of_y}->{out}", value.precision)


def contiguous_axis(value: Value, axes: str) -> str:
    """Return the letter of the axis whose elements are adjacent in memory."""
    while isinstance(value, Permute):
        axes = "".join(axes[value.axes.index(n)] for n in range(len(axes)))
        value = value.x
    return axes[-1]


def _with_k_last(value: Value, axes: str, summed: list[str]) -> tuple[Value, str]:
    """Materialise an operand with the summed axes last."""
    order = [n for n, a in enumerate(axes) if a not in summed] + [axes.index(a) for a in summed]
    moved = value if order == sorted(order) else permute(value, order)
    return Materialised(moved), "".join(axes[n] for n in order)
