"""Persistent blocks (sm_90a): as many as the GPU holds, each computing tile after tile of a product.

The producer warp runs ahead: while consumers round and store a tile, it copies operands of the next one. Stages and
phases continue from tile to tile. Results are stored straight from registers (`dot_exchange.py`): consumers need no
barrier, and all of shared memory belongs to operands.

    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)

is correct for any number of blocks; a launch uses as many as fit (`Source.resident`). A kernel that needs shared memory
or a barrier after its loop has one block per tile instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .dot_warpgroup import WarpgroupLoop, barrier_lines

if TYPE_CHECKING:
    from .dot import DotLowering
    from .lower import CudaLowering

HEAD = "for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {"


def is_persistent(plan: WarpgroupLoop) -> bool:
    """Return whether blocks should be persistent: with large tiles, of which a multiprocessor holds one block."""
    return plan.blocks == 1 and not plan.tiling.swapped and not plan.left_in_registers


def write_persistent(
    products: DotLowering,
    low: CudaLowering,
    plan: WarpgroupLoop,
    shared: str,
    sums: str,
    roles: tuple[list[str], list[str]],
) -> None:
    """Write everything up to the end of a tile's sums; what follows is written inside the loop over tiles."""
    out = low.out
    before, out.lines = out.lines, []
    out.extend((*barrier_lines(plan, shared), "const int tiles = grid_0 * grid_1 * grid_2;"))
    producer, consumer = roles
    _write_producer(products, low, plan, [*_needed_scalars(before, "\n".join(producer)), *producer])
    out.extend((plan.limits[1], "int stage = 0, phase = 0;", "const int group = threadIdx.x / 128;", HEAD))
    out.depth += 1
    out.extend(products.ids("tile"))
    out.lines += [f"    {line}" for line in before]
    last = "if (before >= 0 && threadIdx.x % 128 == 0) arrive(empty + before * 8);"
    head = ("int before = -1;", f"fence_registers({sums});")
    out.extend((*head, *consumer, f"finish_products({sums});", last))
    products.roles_split_at = len(out.lines)


def _write_producer(products: DotLowering, low: CudaLowering, plan: WarpgroupLoop, producer: list[str]) -> None:
    out = low.out
    with out.block(f"if (threadIdx.x >= {plan.tiling.threads})"):
        out.add("// These warps copy.")
        out.add(plan.limits[0])
        with out.block(f"if (threadIdx.x == {plan.tiling.threads})"):
            out.add("int stage = 0, phase = 0;")
            with out.block(HEAD.removesuffix(" {")):
                out.extend((*products.ids("tile"), *producer))
        out.add("return;")


def _needed_scalars(lines: list[str], text: str) -> list[str]:
    """Return the scalar declarations before a loop that a text needs."""
    found: list[str] = []
    for line in reversed(lines):
        name = re.match(r"    (?:const )?\w+ (\w+) = ", line)
        if name and re.search(rf"\b{name[1]}\b", text):
            found.insert(0, line.strip())
            text += line
    return found
