"""Name the operands of products, in their own dtype where they were only widened.

acc = tl.dot(x * 2.0, y, start)       ->       left = x * 2.0
                                               acc = start
                                               acc = tl.dot(left, y, acc)
"""

from __future__ import annotations

from ..ir import tile as ir
from ..ir.dtype import DType, bfloat16, float16, float32
from ..ir.tile_rewrite import map_statements
from ..ir.tile_types import Types


def name_operands(kernel: ir.Kernel, types: Types) -> ir.Kernel:
    """Rewrite products so that operands are names and the accumulator is the result's own name.

    >>> from ..ir.tile_checker import check
    >>> from ..ir.tile_parser import parse
    >>> kernel = parse('''
    ... def f(x: "*f32", out: "*f32"):
    ...     i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    ...     v = tl.load(x + i)
    ...     acc = tl.dot(v * 2.0, v)
    ...     tl.store(out + i, acc)
    ... ''')
    >>> print(name_operands(kernel, check(kernel)))
    @tg.kernel
    def f(x: "*f32", out: "*f32"):
        i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
        v = tl.load(x + i)
        left0 = v * 2.0
        acc = tl.full([16, 16], 0, tl.float32)
        acc = tl.dot(left0, v, acc)
        tl.store(out + i, acc)
    """

    def change(s: ir.Statement) -> list[ir.Statement] | None:
        return _named(s.name, s.value, types) if isinstance(s, ir.Assign) and isinstance(s.value, ir.Dot) else None

    return kernel.replaced(body=map_statements(kernel.body, change))  # type: ignore[no-any-return]


def _named(name: str, product: ir.Dot, types: Types) -> list[ir.Statement]:
    """Return the statements that compute a product of named operands."""
    made: list[ir.Statement] = []
    operands: list[ir.Tile] = []
    for stem, operand in zip(("left", "right"), narrow_operands(product.x, product.y, types), strict=True):
        if not isinstance(operand, ir.Name):
            fresh = next(f"{stem}{n}" for n in range(1 << 30) if f"{stem}{n}" not in types.variables)
            types.variables[fresh] = types.of(operand)
            made.append(ir.Assign(fresh, operand))
            operand = ir.Name(fresh)
        operands.append(operand)
    if product.accumulator != ir.Name(name):
        t = types.variables[name]
        made.append(ir.Assign(name, product.accumulator or ir.Full(t.shape, ir.Literal(0), t.dtype)))
    made.append(ir.Assign(name, ir.Dot(operands[0], operands[1], ir.Name(name), product.precision)))
    return made


def narrow_operands(x: ir.Tile, y: ir.Tile, types: Types) -> tuple[ir.Tile, ir.Tile]:
    """Use half-precision operands if both were widened from it: their products are exact in float32.

    >>> from ..ir.tile_types import TileType
    >>> types = Types({"x": TileType(bfloat16, (8, 8))})
    >>> wide = ir.Cast(ir.Name("x"), float32)
    >>> print(*narrow_operands(ir.Apply("where", (ir.Literal(True), wide, ir.Literal(0.0))), wide, types))
    tl.where(True, x, 0.0) x
    """
    for dtype in (bfloat16, float16):
        narrow_x, narrow_y = _narrow(x, dtype, types), _narrow(y, dtype, types)
        if narrow_x is not None and narrow_y is not None:
            return narrow_x, narrow_y
    return x, y


def _narrow(x: ir.Tile, dtype: DType, types: Types) -> ir.Tile | None:
    """Return a float32 tile in a narrower dtype that represents all its elements, or None."""
    match x:
        case ir.Cast(y, to) if to is float32 and not isinstance(y, ir.Literal) and types.of(y).dtype is dtype:
            return y
        case ir.ExpandDims(y) | ir.BroadcastTo(y) | ir.Trans(y) | ir.Reshape(y):
            inner = _narrow(y, dtype, types)
            return None if inner is None else x.replaced(x=inner)
        case ir.Apply("where", (condition, ir.Literal(value), y)) if value in (0.0, 1.0):
            inner = _narrow(y, dtype, types)
            return None if inner is None else ir.Apply("where", (condition, ir.Literal(value), inner))
        case ir.Apply("where", (condition, y, ir.Literal(value))) if value in (0.0, 1.0):
            inner = _narrow(y, dtype, types)
            return None if inner is None else ir.Apply("where", (condition, inner, ir.Literal(value)))
    return None
