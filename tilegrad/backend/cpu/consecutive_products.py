"""Find the consecutive matrix products of a kernel: their operands may be packed ahead, by kernels of their own."""

from __future__ import annotations

from ...ir import tile as ir
from ...ir.dtype import float32
from ...ir.tile_access import expressions
from ...ir.tile_types import Types
from .code.low_precision_forms import MULTIPLY_ADD, low_precision_form
from .summed_products import SummedProduct
from .target import Target


def _iterations(s: ir.Statement, dots: list[ir.Dot]) -> int | None:
    """Return how often a statement computes its only product: once, or in each iteration of a loop of known length."""
    if len(dots) != 1:
        return None
    match s:
        case ir.Assign(_, value) if value is dots[0]:
            return 1
        case ir.For(_, ir.Literal(0), ir.Literal(int() as stop), ir.Literal(int() as step), body):
            direct = any(isinstance(inner, ir.Assign) and inner.value is dots[0] for inner in body)
            return -(-stop // step) if direct else None
    return None


def consecutive_products(kernel: ir.Kernel, types: Types, target: Target) -> list[SummedProduct]:
    """List the products of a kernel in order, all of one form; none if they are not consecutive."""
    found: list[SummedProduct] = []
    for s in kernel.body:
        dots = [x for x in expressions(s) if isinstance(x, ir.Dot)]
        if not dots:
            continue
        iterations = _iterations(s, dots)
        if iterations is None:
            return []
        dot, loop = dots[0], s if isinstance(s, ir.For) else None
        form = low_precision_form(target, types, dot, bool(found) and found[0].form.parts > 0)
        if form is None and _is_float32(dot, types):
            form = MULTIPLY_ADD
        if form is None or (found and form is not found[0].form):
            return []
        found.append(SummedProduct(dot, loop, sum(product.iterations for product in found), iterations, form))
    return found


def _is_float32(product: ir.Dot, types: Types) -> bool:
    return all(types.of(x).dtype is float32 for x in (product, product.x, product.y))
