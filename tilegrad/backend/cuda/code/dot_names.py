"""Name the operands of products, in their own dtype where they were only widened."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, float16, float32, int32
from ....ir.tile_access import roots, statements, walk
from ....ir.tile_types import TileType, Types


def name_operands(body: Sequence[ir.Statement], types: Types, counts: dict[str, int]) -> tuple[ir.Statement, ...]:
    """Rewrite products so that operands are names and the accumulator is the result's own name.

    `acc = tl.dot(x * 2.0, y, start)` becomes `left = x * 2.0`, `acc = start`, `acc = tl.dot(left, y, acc)`.
    """
    made: list[ir.Statement] = []
    for s in body:
        match s:
            case ir.Assign(name, ir.Dot(x, y, accumulator) as product):
                operands: list[ir.Tile] = []
                for stem, operand in zip(("left", "right"), narrow_operands(x, y, types), strict=True):
                    if not isinstance(operand, ir.Name):
                        fresh = next(f"{stem}{n}" for n in range(1 << 30) if f"{stem}{n}" not in types.variables)
                        types.variables[fresh] = types.of(operand)
                        counts[fresh] = 1
                        made.append(ir.Assign(fresh, operand))
                        operand = ir.Name(fresh)
                    operands.append(operand)
                if accumulator != ir.Name(name):
                    t = types.variables[name]
                    made.append(ir.Assign(name, accumulator or ir.Full(t.shape, ir.Literal(0), t.dtype)))
                    counts[name] = counts.get(name, 1) + 1
                made.append(ir.Assign(name, ir.Dot(operands[0], operands[1], ir.Name(name), product.precision)))
            case ir.For(index, start, stop, step, inner):
                made.append(ir.For(index, start, stop, step, name_operands(inner, types, counts)))
            case ir.While(condition, inner):
                made.append(ir.While(condition, name_operands(inner, types, counts)))
            case ir.If(condition, then, otherwise):
                both = [name_operands(inner, types, counts) for inner in (then, otherwise)]
                made.append(ir.If(condition, both[0], both[1]))
            case _:
                made.append(s)
    return tuple(made)


def narrow_operands(x: ir.Tile, y: ir.Tile, types: Types) -> tuple[ir.Tile, ir.Tile]:
    """Use half-precision operands if both were widened from it: their products are exact in float32.

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


def wrap_lone_product(body: tuple[ir.Statement, ...], types: Types) -> tuple[ir.Statement, ...]:
    """Wrap the only product of a kernel and its loads in a loop of one iteration, so that they can be copied
    asynchronously.
    """
    every = list(statements(body))
    found = [s for s in every if isinstance(s, ir.Assign) and isinstance(s.value, ir.Dot)]
    if len(found) != 1 or found[0] not in body:
        return body
    product, dot = found[0], found[0].value
    assert isinstance(dot, ir.Dot)
    uses = [x.name for s in every for x in walk(*roots(s)) if isinstance(x, ir.Name)]
    names = {x.name for x in (dot.x, dot.y) if isinstance(x, ir.Name) and uses.count(x.name) == 1}
    loads = [s for s in body if isinstance(s, ir.Assign) and isinstance(s.value, ir.Load) and s.name in names]
    if len(loads) != 2 or "once" in types.variables:
        return body
    types.variables["once"] = TileType(int32)
    bounds = (ir.Literal(0), ir.Literal(1), ir.Literal(1))
    loop = ir.For("once", *bounds, (*loads, product))
    return tuple([loop if s is product else s for s in body if s not in loads])


def sink_tile_loads(body: Sequence[ir.Statement], types: Types) -> tuple[ir.Statement, ...]:
    """Sink loads that meet accumulators to just before their use, so that they do not occupy registers during the
    product.

    Statements of the same run that need no such tile move before them.
    """
    shapes = {
        types.variables[s.name].shape
        for s in statements(tuple(body))
        if isinstance(s, ir.Assign) and isinstance(s.value, ir.Dot)
    }
    made: list[ir.Statement] = []
    late: list[ir.Assign] = []
    for s in body:
        needed = {x.name for x in walk(*roots(s)) if isinstance(x, ir.Name)}
        if isinstance(s, ir.Assign) and isinstance(s.value, ir.Load) and types.variables[s.name].shape in shapes:
            late.append(s)
        elif isinstance(s, ir.Assign) and not needed & {x.name for x in late}:
            made.append(s)
        else:
            made += [*late, s]
            late = []
    return (*made, *late)
