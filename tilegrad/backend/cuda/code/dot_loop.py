"""Software-pipelined product loops with cp.async, multiplied by tensor cores (sm_80 on).

Several stages are in flight. All threads copy, each its pieces of 16 bytes, and all warps multiply.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir import tile as ir
from . import dot_helpers as helpers
from .dot_operands import OperandAnalysis, Strided
from .dot_text import LoopIteration, Operand, Pipeline, copy_lines, part_source, warp_products
from .dot_tiling import Tiling, operand_dtype
from .functions import MEMORY
from .hardware import LINE_BYTES, MMA_ROWS, VECTOR_BYTES

PIPELINE_STAGES = 3
"""Stages in flight, if shared memory suffices."""


class AsyncCopyLoop(NamedTuple):
    """A loop over k in iterations of `depth`, each made of stages that hold one line of k."""

    tiling: Tiling
    x: Strided
    y: Strided
    sides: tuple[Operand, Operand]
    depth: int
    stages: int

    @property
    def stage(self) -> int:
        return sum(side.size for side in self.sides)

    @property
    def shared(self) -> int:
        return self.stages * self.stage

    @property
    def strided(self) -> tuple[Strided, Strided]:
        return self.x, self.y

    @property
    def device_functions(self) -> tuple[str, ...]:
        dtype = self.x.dtype.name
        return helpers.COPIES, helpers.fragments(dtype), helpers.warp_product(dtype)

    def lines(self, sums: str, iteration: LoopIteration, shared: str) -> list[str]:
        """Return the lines of the loop."""
        parts, copies = self.depth // self.sides[0].depth, []
        for name, side, memory, source in zip("xy", self.sides, self.strided, iteration.sources, strict=True):
            advance = side.line * (memory.pitch if side.transposed else 1)
            first = part_source(source, parts, advance)
            copies += copy_lines(name, side, first, MEMORY[memory.dtype.name], memory.pitch, self.tiling.threads)
        x_place = f"operands + at % {self.stages} * {self.stage}"
        places = [f"uint32 x_place = {x_place}, y_place = x_place + {self.sides[0].size};"]
        products = warp_products(sums, self.tiling, *self.sides)
        pipeline = Pipeline(iteration, parts, self.stages, places, copies, products)
        return [f"const uint32 operands = shared_address({shared});", pipeline.trip_count, *pipeline.lines]


def plan_async_copy_loop(
    analysis: OperandAnalysis, product: ir.Dot, tiling: Tiling, shared: int
) -> AsyncCopyLoop | None:
    """Return the plan of a product loop whose operands can be copied unchanged, or None."""
    x, y = analysis.strided(product.x), analysis.strided(product.y)
    if (
        x is None
        or y is None
        or any((*x.bounds, *y.bounds))
        or x.dtype is not y.dtype
        or operand_dtype(x.dtype, product.precision, analysis.capability) is not x.dtype
    ):
        return None
    bytes, depth = x.dtype.bytes, x.shape[1]
    line = LINE_BYTES // bytes
    transposed = (x.along == 0, y.along == 1)
    if depth % line or not all(_copies(analysis, side) for side in (x, y)):
        return None
    extents = (x.shape[0], y.shape[1])
    reached = (tiling.down * tiling.rows, tiling.across * tiling.columns)
    if any(r > -(-extent // MMA_ROWS) * MMA_ROWS for r, extent in zip(reached, extents, strict=True)):
        return None  # warps would read past the tile
    if any(t and (bytes == 1 or extent % line) for t, extent in zip(transposed, extents, strict=True)):
        return None
    sides = tuple(
        Operand(address, t, bytes, line, -(-extent // 16) * 16)
        for address, t, extent in zip(("x_place", "y_place"), transposed, extents, strict=True)
    )
    stages = min(PIPELINE_STAGES, shared // sum(side.size for side in sides))
    return AsyncCopyLoop(tiling, x, y, (sides[0], sides[1]), depth, stages) if stages >= 2 else None


def _copies(analysis: OperandAnalysis, side: Strided) -> bool:
    """Return whether all pieces of an operand are aligned to their size."""
    bytes = side.dtype.bytes
    return side.pitch * bytes % VECTOR_BYTES == 0 and analysis.divisor(side.pointer) * bytes % VECTOR_BYTES == 0
