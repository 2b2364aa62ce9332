"""Software-pipelined product loops with cp.async, multiplied by tensor cores (sm_80 on).

Several stages are in flight. All threads copy, each its pieces of 16 bytes, and all warps multiply.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir import tile as ir
from .dot_operands import Definitions, Strided
from .dot_text import LINE_BYTES, LoopIteration, Operand, copy_lines, warp_products
from .dot_tiling import Tiling, operand_dtype
from .functions import MEMORY

STAGES = 3
PIECE_BYTES = 16
"""Bytes of one asynchronous copy."""


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
    def parts(self) -> int:
        """Stages of an iteration."""
        return self.depth // self.sides[0].depth


def plan_async_copy_loop(
    definitions: Definitions, product: ir.Dot, tiling: Tiling, shared: int
) -> AsyncCopyLoop | None:
    """Return the plan of a product loop whose operands can be copied unchanged, or None."""
    x, y = definitions.strided(product.x), definitions.strided(product.y)
    if (
        x is None
        or y is None
        or any((*x.bounds, *y.bounds))
        or x.dtype is not y.dtype
        or operand_dtype(x.dtype, product.precision, definitions.capability) is not x.dtype
    ):
        return None
    bytes, depth = x.dtype.bytes, x.shape[1]
    line = LINE_BYTES // bytes
    transposed = (x.along == 0, y.along == 1)
    if depth % line or not all(_copies(definitions, side) for side in (x, y)):
        return None
    extents = (x.shape[0], y.shape[1])
    reached = (tiling.down * tiling.rows, tiling.across * tiling.columns)
    if any(r > -(-extent // 16) * 16 for r, extent in zip(reached, extents, strict=True)):
        return None  # warps would read beyond the tile
    if any(t and (bytes == 1 or extent % line) for t, extent in zip(transposed, extents, strict=True)):
        return None
    sides = tuple(
        Operand(address, t, bytes, line, -(-extent // 16) * 16)
        for address, t, extent in zip(("x_place", "y_place"), transposed, extents, strict=True)
    )
    stages = min(STAGES, shared // sum(side.size for side in sides))
    return AsyncCopyLoop(tiling, x, y, (sides[0], sides[1]), depth, stages) if stages >= 2 else None


def _copies(definitions: Definitions, side: Strided) -> bool:
    """Return whether all pieces of an operand are aligned to their size."""
    bytes = side.dtype.bytes
    return side.pitch * bytes % PIECE_BYTES == 0 and definitions.divisor(side.pointer) * bytes % PIECE_BYTES == 0


def async_copy_lines(plan: AsyncCopyLoop, sums: str, iteration: LoopIteration, shared: str) -> list[str]:
    """Return the lines of the loop."""
    loop, sources, numbers = iteration
    element = MEMORY[plan.x.dtype.name]
    index, start, stop, step = loop
    x, y = plan.sides
    parts = plan.parts
    iteration_index, part = ("at", "0") if parts == 1 else (f"at / {parts}", f"at % {parts}")
    copies = []
    for name, side, memory, source in zip("xy", plan.sides, (plan.x, plan.y), sources, strict=True):
        advance = side.line * (memory.pitch if side.transposed else 1)
        first = source if parts == 1 else f"{source} + int64({part}) * {advance}"
        copies += copy_lines(name, side, first, element, memory.pitch, plan.tiling.threads)
    place = f"uint32 x_place = operands + at % {plan.stages} * {plan.stage}, y_place = x_place + {x.size};"
    total = f"(({stop}) - ({start}) + {step} - 1) / ({step})" + (f" * {parts}" if parts > 1 else "")
    return [
        f"const uint32 operands = address_of({shared});",
        f"const int turns = {total};",
        "auto copy = [&](int at) {",
        f"    const {index} = {start} + {iteration_index} * {step};",
        *[f"    {line}" for line in numbers],
        f"    {place}",
        *[f"    {line}" for line in copies],
        "};",
        f"for (int at = 0; at < {plan.stages - 1}; ++at) {{",
        "    if (at < turns) copy(at);",
        "    commit_copies();",
        "}",
        "for (int at = 0; at < turns; ++at) {",
        f"    wait_for_copies<{plan.stages - 2}>();",
        "    __syncthreads();",
        f"    if (at + {plan.stages - 1} < turns) copy(at + {plan.stages - 1});",
        "    commit_copies();",
        f"    {place}",
        *[f"    {line}" for line in warp_products(sums, plan.tiling, x, y)],
        "}",
        "wait_for_copies<0>();",
    ]
