"""Double-buffer computed operands: load those of the next iteration while this one's are multiplied.

In each iteration the next operands are loaded to registers, the current buffer of shared memory is multiplied, the
loaded operands are stored to the other buffer, and all threads meet at a barrier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....ir import tile as ir
from .dot_computed import ThreadProduct, WarpProduct
from .dot_fill import zero_fill
from .dot_text import warp_positions
from .functions import TYPES

if TYPE_CHECKING:
    from .dot import DotLowering
    from .lower import CudaLowering

MAX_BUFFERS_BYTES = 64 * 1024
"""Bytes of shared memory for both buffers."""


class PrefetchedProduct(NamedTuple):
    """A double-buffered loop around one product."""

    sums: str


def write_prefetched_loop(products: DotLowering, low: CudaLowering, loop: ir.For) -> bool:
    """Write the loop, if its operands fit; return whether they do."""
    product = loop.body[-1]
    assert isinstance(product, ir.Assign)
    dot = product.value
    assert isinstance(dot, ir.Dot)
    names = [x.name for x in (dot.x, dot.y) if isinstance(x, ir.Name)]
    inside = {s.name for s in loop.body[:-1] if isinstance(s, ir.Assign)}
    if any(name not in inside or name in low.affine.definitions for name in names) or any(
        map(_needs_other_threads, loop.body[:-1])
    ):
        return False
    scheme = products.computed(low, product)
    if 2 * scheme.bytes > MAX_BUFFERS_BYTES:
        return False
    low.memory.held_bytes = max(low.memory.held_bytes, 2 * scheme.bytes)
    if low.memory.large_in_use:
        low.barrier()  # other threads may still read this memory
    taken = low.memory.large_allocations
    with low.out.block(""), low.scope():
        low.out.extend(warp_positions(scheme.tiling))
        for name in names:  # registers that live from the load to the end of the iteration
            low.declare(name, low.plan.of_name(name))
        with low.loop_scope(loop):
            _write_iterations(low, loop, scheme, low.elements.register_tiles[product.name].text)
    low.memory.separate |= low.memory.large_allocations != taken
    return True


def _needs_other_threads(s: ir.Statement) -> bool:
    """Return whether a statement needs data of other threads."""
    return not isinstance(s, ir.Assign) or isinstance(s.value, ir.Reduce | ir.Scan | ir.Dot)


def _write_iterations(low: CudaLowering, loop: ir.For, scheme: WarpProduct | ThreadProduct, sums: str) -> None:
    out, index = low.out, low.types.variables[loop.index].dtype
    start, stop, step = low.loop_bounds(loop)
    if scheme.pads:
        zero_fill(low, "held", 2 * scheme.bytes)
    out.add(f"const int iterations = (({stop}) - ({start}) + {step} - 1) / ({step});")
    with out.block("for (int at = -1; at < iterations; ++at)"), low.scope(loop.index):
        with out.block("if (at + 1 < iterations)"):
            out.add(f"const {TYPES[index.name]} {low.names.of(loop.index)} = {start} + (at + 1) * {step};")
            low.block(loop.body[:-1])
        with out.block("if (at >= 0)"):
            scheme.multiply_at(sums, f"at % 2 * {scheme.bytes}")
        with out.block("if (at + 1 < iterations)"):
            scheme.fill(f"held + (at + 1) % 2 * {scheme.bytes}")
        low.barrier()
