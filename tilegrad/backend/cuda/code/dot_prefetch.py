"""Double-buffer computed operands: load those of the next iteration while this one's are multiplied.

In each iteration the next operands are loaded to registers, the current buffer of shared memory is multiplied, the
loaded operands are stored to the other buffer, and all threads meet at a barrier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType
from . import dot_helpers as helpers
from .dot_fill import fill_rows, shared_bytes, zero_fill
from .dot_text import thread_products, warp_positions, warp_products
from .dot_tiling import Tiling
from .functions import TYPES, cast

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
    tiling = products.tilings[product.name]
    names = [x.name for x in (dot.x, dot.y) if isinstance(x, ir.Name)]
    inside = {s.name for s in loop.body[:-1] if isinstance(s, ir.Assign)}
    if any(name not in inside or name in low.affine.definitions for name in names) or any(
        map(_needs_other_threads, loop.body[:-1])
    ):
        return False
    dtype = products.operand_dtype_for(dot) if tiling.kind == "warp" else None
    bytes = _buffer_bytes(products, low, tiling, dot, dtype)
    if 2 * bytes > MAX_BUFFERS_BYTES:
        return False
    low.memory.held_bytes = max(low.memory.held_bytes, 2 * bytes)
    if low.memory.large_in_use:
        low.barrier()  # other threads may still read this memory
    taken = low.memory.large_allocations
    with low.out.block(""):
        for line in warp_positions(tiling):
            low.out.add(line)
        for name in names:
            _declare(low, name)
        with low.loop_scope(loop):
            _write_iterations(products, low, loop, dot, (tiling, dtype, bytes))
    low.memory.separate |= low.memory.large_allocations != taken
    return True


def _needs_other_threads(s: ir.Statement) -> bool:
    """Return whether a statement needs data of other threads."""
    return not isinstance(s, ir.Assign) or isinstance(s.value, ir.Reduce | ir.Scan | ir.Dot)


def _buffer_bytes(products: DotLowering, low: CudaLowering, tiling: Tiling, dot: ir.Dot, dtype: DType | None) -> int:
    if dtype is not None:
        return shared_bytes(products.operands(low, tiling, dot, dtype))
    depth = low.types.of(dot.x).shape[1]
    return depth * (tiling.down * tiling.rows + tiling.across * tiling.columns) * low.types.of(dot).dtype.bytes


def _declare(low: CudaLowering, name: str) -> None:
    """Declare an operand whose registers live from the load to the end of the iteration."""
    from .elements import RegisterTile

    layout, called = low.plan.of_name(name), low.names.of(name)
    extents = "".join(f"[{n}]" for n in layout.extents())
    low.out.add(f"{low.register_type(low.types.variables[name], name)} {called}{extents};")
    low.scopes[-1].add(name)
    low.elements.register_tiles[name] = RegisterTile(called, layout)


def _write_iterations(
    products: DotLowering, low: CudaLowering, loop: ir.For, dot: ir.Dot, scheme: tuple[Tiling, DType | None, int]
) -> None:
    tiling, dtype, bytes = scheme
    out, index = low.out, low.types.variables[loop.index].dtype
    start, stop, step = (
        str(cast(low.elements.of(x, (), index), low.elements.dtype(x, index), index))
        for x in (loop.start, loop.stop, loop.step)
    )
    if dtype is not None and -low.types.of(dot.x).shape[1] % (32 // dtype.bytes):
        zero_fill(low, "held", 2 * bytes)
    out.add(f"const int iterations = (({stop}) - ({start}) + {step} - 1) / ({step});")
    with out.block("for (int at = -1; at < iterations; ++at)"):
        low.scopes.append({loop.index})
        with out.block("if (at + 1 < iterations)"):
            out.add(f"const {TYPES[index.name]} {low.names.of(loop.index)} = {start} + (at + 1) * {step};")
            low.block(loop.body[:-1])
        with out.block("if (at >= 0)"):
            _multiply(products, low, dot, scheme, loop)
        with out.block("if (at + 1 < iterations)"):
            _fill(products, low, dot, scheme)
        low.barrier()
        low.scopes.pop()


def _multiply(
    products: DotLowering, low: CudaLowering, dot: ir.Dot, scheme: tuple[Tiling, DType | None, int], loop: ir.For
) -> None:
    tiling, dtype, bytes = scheme
    product = loop.body[-1]
    assert isinstance(product, ir.Assign)
    sums = low.elements.register_tiles[product.name].text
    if dtype is not None:
        products.use(helpers.SHARED_MEMORY, helpers.fragments(dtype.name), helpers.warp_product(dtype.name))
        x, y = products.operands(low, tiling, dot, dtype)
        low.out.add(f"const uint32 x_place = shared_address(held) + at % 2 * {bytes}, y_place = x_place + {x.size};")
        lines = warp_products(sums, tiling, x, y)
    else:
        pitches, depth, kind = _rows(low, tiling, dot)
        x_tile = f"*x_tile = reinterpret_cast<{kind}*>(held + at % 2 * {bytes})"
        low.out.add(f"const {kind} {x_tile}, *y_tile = x_tile + {depth * pitches[0]};")
        lines = thread_products(sums, tiling, depth, pitches, kind)
    for line in lines:
        low.out.add(line)


def _fill(products: DotLowering, low: CudaLowering, dot: ir.Dot, scheme: tuple[Tiling, DType | None, int]) -> None:
    tiling, dtype, bytes = scheme
    place = f"held + (at + 1) % 2 * {bytes}"
    if dtype is not None:
        x, y = products.operands(low, tiling, dot, dtype)
        low.out.add(f"unsigned char *x_at = {place}, *y_at = x_at + {x.size};")
        products.fill_lines(low, dot, (x, y), dtype)
        return
    pitches, depth, kind = _rows(low, tiling, dot)
    wide = low.types.of(dot).dtype
    low.out.add(f"{kind} *x_tile = reinterpret_cast<{kind}*>({place}), *y_tile = x_tile + {depth * pitches[0]};")
    fill_rows(low, "x_tile", pitches[0], dot.x, wide, (0, 1), range(depth))
    fill_rows(low, "y_tile", pitches[1], dot.y, wide, (1, 0), range(depth))


def _rows(low: CudaLowering, tiling: Tiling, dot: ir.Dot) -> tuple[tuple[int, int], int, str]:
    """Return the line lengths of both operands, the number of lines, and the element type."""
    pitches = (tiling.down * tiling.rows, tiling.across * tiling.columns)
    return pitches, low.types.of(dot.x).shape[1], TYPES[low.types.of(dot).dtype.name]
